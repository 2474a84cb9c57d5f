package qptest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	seedCount = flag.Int("seeds", 0, "how many seeds TestWorld runs; 0: 300, or 30 with -short")
	oneSeed   = flag.Uint64("seed", 0, "run this seed only; with -v its packets are shown")
	firstSeed = flag.Uint64("first", 1, "the first of the seeds")
)

// seedsOf returns how many seeds a test runs.
func seedsOf() int {
	switch {
	case *seedCount > 0:
		return *seedCount
	case testing.Short():
		return 30
	}
	return 300
}

// foundSeeds are seeds that found a bug. They run always.
var foundSeeds = []uint64{
	101143, // a repeated READ moved ahead of waiting answers made the MSN of the following ones go back
	9151,   // a request after a READ whose answer was being repeated was refused, though the peer kept to the depth
	1047,   // a selective acknowledgement overtook older answers: the MSNs of those went back
	1507,   // what turned out lost when a probe was due was about to be sent again, and the probe stayed due
	8765,   // the same
	9555,   // the same
}

// foundXRCSeeds are those of worlds of XRC.
var foundXRCSeeds = []uint64{
	846,  // as 1047 above
	2126, // as 1507
	4810, // as 1507
	// A repair that waited for the rate was left when its answer had come:
	// a timer ran, and nothing was to be done.
	7701205,
}

// TestWorld plays seeded random worlds; see the package documentation.
func TestWorld(t *testing.T) {
	t.Parallel()
	playWorlds(t, foundSeeds, newWorld)
}

// TestXRCWorld plays the same worlds with connections of XRC.
func TestXRCWorld(t *testing.T) {
	t.Parallel()
	playWorlds(t, foundXRCSeeds, newXRCWorld)
}

func newXRCWorld(seed uint64) *world {
	return makeWorld(seed, &xrcWorld{rng: rand.New(rand.NewPCG(seed, 0x14c))})
}

// playWorlds plays the worlds of the seeds that found a bug, and of those that
// the flags say.
func playWorlds(t *testing.T, found []uint64, make func(uint64) *world) {
	if *oneSeed != 0 {
		w := make(*oneSeed)
		if testing.Verbose() {
			t.Log(w.describe())
			w.trace = func(line string) { fmt.Println(line) }
		}
		if err := w.run(); err != nil {
			t.Fatalf("seed %d: %v", *oneSeed, err)
		}
		return
	}
	seeds := append([]uint64{}, found...)
	for i := range seedsOf() {
		seeds = append(seeds, *firstSeed+uint64(i))
	}
	var next atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	var sum tally
	failures := 0
	for range runtime.GOMAXPROCS(0) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				i := int(next.Add(1)) - 1
				if i >= len(seeds) {
					return
				}
				w := make(seeds[i])
				err := w.run()
				mu.Lock()
				if err != nil && failures < 10 {
					t.Errorf("seed %d (%s): %v\nreplay: go test ./qp/qptest -run '^%s$' -seed=%d -v", seeds[i], w.describe(), err, t.Name(), seeds[i])
				}
				if err != nil {
					failures++
				}
				sum.add(&w.tally)
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	if failures > 0 {
		t.Errorf("%d of %d seeds failed", failures, len(seeds))
	}
	t.Logf("%d seeds: %+v", len(seeds), sum)
}

// TestWorldReplays checks that a seed gives the same run twice, or a failure
// could not be replayed.
func TestWorldReplays(t *testing.T) {
	t.Parallel()
	for seed := uint64(1); seed <= 5; seed++ {
		for name, make := range map[string]func(uint64) *world{"RC": newWorld, "XRC": newXRCWorld} {
			a, b := make(seed), make(seed)
			errA, errB := a.run(), b.run()
			if a.tally != b.tally || fmt.Sprint(errA) != fmt.Sprint(errB) {
				t.Errorf("%s, seed %d: first %+v %v, then %+v %v", name, seed, a.tally, errA, b.tally, errB)
			}
		}
	}
}
