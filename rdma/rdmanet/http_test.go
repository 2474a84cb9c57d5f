package rdmanet

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/rpc"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// listening returns a listener on a device and a dialer on another one, which
// reach each other.
func listening(t testing.TB, o Options) (*Listener, *Dialer) {
	t.Helper()
	a, b := verbstest.Devices(t)
	return listenOn(t, a, b, o)
}

func listenOn(t testing.TB, a, b *verbs.Device, o Options) (*Listener, *Dialer) {
	t.Helper()
	lc := ListenConfig{Options: o, Device: a}
	ln, err := lc.Listen(t.Context(), "rdma", a.Addr().String()+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln, &Dialer{Options: o, Device: b}
}

// TestHTTP runs server and client of net/http over RDMA: many requests at once,
// bodies both ways, connections that are used again, deadlines.
func TestHTTP(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ln, d := listening(t, Options{})
		srv := &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					http.Error(w, err.Error(), http.StatusBadRequest)
					return
				}
				w.Write(bytes.Repeat(body, 2))
			}),
			ReadTimeout: time.Minute, WriteTimeout: time.Minute,
		}
		served := make(chan error, 1)
		go func() { served <- srv.Serve(ln) }()
		tr := &http.Transport{DialContext: d.DialContext, MaxIdleConnsPerHost: 4}
		client := &http.Client{Transport: tr, Timeout: time.Minute}

		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for size := 1; size <= 1<<20; size *= 8 {
					body := bytes.Repeat([]byte{byte(i)}, size)
					resp, err := client.Post("http://"+ln.Addr().String()+"/double", "application/octet-stream", bytes.NewReader(body))
					if err != nil {
						t.Error(err)
						return
					}
					got, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if err != nil || !bytes.Equal(got, bytes.Repeat(body, 2)) {
						t.Errorf("%d bytes gave %d, %v", size, len(got), err)
					}
				}
			})
		}
		wg.Wait()
		tr.CloseIdleConnections()
		if err := srv.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != http.ErrServerClosed {
			t.Errorf("Serve returns %v", err)
		}
	})
}

// Sum is a service of net/rpc.
type Sum struct{}

// Add adds two numbers.
func (Sum) Add(in [2]int, out *int) error { *out = in[0] + in[1]; return nil }

func TestRPC(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ln, d := listening(t, Options{})
		srv := rpc.NewServer()
		if err := srv.Register(Sum{}); err != nil {
			t.Fatal(err)
		}
		go srv.Accept(ln)
		conn, err := d.DialContext(t.Context(), "rdma", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		client := rpc.NewClient(conn)
		defer client.Close()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for j := range 20 {
					sum := 0
					if err := client.Call("Sum.Add", [2]int{i, j}, &sum); err != nil || sum != i+j {
						t.Errorf("%d+%d is %d, %v", i, j, sum, err)
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestManyConnections has many of them, all in use.
func TestManyConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ln, d := listening(t, Options{RecvBuffer: 8 << 10, SendBuffer: 4 << 10})
		const n = 100
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go func() { io.Copy(c, c); c.Close() }()
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if err := echo(ctx, d, ln.Addr().String(), i); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

func echo(ctx context.Context, d *Dialer, addr string, i int) error {
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	c := nc.(*Conn)
	defer c.Close()
	text := bytes.Repeat(fmt.Appendf(nil, "connection %d.", i), 1000)
	go func() {
		c.Write(text)
		c.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, text) {
		return fmt.Errorf("connection %d: %d of %d bytes, %v", i, len(got), len(text), err)
	}
	return nil
}
