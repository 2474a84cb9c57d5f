package agent

import (
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	seedCount = flag.Int("seeds", 0, "how many seeds TestWorld runs; 0: 300, or 60 with -short")
	oneSeed   = flag.Uint64("seed", 0, "run this seed only; with -v its messages are shown")
	firstSeed = flag.Uint64("first", 1, "the first of the seeds")
)

// seedsOf returns how many seeds a test runs.
func seedsOf() int {
	switch {
	case *seedCount > 0:
		return *seedCount
	case testing.Short():
		return 60
	}
	return 300
}

// foundSeeds are seeds that found a bug. They run always.
var foundSeeds = []uint64{}

// timed says which states have a timer.
var timed = map[State]bool{
	StateREQSent: true, StateREQReceived: true, StateREPSent: true, StateDREQSent: true, StateTimewait: true,
	StateSIDRSent: true, StateSIDRReceived: true,
}

// consistent returns what is wrong with the tables of an agent, or nil.
func consistent(a *Agent) error {
	var timers, indexed, learned, halfOpen, timewait, unanswered int
	waiting := map[*listener]int{}
	peers := map[*peer]int{}
	for id, c := range a.table.conns {
		if c.local != id || c.state == StateIdle {
			return fmt.Errorf("ID %d is that of %d, %v", id, c.local, c.state)
		}
		if (c.timer != 0) != timed[c.state] {
			return fmt.Errorf("in state %v there is a timer: %v", c.state, c.timer != 0)
		}
		half := c.state == StateREQReceived || c.state == StateREPSent || c.state == StateSIDRReceived
		if (c.setup != nil) != half {
			return fmt.Errorf("in state %v it is half open: %v", c.state, c.setup != nil)
		}
		if c.learned && c.state == StateTimewait {
			return fmt.Errorf("the queue pair of a peer is in use in timewait")
		}
		timers += count(c.timer != 0)
		indexed += count(c.indexed)
		learned += count(c.learned)
		timewait += count(c.state == StateTimewait)
		halfOpen += count(half)
		peers[c.peer]++
		if half && c.setup.waiting {
			waiting[c.setup.listener]++
		} else if half {
			unanswered++
		}
	}
	for c := a.gate.unanswered.Front(); c != nil; c = c.setup.inAll.Next() {
		unanswered--
	}
	if unanswered != 0 {
		return fmt.Errorf("the list of unanswered requests is wrong by %d", unanswered)
	}
	if n := len(a.resolver.answers.ring); n != len(a.resolver.answers.of) || n > maxAnswers {
		return fmt.Errorf("%d answers, and %d in the ring", len(a.resolver.answers.of), n)
	}
	for _, l := range a.listeners {
		n := 0
		for c := l.requests.Front(); c != nil; c = c.setup.inAll.Next() {
			n += count(!c.setup.taken && !c.setup.returned)
		}
		for c := l.claims.Front(); c != nil; c = c.setup.inAll.Next() {
			n += count(!c.setup.taken && c.setup.returned)
		}
		for c := l.taken.Front(); c != nil; c = c.setup.inAll.Next() {
			n += count(c.setup.taken)
		}
		if l.waiting != waiting[l] || n != l.waiting {
			return fmt.Errorf("%d requests wait, not %d", waiting[l], l.waiting)
		}
	}
	for _, p := range a.table.peers {
		if p.conns != peers[p] {
			return fmt.Errorf("a peer has %d connections, not %d", peers[p], p.conns)
		}
	}
	got := []int{timers, indexed, learned, halfOpen, timewait, len(peers)}
	want := []int{len(a.life.timers), len(a.table.byID) + len(a.table.sidr), len(a.table.byQPN), a.stats.HalfOpen, a.stats.Timewait, len(a.table.peers)}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("timers, IDs, QPNs, half open, timewait, peers: there are %v, tables say %v", got, want)
	}
	for i, c := range a.life.timers {
		if int(c.timer) != i+1 || c.deadline < a.life.timers[(i+1)/2-min(1, (i+1)/2)].deadline {
			return fmt.Errorf("the timers are in disorder at %d", i)
		}
	}
	return nil
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// checkEnd: at rest nothing is left in any table, and every attempt has an
// outcome.
func (w *world) checkEnd() {
	for _, h := range w.hosts {
		if s := h.agent.Stats(); s.Connections != 0 {
			w.fail("%v: %+v", h.addr, s)
		}
		for _, k := range h.known {
			w.fail("%v: the program was not told of the end of %s, phase %v", h.addr, k.data, k.phase)
		}
	}
	for _, a := range w.attempts {
		if alive := a.from.life == a.life; alive && !a.answered {
			w.fail("call %d has no outcome", a.number)
		}
	}
	if w.loss > 0 || w.tally.Deaths > 0 || w.delay > 100e6 {
		return
	}
	// Without losses and deaths only programs are silent, not agents.
	if w.tally.Timeouts > 0 {
		w.fail("%d disconnects timed out without a loss", w.tally.Timeouts)
	}
}

