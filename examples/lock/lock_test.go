package lock

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// shared returns a region of a server for each of n clients.
func shared(t *testing.T, n int) (regions []*rdma.RemoteRegion) {
	a, b := verbstest.Devices(t)
	lc := rdma.ListenConfig{Device: b}
	lc.Export("shared", rdma.Region{Size: 4096, Writable: true})
	l, err := lc.Listen(t.Context(), ":7471")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			if _, err := l.Accept(context.Background()); err != nil {
				return
			}
		}
	}()
	d := rdma.Dialer{Device: a}
	for range n {
		c, err := d.Dial(t.Context(), l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		r, err := c.Region(t.Context(), "shared")
		if err != nil {
			t.Fatal(err)
		}
		regions = append(regions, r)
	}
	return regions
}

// Clients write a record under the lock while others read it: no record is of
// two writers, and none is lost.
func TestLockAndSequenceLock(t *testing.T) {
	t.Parallel()
	const writers, each, size = 3, 20, 1000
	regions := shared(t, writers+1)
	ctx, done := context.WithCancel(t.Context())
	var reader, all sync.WaitGroup
	reader.Go(func() {
		s, p := Seq{regions[writers], 64, size}, make([]byte, size)
		for ctx.Err() == nil {
			if _, err := s.Read(t.Context(), p); err != nil {
				t.Error(err)
				return
			}
			if n := bytes.Count(p, p[:1]); n != size {
				t.Errorf("%d bytes are of the first writer", n)
				return
			}
		}
	})
	for i := range writers {
		all.Go(func() {
			l := Lock{Region: regions[i], Me: uint32(i + 1), Lease: time.Hour}
			s := Seq{regions[i], 64, size}
			for n := range each {
				held, err := l.Acquire(t.Context())
				if err == nil {
					err = s.Write(t.Context(), bytes.Repeat([]byte{byte(i*each + n)}, size))
				}
				if err == nil {
					err = l.Release(t.Context(), held)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	done()
	reader.Wait()
	s := Seq{regions[writers], 64, size}
	if v, err := s.Read(t.Context(), make([]byte, size)); v != 2*writers*each || err != nil {
		t.Errorf("version %d after %d writes (%v)", v, writers*each, err)
	}
}

// The lock of an owner that does nothing any more is taken when its lease is
// over, and not before; the owner learns of it. One that renews keeps it.
func TestLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, ctx := shared(t, 2), t.Context()
		a := Lock{Region: r[0], Me: 1, Lease: time.Second}
		b := Lock{Region: r[1], Me: 2, Lease: time.Second}
		held, err := a.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		taken := make(chan uint64)
		go func() {
			h, err := b.Acquire(ctx)
			if err != nil {
				t.Error(err)
			}
			taken <- h
		}()
		for range 5 {
			time.Sleep(500 * time.Millisecond) // of virtual time
			if held, err = a.Renew(ctx, held); err != nil {
				t.Fatal(err)
			}
		}
		next := <-taken
		if took := time.Since(start); took < 3500*time.Millisecond || took > 4*time.Second {
			t.Errorf("taken after %v", took)
		}
		if next>>32 <= held>>32 {
			t.Errorf("epoch %d after %d", next>>32, held>>32)
		}
		if err := a.Release(ctx, held); !errors.Is(err, ErrLost) {
			t.Error(err)
		}
		if err := b.Release(ctx, next); err != nil {
			t.Error(err)
		}
	})
}
