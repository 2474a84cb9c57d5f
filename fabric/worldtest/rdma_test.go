package worldtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/fabric/worldtest"
	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/rdma/rdmanet"
)

// echoing has a host return the messages of each client until it closes, and
// export a region.
func echoing(t *testing.T, w *worldtest.World, host int, region rdma.Region) *rdma.Listener {
	t.Helper()
	lc := rdma.ListenConfig{Device: w.Device(host)}
	if region.Size > 0 {
		lc.Export("shared", region)
	}
	l, err := lc.Listen(t.Context(), ":7471")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for {
					m, err := c.RecvMsg(context.Background())
					if err != nil {
						return
					}
					err = c.Send(context.Background(), m.Bytes())
					m.Release()
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	return l
}

// bad has cables that lose packets, and switches that send each packet another
// way.
func bad(p *topology.Plan) {
	p.Loss, p.Routing = 2_000_000, network.Spray // of 1e9
}

// TestRDMA has messages, and regions that clients read, write and update, come
// through whole where packets are lost and change their order.
func TestRDMA(t *testing.T) {
	t.Parallel()
	const clients, rounds, slot = 12, 20, 64 << 10
	synctest.Test(t, func(t *testing.T) {
		w := worldtest.New(t, worldtest.Config{Network: leafSpine(t, 4, 4, 4, bad)})
		l := echoing(t, w, 0, rdma.Region{Size: (clients + 1) * slot, Writable: true})
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() { must1(t, useRDMA(t.Context(), w, i, l.Addr().String(), rounds, slot)) })
		}
		all.Wait()
		if sum := w.Totals(); sum.Drops[network.CableLoss] == 0 {
			t.Error("nothing was lost")
		}
		c := dialed(t, w, clients+1)
		r, err := c.Region(t.Context(), "shared")
		must(t, err)
		if n, err := r.FetchAdd(t.Context(), clients*slot, 0); n != clients*rounds || err != nil {
			t.Errorf("%d rounds were counted of %d, %v", n, clients*rounds, err)
		}
		c.Close()
	})
}

func dialed(t *testing.T, w *worldtest.World, from int) *rdma.Conn {
	t.Helper()
	d := rdma.Dialer{Device: w.Device(from)}
	c, err := d.Dial(t.Context(), worldtest.Addr(0).String()+":7471")
	must(t, err)
	return c
}

// useRDMA is client i: its part of the region is its own, but for the counter
// after those of all clients.
func useRDMA(ctx context.Context, w *worldtest.World, i int, addr string, rounds, slot int) error {
	d := rdma.Dialer{Device: w.Device(i + 1)}
	c, err := d.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	r, err := c.Region(ctx, "shared")
	if err != nil {
		return err
	}
	counter := r.Size() - int64(slot)
	got := make([]byte, slot)
	for round := range rounds {
		want := text(i<<8|round, slot-round)
		if err := c.Send(ctx, want); err != nil {
			return err
		}
		n, err := c.Recv(ctx, got)
		if err != nil || !bytes.Equal(got[:n], want) {
			return fmt.Errorf("client %d: the echo of message %d is another one, of %d bytes: %v", i, round, n, err)
		}
		if err := r.Write(ctx, want, int64(i*slot)); err != nil {
			return err
		}
		if err := r.Read(ctx, got[:len(want)], int64(i*slot)); err != nil || !bytes.Equal(got[:len(want)], want) {
			return fmt.Errorf("client %d: what was written in round %d does not come back: %v", i, round, err)
		}
		if _, err := r.FetchAdd(ctx, counter, 1); err != nil {
			return err
		}
	}
	return nil
}