// TestWorld plays seeded random worlds: many agents over a network that loses,
// doubles and reorders, in virtual time. Every attempt must have an outcome in
// bounded time, private data must arrive as it was sent, and at the end nothing
// may be left in any table.
//
//	go test ./rdma/cm/agent -run TestWorld -seeds=10000
//	go test ./rdma/cm/agent -run TestWorld -seed=4711 -v
func TestWorld(t *testing.T) {
	t.Parallel()
	if *oneSeed != 0 {
		w := newWorld(*oneSeed)
		if testing.Verbose() {
			t.Log(w.describe())
			w.trace = func(line string) { fmt.Println(line) }
		}
		if err := w.run(); err != nil {
			t.Fatal(err)
		}
		return
	}
	seeds := append([]uint64{}, foundSeeds...)
	for i := range seedsOf() {
		seeds = append(seeds, *firstSeed+uint64(i))
	}
	var next atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	var sum tally
	failures := 0
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(seeds) {
					return
				}
				w := newWorld(seeds[i])
				err := w.run()
				mu.Lock()
				if err != nil {
					if failures++; failures <= 10 {
						t.Errorf("seed %d (%s): %v\nreplay: go test ./rdma/cm/agent -run '^TestWorld$' -seed=%d -v", seeds[i], w.describe(), err, seeds[i])
					}
				}
				sum.add(&w.tally)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("%d seeds, %d failed: %+v", len(seeds), failures, sum)
	if len(seeds) >= 300 && (sum.Established == 0 || sum.Rejected == 0 || sum.Unreachable == 0 || sum.Resolved == 0 ||
		sum.Stale == 0 || sum.Timeouts == 0 || sum.Deaths == 0) {
		t.Errorf("the worlds do not play everything: %+v", sum)
	}
}

func (t *tally) add(o *tally) {
	t.Attempts += o.Attempts
	t.Established += o.Established
	t.Rejected += o.Rejected
	t.Unreachable += o.Unreachable
	t.Disconnected += o.Disconnected
	t.Timeouts += o.Timeouts
	t.Resolved += o.Resolved
	t.Lost += o.Lost
	t.Doubled += o.Doubled
	t.Deaths += o.Deaths
	t.Stale += o.Stale
}

// TestWorldReplays: a seed gives the same run twice, or a failure could not be
// replayed.
func TestWorldReplays(t *testing.T) {
	t.Parallel()
	for seed := uint64(1); seed <= 10; seed++ {
		a, b := newWorld(seed), newWorld(seed)
		errA, errB := a.run(), b.run()
		if a.tally != b.tally || a.now != b.now || fmt.Sprint(errA) != fmt.Sprint(errB) {
			t.Errorf("seed %d: first %+v %v, then %+v %v", seed, a.tally, errA, b.tally, errB)
		}
	}
}
