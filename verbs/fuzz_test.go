package verbs_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/verbs"
)

// FuzzVerbs calls verbs in any order, on open and closed objects, with right
// and wrong arguments. Nothing may panic. In virtual time a call that hangs is
// a deadlock, and so is a goroutine that does not end: both end the test.
func FuzzVerbs(f *testing.F) {
	for seed := range uint64(16) {
		f.Add(randomCalls(seed, 200+100*int(seed)))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		synctest.Test(t, func(t *testing.T) {
			newCaller(t, in).play()
		})
	})
}

// randomCalls returns n random bytes.
func randomCalls(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 0))
	in := make([]byte, n)
	for i := range in {
		in[i] = byte(rng.Uint32())
	}
	return in
}

// play makes the calls of the input, then closes everything.
func (c *caller) play() {
	for n := 0; len(c.in) > 0 && n < 400; n++ {
		c.call()
	}
	c.end()
}

// Random calls get somewhere: work succeeds, is flushed, and fails. A fuzz
// target whose calls are all refused shows nothing.
func TestRandomCallsGetSomewhere(t *testing.T) {
	t.Parallel()
	seen := map[verbs.Status]int{}
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			c := newCaller(t, randomCalls(seed, 2000))
			c.play()
			for s, n := range c.seen {
				seen[s] += n
			}
		})
	}
	if seen[verbs.StatusSuccess] < 20 || seen[verbs.StatusWRFlushErr] < 20 || len(seen) < 4 {
		t.Errorf("completions by status: %v", seen)
	}
	t.Logf("completions by status: %v", seen)
}

// Several goroutines call verbs in any order on the same objects, under the
// race detector. Nothing panics or hangs, and all goroutines end.
func TestRandomCallsAtOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			first := newCaller(t, randomCalls(seed, 300)) // it makes what the others share
			for range 60 {
				first.call()
			}
			var wg sync.WaitGroup
			for i := range uint64(4) {
				c := first.beside(randomCalls(seed<<8|i, 1500))
				wg.Go(func() {
					for len(c.in) > 0 {
						c.call()
					}
				})
			}
			wg.Wait()
			first.among = true
			first.end()
		})
	}
}

// beside returns a caller that goes on with the same objects.
func (c *caller) beside(in []byte) *caller {
	d := *c
	d.in, d.among = in, true
	d.posted, d.seen = map[uint64]bool{}, map[verbs.Status]int{}
	d.devs, d.pds, d.mrs, d.cqs, d.chs, d.qps = slices.Clone(c.devs), slices.Clone(c.pds), slices.Clone(c.mrs), slices.Clone(c.cqs),
		slices.Clone(c.chs), slices.Clone(c.qps)
	d.srqs, d.ahs, d.mws, d.fasts = slices.Clone(c.srqs), slices.Clone(c.ahs), slices.Clone(c.mws), slices.Clone(c.fasts)
	d.xrcds = slices.Clone(c.xrcds)
	return &d
}
