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

// watched calls a function before each read of a region, which it gives the
// number of the read.
type watched struct {
	*rdma.RemoteRegion
	before func(n int)
	reads  int
}

func (w *watched) Read(ctx context.Context, p []byte, off int64) error {
	w.before(w.reads)
	w.reads++
	return w.RemoteRegion.Read(ctx, p, off)
}

// A reader takes no record that changes between its three reads: neither one
// that is half written all the time, nor one that was written whole meanwhile.
func TestReaderSeesNoHalf(t *testing.T) {
	t.Parallel()
	const size = 64
	all := func(b byte) []byte { return bytes.Repeat([]byte{b}, size) }
	for name, c := range map[string]struct {
		write func(n int, s *Seq) error
		reads int
	}{
		"half": {func(n int, s *Seq) error {
			switch n {
			case 0: // a writer begins, and writes a half
				if _, err := s.Region.FetchAdd(t.Context(), s.Off, 1); err != nil {
					return err
				}
				return s.Region.Write(t.Context(), all(1)[:size/2], s.Off+8)
			case 3: // it begins anew, and ends
				return s.Write(t.Context(), all(1))
			}
			return nil
		}, 6},
		"whole": {func(n int, s *Seq) error {
			if n == 2 { // the version was read, and the record
				return s.Write(t.Context(), all(1))
			}
			return nil
		}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := shared(t, 2)
			writer, w := &Seq{r[0], 64, size}, &watched{RemoteRegion: r[1]}
			w.before = func(n int) {
				if err := c.write(n, writer); err != nil {
					t.Fatal(err)
				}
			}
			p, reader := make([]byte, size), Seq{w, 64, size}
			v, err := reader.Read(t.Context(), p)
			if v != 2 || err != nil || !bytes.Equal(p, all(1)) || w.reads != c.reads {
				t.Errorf("version %d after %d reads: % x (%v)", v, w.reads, p, err)
			}
		})
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
