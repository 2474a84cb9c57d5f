package rdmanet

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// Clients come and go on a network that loses, doubles and reorders packets,
// beside listeners that begin and end. What arrives is right, and nothing is
// left: no number that a peer was told, no queue pair and no region.
func TestStorm(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) { storm(t, seed) })
	}
}

func storm(t *testing.T, seed uint64) {
	cable := fabric.PortConfig{Loss: 0.01 * float64(seed%8), Duplicate: 0.03, Reorder: 0.08, Delay: 20 * time.Microsecond}
	a, b := verbstest.Devices(t, verbstest.Config{Network: fabric.Config{Port: cable, Seed: seed}})
	defer a.Close()
	defer b.Close()
	o := Options{RecvBuffer: 16 << 10, SendBuffer: 16 << 10, Linger: 100 * time.Millisecond}
	lc := ListenConfig{Options: o, Device: a, MaxConns: 12}
	ln, err := lc.Listen(t.Context(), Network, a.Addr().String()+":7471")
	must(t, err)
	at := ln.Addr().String()
	var echoed, failed atomic.Int64
	var servers, clients sync.WaitGroup
	serve := func(ln *Listener) {
		for {
			c, err := ln.AcceptContext(context.Background())
			if err != nil {
				return
			}
			servers.Go(func() {
				io.Copy(c, c)
				c.Close()
				<-c.Parted()
			})
		}
	}
	servers.Go(func() { serve(ln) })
	stop := make(chan struct{})
	for i := range uint64(16) {
		rng := rand.New(rand.NewPCG(seed, i))
		clients.Go(func() {
			for range 12 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(400))*time.Millisecond)
				d := Dialer{Options: o, Device: b}
				c, err := d.dial(ctx, Network, at)
				cancel()
				if err != nil {
					failed.Add(1)
					continue
				}
				c.SetDeadline(time.Now().Add(5 * time.Second))
				sent := make([]byte, rng.IntN(20000))
				for i := range sent {
					sent[i] = byte(rng.Uint32())
				}
				wrote := make(chan struct{}) // a bubble's time stands while a goroutine waits for a lock
				go func() { c.Write(sent); close(wrote) }()
				got := make([]byte, rng.IntN(len(sent)+1))
				n, err := io.ReadFull(c, got)
				if err == nil {
					echoed.Add(1)
				}
				if !bytes.Equal(got[:n], sent[:n]) {
					t.Errorf("what comes back is wrong")
				}
				c.SetWriteDeadline(time.Now())
				<-wrote
				c.Close()
				if rng.IntN(2) == 0 {
					<-c.Parted()
				}
			}
		})
	}
	go func() { clients.Wait(); close(stop) }()
	for ended := false; !ended; {
		select {
		case <-stop:
			ended = true
		case <-time.After(700 * time.Millisecond):
		}
		ln.Close()
		if !ended {
			again, err := lc.Listen(t.Context(), Network, a.Addr().String()+":7471")
			must(t, err)
			ln = again
			servers.Go(func() { serve(again) })
		}
	}
	servers.Wait()
	time.Sleep(time.Minute)
	runtime.Gosched()
	for _, dev := range []*verbs.Device{a, b} {
		if s, held := dev.Stats(), verbs.HCA(dev).Held(); held != 0 || s.QPs != 1 || s.MRs > 1 {
			t.Errorf("%v: %d numbers are held, %d queue pairs, %d regions", dev.Addr(), held, s.QPs, s.MRs)
		}
	}
	t.Logf("%d echoes, %d failed dials", echoed.Load(), failed.Load())
}