// TestClientComesBack has the cable of a server fail for two minutes: the
// client is told that the peer is gone, and goes on when it is back.
func TestClientComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := worldtest.New(t, worldtest.Config{Network: leafSpine(t, 2, 2, 2)})
		echoing(t, w, 0, rdma.Region{})
		client := rdma.Client{Addr: worldtest.Addr(0).String() + ":7471", Dialer: rdma.Dialer{Device: w.Device(3)}}
		defer client.Close()
		echo := func(c *rdma.Conn) error {
			if err := c.Send(t.Context(), []byte("hello")); err != nil {
				return err
			}
			_, err := c.Recv(t.Context(), make([]byte, 5))
			return err
		}
		must(t, client.Do(t.Context(), echo))
		w.SetCable(0, false)
		down := w.Now()
		err := client.Do(t.Context(), echo)
		if !errors.Is(err, rdma.ErrUnknownOutcome) {
			t.Errorf("while the cable is down: %v", err)
		}
		t.Logf("the peer was gone after %v: %v", w.Now()-down, err)
		time.AfterFunc(down+2*time.Minute-w.Now(), func() { w.SetCable(0, true) })
		must(t, client.Repeat(t.Context(), echo))
		if took := w.Now() - down; took < 2*time.Minute || took > 2*time.Minute+10*time.Second {
			t.Errorf("it went on %v after the failure, of two minutes", took)
		}
	})
}

// TestKeepAlive: an idle connection learns that its peer is gone.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := worldtest.New(t, worldtest.Config{Network: leafSpine(t, 2, 2, 2)})
		echoing(t, w, 0, rdma.Region{})
		d := rdma.Dialer{Device: w.Device(3), KeepAlive: 20 * time.Second}
		c, err := d.Dial(t.Context(), worldtest.Addr(0).String()+":7471")
		must(t, err)
		time.Sleep(5 * time.Minute)
		must(t, c.Err())
		begin := w.Now()
		w.SetCable(0, false)
		<-c.Done()
		if took := w.Now() - begin; !errors.Is(c.Err(), rdma.ErrPeerGone) || took > 22*time.Second {
			t.Errorf("the end comes after %v: %v", took, c.Err())
		}
		if _, err := c.Recv(t.Context(), nil); !errors.Is(err, rdma.ErrPeerGone) && err != io.EOF {
			t.Errorf("Recv: %v", err)
		}
		c.Close()
	})
}

// TestNobodyAnswers: dials of a host without a device, of one that does not
// listen, and of an address that no host has.
func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := worldtest.New(t, worldtest.Config{Network: leafSpine(t, 2, 2, 2)})
		echoing(t, w, 1, rdma.Region{})
		d := rdma.Dialer{Device: w.Device(0)}
		for to, want := range map[string]error{
			worldtest.Addr(1).String() + ":7472": syscall.ECONNREFUSED,
			worldtest.Addr(2).String() + ":7471": context.DeadlineExceeded,
			"10.9.9.9:7471":                      context.DeadlineExceeded,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			begin := w.Now()
			_, err := d.Dial(ctx, to)
			if !errors.Is(err, want) {
				t.Errorf("%s: %v", to, err)
			}
			if took := w.Now() - begin; want == context.DeadlineExceeded && took != 20*time.Second {
				t.Errorf("%s: it took %v", to, took)
			}
			cancel()
		}
	})
}

// TestNothingClosed: a test may end with its listener and its connections open,
// as one does that fails in the middle. Their goroutines end with the world.
// Otherwise synctest panics, and the test does not say what had failed.
func TestNothingClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := worldtest.New(t, worldtest.Config{Network: leafSpine(t, 1, 1, 2)})
		lc := rdma.ListenConfig{Device: w.Device(0)}
		l, err := lc.Listen(t.Context(), ":7471")
		must(t, err)
		go l.Accept(t.Context())
		d := rdma.Dialer{Device: w.Device(1)}
		c, err := d.Dial(t.Context(), l.Addr().String())
		must(t, err)
		must(t, c.Send(t.Context(), []byte("x")))

		slc := rdmanet.ListenConfig{Device: w.Device(0)}
		sl, err := slc.Listen(t.Context(), "rdma", ":80")
		must(t, err)
		go sl.Accept()
		sd := rdmanet.Dialer{Device: w.Device(1)}
		stream, err := sd.DialContext(t.Context(), "rdma", sl.Addr().String())
		must(t, err)
		_, err = stream.Write([]byte("x"))
		must(t, err)
	})
}
