// Command http serves files by HTTP over RDMA, and gets them. Server and client
// are those of net/http; only the listener and the dialer are of package
// rdmanet.
//
//	http serve 127.0.0.2:7480 DIRECTORY
//	http get http://127.0.0.2:7480/FILE
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"

	"github.com/gosoftroce/rocev2/rdma/rdmanet"
)

func main() {
	var err error
	switch a := os.Args; {
	case len(a) == 4 && a[1] == "serve":
		err = serve(a[2], a[3])
	case len(a) == 3 && a[1] == "get":
		err = get(os.Stdout, a[2])
	default:
		log.Fatal("usage: http serve ADDR:PORT DIRECTORY | get URL")
	}
	if err != nil {
		log.Fatal(err)
	}
}

func serve(addr, dir string) error {
	ln, err := rdmanet.Listen("rdma", addr)
	if err != nil {
		return err
	}
	fmt.Println("serving on", ln.Addr())
	return http.Serve(ln, http.FileServer(http.Dir(dir)))
}

// client sends requests over RDMA, once the server is there.
var client = &http.Client{Transport: &http.Transport{DialContext: (&rdmanet.Dialer{WaitForServer: true}).DialContext}}

func get(w io.Writer, url string) error {
	log.Printf("getting %s, and waiting until its server listens", url)
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", url, resp.Status)
	}
	_, err = io.Copy(w, resp.Body)
	return err
}
