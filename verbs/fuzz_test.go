package verbs_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/verbs"
)

// FuzzVerbs calls verbs in any order, on open and closed objects, with right
// and wrong arguments. Nothing may panic. In virtual time what hangs is a
// deadlock, and so is a goroutine that is left behind: both end the test.
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
