//go:build linux

package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/verbs"
)

// host is a loopback address that no other program has: on Linux all of
// 127.0.0.0/8 is local. Between two machines it is the address of the server's.
var host = fmt.Sprintf("127.%d.%d.1", 1+rand.IntN(254), rand.IntN(256))

// A server listens and answers each message; a client dials.
func Example() {
	ctx := context.Background()
	l, err := rdma.Listen(ctx, host+":0") // a port that is free
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept(ctx)
			if err != nil {
				return // the listener is closed
			}
			go func() {
				defer c.Close()
				buf := make([]byte, c.MaxMessage())
				for {
					n, err := c.Recv(ctx, buf)
					if err != nil {
						return // io.EOF: the client has closed
					}
					if err := c.Send(ctx, fmt.Appendf(nil, "you said %q", buf[:n])); err != nil {
						return
					}
				}
			}()
		}
	}()

	c, err := rdma.Dial(ctx, l.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	buf := make([]byte, c.MaxMessage())
	for _, text := range []string{"hello", "goodbye"} {
		if err := c.Send(ctx, []byte(text)); err != nil {
			fmt.Println(err)
			return
		}
		n, err := c.Recv(ctx, buf)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s\n", buf[:n])
	}
	// Output:
	// you said "hello"
	// you said "goodbye"
}

// A server exports memory under a name. Clients read, write and count in it,
// and the server's program does nothing for that.
func ExampleListener_Export() {
	ctx := context.Background()
	l, err := rdma.Listen(ctx, host+":0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	board, err := l.Export("board", rdma.Region{Size: 4096, Writable: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	go l.Accept(ctx)

	c, err := rdma.Dial(ctx, l.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	r, err := c.Region(ctx, "board")
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := r.Write(ctx, []byte("hello"), 64); err != nil {
		fmt.Println(err)
		return
	}
	text := make([]byte, 5)
	if err := r.Read(ctx, text, 64); err != nil {
		fmt.Println(err)
		return
	}
	before, err := r.FetchAdd(ctx, 0, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	was, err := r.CompareSwap(ctx, 0, 3, 10) // to 10, if it is 3
	if err != nil {
		fmt.Println(err)
		return
	}
	now, err := board.Load64(0) // the server's own look, in one piece
	fmt.Printf("%s, the counter was %d, then %d, and is %d (%v)\n", text, before, was, now, err)
	// Output: hello, the counter was 0, then 3, and is 10 (<nil>)
}

// Many requests are under way at once, and are carried out in order.
func ExampleConn_Go() {
	ctx := context.Background()
	l, err := rdma.Listen(ctx, host+":0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	board, err := l.Export("board", rdma.Region{Size: 4096, Writable: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	go l.Accept(ctx)

	c, err := rdma.Dial(ctx, l.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	r, err := c.Region(ctx, "board")
	if err != nil {
		fmt.Println(err)
		return
	}
	mine, err := c.Register([]byte("one two three "), verbs.LocalWrite)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer mine.Close()
	var last *rdma.Op
	for i := range 100 { // each writes over what the one before has written
		last = c.Go(verbs.SendWR{
			Opcode: verbs.OpWrite,
			SGList: []verbs.SGE{mine.Slice(i%3*4, 4)},
			Remote: r.Remote().At(0),
		})
	}
	if err := last.Wait(ctx); err != nil { // all before it are done, too
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", board.Bytes()[:3])
	// Output: one
}

// A context bounds how long a call waits. The connection goes on after it.
func ExampleConn_Recv_deadline() {
	ctx := context.Background()
	l, err := rdma.Listen(ctx, host+":0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	var server sync.WaitGroup
	ask := make(chan struct{})
	server.Go(func() {
		c, err := l.Accept(ctx)
		if err != nil {
			return
		}
		<-ask
		c.Send(ctx, []byte("late"))
		c.Close()
	})

	c, err := rdma.Dial(ctx, l.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	buf := make([]byte, c.MaxMessage())
	soon, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_, err = c.Recv(soon, buf)
	fmt.Println("too late:", errors.Is(err, context.DeadlineExceeded), os.IsTimeout(err))
	close(ask)
	n, err := c.Recv(ctx, buf)
	fmt.Printf("%s, %v\n", buf[:n], err)
	_, err = c.Recv(ctx, buf)
	fmt.Println("the peer has closed:", err == io.EOF)
	server.Wait()
	// Output:
	// too late: true true
	// late, <nil>
	// the peer has closed: true
}

// Errors say what failed and with which peer. errors.Is finds the cause.
func ExampleOpError() {
	ctx := context.Background()
	l, err := rdma.Listen(ctx, host+":0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	if _, err := l.Export("notice", rdma.Region{Memory: []byte("no smoking")}); err != nil {
		fmt.Println(err)
		return
	}
	go l.Accept(ctx)

	c, err := rdma.Dial(ctx, l.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	_, err = c.Region(ctx, "ledger")
	fmt.Println(errors.Is(err, rdma.ErrUnknownRegion))

	notice, err := c.Region(ctx, "notice")
	if err != nil {
		fmt.Println(err)
		return
	}
	err = notice.Write(ctx, []byte("please"), 0)
	fmt.Println(errors.Is(err, os.ErrPermission)) // it is not Writable
	err = notice.Read(ctx, make([]byte, 8), 4)
	fmt.Println(errors.Is(err, rdma.ErrRange))
	fmt.Println(c.Err()) // nothing of that has ended the connection

	l.Close()
	<-c.Done()
	fmt.Println(errors.Is(c.Err(), rdma.ErrPeerClosed))
	_, err = rdma.Dial(ctx, l.Addr().String())
	fmt.Println(errors.Is(err, syscall.ECONNREFUSED))
	// Output:
	// true
	// true
	// true
	// <nil>
	// true
	// true
}

// A client whose server ends and comes back. What may be done twice is
// repeated; of what must not, the error says that the outcome is unknown.
func ExampleClient() {
	ctx := context.Background()
	memory := make([]byte, 4096)
	start := func(addr string) *rdma.Listener {
		var lc rdma.ListenConfig
		lc.Export("board", rdma.Region{Memory: memory, Writable: true})
		l, err := lc.Listen(ctx, addr)
		if err != nil {
			panic(err)
		}
		go func() {
			for {
				if _, err := l.Accept(ctx); err != nil {
					return // the listener is closed
				}
			}
		}()
		return l
	}
	l := start(host + ":0")

	client := rdma.Client{Addr: l.Addr().String()}
	defer client.Close()
	write := func(text string) error {
		return client.Repeat(ctx, func(c *rdma.Conn) error { // may be done twice
			r, err := c.Region(ctx, "board")
			if err != nil {
				return err
			}
			return r.Write(ctx, []byte(text), 64)
		})
	}
	count := func() error {
		return client.Do(ctx, func(c *rdma.Conn) error { // once, or not at all
			r, err := c.Region(ctx, "board")
			if err != nil {
				return err
			}
			_, err = r.FetchAdd(ctx, 0, 1)
			return err
		})
	}
	fmt.Println(write("hello"), count())
	l.Close()
	l = start(client.Addr)
	defer l.Close()
	fmt.Println(write("again"))
	if err := count(); errors.Is(err, rdma.ErrUnknownOutcome) {
		fmt.Println("look whether it was counted:", err)
	}
	fmt.Printf("%s\n", memory[64:69])
	// Output:
	// <nil> <nil>
	// <nil>
	// again
}
