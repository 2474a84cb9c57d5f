package worldtest_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric/worldtest"
	"github.com/gosoftroce/rocev2/rdma/rdmanet"
)

// streams returns both sides of a connection between hosts 0 and 3.
func streams(t *testing.T, w *worldtest.World, o rdmanet.Options) (client, server net.Conn) {
	t.Helper()
	lc := rdmanet.ListenConfig{Options: o, Device: w.Device(3)}
	l, err := lc.Listen(t.Context(), "rdma", ":7471")
	must(t, err)
	defer l.Close()
	d := rdmanet.Dialer{Options: o, Device: w.Device(0)}
	client, err = d.DialContext(t.Context(), "rdma", worldtest.Addr(3).String()+":7471")
	must(t, err)
	server, err = l.Accept()
	must(t, err)
	return client, server
}

// TestDeadlines are exact.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := worldtest.New(t, worldtest.Config{Network: leafSpine(t, 2, 2, 2)})
		c, s := streams(t, w, rdmanet.Options{})
		defer s.Close()
		defer c.Close()
		begin := w.Now()
		must(t, c.SetReadDeadline(time.Now().Add(1234*time.Millisecond)))
		_, err := c.Read(make([]byte, 1))
		if took := w.Now() - begin; !errors.Is(err, os.ErrDeadlineExceeded) || took != 1234*time.Millisecond {
			t.Errorf("Read ends after %v: %v", took, err)
		}
		begin = w.Now()
		must(t, c.SetWriteDeadline(time.Now().Add(time.Second)))
		_, err = c.Write(make([]byte, 4<<20)) // the peer does not read
		if took := w.Now() - begin; !errors.Is(err, os.ErrDeadlineExceeded) || took != time.Second {
			t.Errorf("Write ends after %v: %v", took, err)
		}
	})
}

// TestWritersTakeTurns: calls that wait for their turn, or for the end of
// another call, do not stop the time.
func TestWritersTakeTurns(t *testing.T) {
	t.Parallel()
	const writers, size = 4, 1 << 20
	synctest.Test(t, func(t *testing.T) {
		w := worldtest.New(t, worldtest.Config{Network: leafSpine(t, 2, 2, 2, bad)})
		c, s := streams(t, w, rdmanet.Options{SendBuffer: 8 << 10, RecvBuffer: 16 << 10})
		var all sync.WaitGroup
		for i := range writers {
			all.Go(func() {
				_, err := c.Write(bytes.Repeat([]byte{byte(i)}, size))
				must1(t, err)
			})
		}
		read := make(chan int)
		for range 2 { // which take turns, too
			go func() {
				sum := 0
				for b := make([]byte, 5000); ; {
					n, err := s.Read(b)
					if sum += n; err != nil {
						if err != io.EOF {
							t.Error(err)
						}
						read <- sum
						return
					}
				}
			}()
		}
		all.Wait()
		must(t, c.Close())
		if n := <-read + <-read; n != writers*size {
			t.Errorf("%d bytes of %d have come", n, writers*size)
		}
		must(t, s.Close())
	})
}

// TestStreamKeepAlive: a reader learns that the peer is gone, and Close does
// not wait for one that is.
func TestStreamKeepAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := worldtest.New(t, worldtest.Config{Network: leafSpine(t, 2, 2, 2)})
		c, s := streams(t, w, rdmanet.Options{KeepAlive: 30 * time.Second})
		time.Sleep(10 * time.Minute)
		_, err := c.Write([]byte("still there"))
		must(t, err)
		_, err = s.Read(make([]byte, 100))
		must(t, err)
		begin := w.Now()
		w.SetCable(0, false)
		_, err = s.Read(make([]byte, 100))
		if took := w.Now() - begin; !errors.Is(err, syscall.ECONNRESET) || took > 40*time.Second {
			t.Errorf("Read ends after %v: %v", took, err)
		}
		begin = w.Now()
		c.Close()
		s.Close()
		if took := w.Now() - begin; took != 0 {
			t.Errorf("Close takes %v", took)
		}
		select {
		case <-c.(*rdmanet.Conn).Parted():
		case <-time.After(time.Minute):
			t.Error("the connection is still there")
		}
	})
}
