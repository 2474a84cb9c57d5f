// Command hello writes a line into the memory of another process.
//
//	hello 127.0.0.2:7471          # offers memory there
//	hello 127.0.0.2:7471 "hello"  # writes into it, from another process
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"

	"github.com/gosoftroce/rocev2/rdma"
)

func main() {
	ctx, err := context.Background(), error(nil)
	switch len(os.Args) {
	case 2:
		err = offer(ctx, os.Args[1])
	case 3:
		err = write(ctx, os.Args[1], os.Args[2])
	default:
		log.Fatal("usage: hello ADDRESS:PORT [TEXT]")
	}
	if err != nil {
		log.Fatal(err)
	}
}

func offer(ctx context.Context, addr string) error {
	l, err := rdma.Listen(ctx, addr)
	if err != nil {
		return err
	}
	defer l.Close()
	board, err := l.Export("board", rdma.Region{Size: 4096, Writable: true})
	if err != nil {
		return err
	}
	log.Printf("listening on %v", l.Addr())
	c, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Recv(ctx, nil); err != nil { // an empty message: the line is there
		return err
	}
	fmt.Printf("%s\n", bytes.TrimRight(board.Bytes(), "\x00"))
	return nil
}

func write(ctx context.Context, addr, text string) error {
	log.Printf("connecting to %s, and waiting until it listens", addr)
	d := rdma.Dialer{WaitForServer: true}
	c, err := d.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	board, err := c.Region(ctx, "board")
	if err != nil {
		return err
	}
	if err := board.Write(ctx, []byte(text), 0); err != nil { // the other process does nothing for it
		return err
	}
	return c.Send(ctx, nil)
}
