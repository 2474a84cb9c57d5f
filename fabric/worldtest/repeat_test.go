package worldtest_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/fabric/world"
	"github.com/gosoftroce/rocev2/fabric/worldtest"
	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/verbs"
)

// TestRepeatable: where one program of a host at a time does something, runs
// are the same bit by bit, with losses by the same seed. Another seed gives
// another run.
func TestRepeatable(t *testing.T) {
	t.Parallel()
	digest, took := repeated(t, 1)
	for range 3 {
		if d, e := repeated(t, 1); d != digest || e != took {
			t.Errorf("runs of one seed have the digests %x and %x, and take %v and %v", digest, d, took, e)
		}
	}
	if d, _ := repeated(t, 2); d == digest {
		t.Errorf("runs of two seeds have the digest %x", d)
	}
}

// repeated has six clients read, write and update memory of a server.
func repeated(t *testing.T, seed uint64) (digest uint64, took time.Duration) {
	const clients, slot = 6, 32 << 10
	synctest.Test(t, func(t *testing.T) {
		network := leafSpine(t, 2, 2, 4, func(p *topology.Plan) { p.Loss, p.Seed = 2_000_000, seed })
		w := worldtest.New(t, worldtest.Config{Network: network, Seed: seed})
		echoing(t, w, 0, rdma.Region{Size: clients * slot, Writable: true})
		var all sync.WaitGroup
		for i := range clients {
			c := dialed(t, w, i+1)
			all.Go(func() {
				defer c.Close()
				r, err := c.Region(t.Context(), "shared")
				for n := 0; err == nil && n < 50; n++ {
					buf := text(i, slot-8*n)
					if err = r.Write(t.Context(), buf, int64(i*slot)); err == nil {
						err = r.Read(t.Context(), buf, int64(i*slot))
					}
					if err == nil {
						_, err = r.FetchAdd(t.Context(), 0, 1)
					}
				}
				must1(t, err)
			})
		}
		all.Wait()
		digest, took = w.Digest(), w.Now()
	})
	return digest, took
}

// TestBothWorldsAgree: WRITEs of 1 MiB, one after the other, take what they
// take where programs are coroutines (package world), within three hundredths:
// here devices know the size of their receive buffer.
func TestBothWorldsAgree(t *testing.T) {
	t.Parallel()
	const rounds = 16
	var here, there time.Duration
	synctest.Test(t, func(t *testing.T) {
		w := worldtest.New(t, worldtest.Config{Network: pair(t)})
		s := connected(t, w.Device(0), w.Device(1))
		for range rounds {
			must(t, write(t.Context(), &s[0], &s[1], 1<<20))
		}
		here = w.Now()
	})
	w, err := world.New(world.Config{Network: pair(t)})
	must(t, err)
	peer, err := w.Device(1)
	must(t, err)
	must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error {
		s := connected(t, dev, peer)
		for range rounds {
			if err := write(ctx, &s[0], &s[1], 1<<20); err != nil {
				return err
			}
		}
		return nil
	}))
	must(t, w.Run())
	there = w.Now()
	must(t, w.Close())
	if d := (here - there).Abs(); d > there*3/100 {
		t.Errorf("%v here, and %v with coroutines", here, there)
	}
}
