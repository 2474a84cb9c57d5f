//go:build linux

package rdmanet_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/gosoftroce/rocev2/rdma/rdmanet"
)

// host is a loopback address that no other program has: on Linux all of
// 127.0.0.0/8 is local. Between two machines it is the address of the server's.
var host = fmt.Sprintf("127.%d.%d.1", 1+rand.IntN(254), rand.IntN(256))

// A server and a client, as with package net.
func Example() {
	ln, err := rdmanet.Listen("rdma", host+":0") // a port that is free
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ln.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return // the listener is closed
			}
			go func() {
				defer conn.Close()
				io.Copy(conn, conn) // an echo, until the client says that it is done
			}()
		}
	}()

	conn, err := rdmanet.Dial(context.Background(), "rdma", ln.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	fmt.Fprintln(conn, "one line")
	fmt.Fprintln(conn, "and another")
	if err := conn.CloseWrite(); err != nil { // the server reads io.EOF
		fmt.Println(err)
		return
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		fmt.Println(lines.Text())
	}
	fmt.Println(lines.Err())
	// Output:
	// one line
	// and another
	// <nil>
}

// A server and a client of net/http over RDMA, in clear. The documentation of
// the package says how they are secured.
func ExampleDialer_DialContext() {
	ln, err := rdmanet.Listen("rdma", host+":0")
	if err != nil {
		fmt.Println(err)
		return
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s over RDMA\n", r.URL.Path)
	})}
	go server.Serve(ln)
	defer server.Close()

	var d rdmanet.Dialer
	client := &http.Client{Transport: &http.Transport{DialContext: d.DialContext}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + ln.Addr().String() + "/hello")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	io.Copy(os.Stdout, resp.Body)
	// Output: /hello over RDMA
}

// A deadline ends a Read that waits; a later one lets the connection go on.
func ExampleConn_SetReadDeadline() {
	ln, err := rdmanet.Listen("rdma", host+":0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ln.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			fmt.Println(err)
		}
		accepted <- conn
	}()

	conn, err := rdmanet.Dial(context.Background(), "rdma", ln.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	buf := make([]byte, 64)
	conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err = conn.Read(buf)
	fmt.Println("too late:", errors.Is(err, os.ErrDeadlineExceeded))

	server := <-accepted
	io.WriteString(server, "late")
	server.Close()
	conn.SetReadDeadline(time.Time{}) // none
	all, err := io.ReadAll(conn)
	fmt.Printf("%s, %v\n", all, err)
	// Output:
	// too late: true
	// late, <nil>
}
