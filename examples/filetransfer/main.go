// Command filetransfer gives files to clients, which read them one-sidedly.
//
//	filetransfer serve 127.0.0.2:7471 FILE …
//	filetransfer get 127.0.0.2:7471 NAME TO
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/rdma"
)

func main() {
	var err error
	switch a := os.Args; {
	case len(a) >= 4 && a[1] == "serve":
		err = serve(a[2], a[3:])
	case len(a) == 5 && a[1] == "get":
		err = get(a[2], a[3], a[4])
	default:
		log.Fatal("usage: filetransfer serve ADDR:PORT FILE … | get ADDR:PORT NAME TO")
	}
	if err != nil {
		log.Fatal(err)
	}
}

func serve(addr string, files []string) error {
	var lc rdma.ListenConfig
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		lc.Export(filepath.Base(name), rdma.Region{File: f})
	}
	l, err := lc.Listen(context.Background(), addr)
	if err != nil {
		return err
	}
	fmt.Println("serving on", l.Addr())
	for {
		if _, err := l.Accept(context.Background()); err != nil {
			return err
		}
	}
}

func get(addr, name, to string) error {
	ctx := context.Background()
	log.Printf("connecting to %s, and waiting until it listens", addr)
	d := rdma.Dialer{WaitForServer: true}
	c, err := d.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	file, err := c.Region(ctx, name)
	if err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	start := time.Now()
	_, err = file.CopyTo(ctx, out, 0, file.Size(), func(done int64) { bar(done, file.Size(), time.Since(start)) })
	fmt.Fprintln(os.Stderr)
	if err != nil {
		return err
	}
	return out.Close()
}

// bar draws how far the transfer is.
func bar(done, size int64, took time.Duration) {
	const width = 40
	full := int(width * done / size)
	fmt.Fprintf(os.Stderr, "\r[%s%s] %3d %%  %.0f MiB/s", strings.Repeat("#", full), strings.Repeat(".", width-full),
		100*done/size, float64(done)/(1<<20)/took.Seconds())
}
