// Command rpc calls a procedure of another process by net/rpc, over RDMA
// messages.
//
//	rpc serve 127.0.0.2:7471
//	rpc call 127.0.0.2:7471 7 6
package main

import (
	"context"
	"fmt"
	"log"
	"net/rpc"
	"os"
	"strconv"

	"github.com/gosoftroce/rocev2/rdma"
)

// Arith is the service.
type Arith struct{}

// Multiply sets product to that of the two factors.
func (Arith) Multiply(factors [2]int, product *int) error {
	*product = factors[0] * factors[1]
	return nil
}

func main() {
	var err error
	switch a := os.Args; {
	case len(a) == 3 && a[1] == "serve":
		err = serve(a[2])
	case len(a) == 5 && a[1] == "call":
		err = call(a[2], a[3], a[4])
	default:
		log.Fatal("usage: rpc serve ADDR:PORT | call ADDR:PORT NUMBER NUMBER")
	}
	if err != nil {
		log.Fatal(err)
	}
}

func serve(addr string) error {
	if err := rpc.Register(Arith{}); err != nil {
		return err
	}
	l, err := rdma.Listen(context.Background(), addr)
	if err != nil {
		return err
	}
	fmt.Println("serving on", l.Addr())
	for {
		c, err := l.Accept(context.Background())
		if err != nil {
			return err
		}
		go rpc.ServeConn(c.Stream()) // until the client closes
	}
}

func call(addr string, numbers ...string) error {
	var factors [2]int
	for i, s := range numbers {
		n, err := strconv.Atoi(s)
		if err != nil {
			return err
		}
		factors[i] = n
	}
	log.Printf("connecting to %s, and waiting until it listens", addr)
	d := rdma.Dialer{WaitForServer: true}
	c, err := d.Dial(context.Background(), addr)
	if err != nil {
		return err
	}
	client := rpc.NewClient(c.Stream())
	defer client.Close()
	var product int
	if err := client.Call("Arith.Multiply", factors, &product); err != nil {
		return err
	}
	fmt.Println(product)
	return nil
}
