package cores

import (
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Each call is made once in a round, and Do returns when all have returned.
func TestDo(t *testing.T) { // not parallel: it changes GOMAXPROCS
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, threads := range []int{1, 2} {
		runtime.GOMAXPROCS(threads)
		for _, n := range []int{1, 2, 5} {
			c := New(n)
			calls := make([]int, n)
			for round := range 500 {
				some := 1 + round%n
				c.Do(some, func(i int) {
					calls[i]++
					if round%97 == i {
						runtime.Gosched()
					}
				})
				sum := 0
				for _, n := range calls {
					sum += n
				}
				if want := (round/n)*n*(n+1)/2 + some*(some+1)/2; sum != want {
					t.Fatalf("%d threads, %d calls, round %d: %v, %d in all, want %d", threads, n, round, calls, sum, want)
				}
			}
			c.Close()
		}
	}
}

var errTest = errors.New("a test")

// boom is a name to be found in a stack.
func boom() { panic(errTest) }

// A panic on another goroutine reaches the caller with its stack, when the
// other calls have returned. Another round can follow.
func TestPanic(t *testing.T) {
	t.Parallel()
	c := New(3)
	defer c.Close()
	for round := range 3 {
		var returned atomic.Int32
		func() {
			defer func() {
				err, _ := recover().(error)
				var p *Panic
				if round < 2 && (!errors.As(err, &p) || p.Call != 1+round || !strings.Contains(err.Error(), "cores.boom") || !errors.Is(err, errTest)) {
					t.Errorf("round %d: %v", round, err)
				}
				if round == 2 && err != errTest {
					t.Errorf("of the caller's own call: %v", err)
				}
			}()
			c.Do(3, func(i int) {
				if i == (round+1)%3 {
					boom()
				}
				returned.Add(1)
			})
		}()
		if returned.Load() != 2 {
			t.Errorf("%d of the other calls have returned", returned.Load())
		}
	}
	c.Do(3, func(int) {})
}

// A call that ends its goroutine, as t.FailNow does, ends that of Do.
func TestGoexit(t *testing.T) {
	t.Parallel()
	for gone := range 2 {
		c := New(2)
		ended := make(chan bool)
		go func() {
			defer close(ended)
			c.Do(2, func(i int) {
				if i == gone {
					runtime.Goexit()
				}
			})
			ended <- true
		}()
		if <-ended {
			t.Errorf("call %d has ended its goroutine, and Do returned", gone)
		}
		if gone == 1 {
			func() {
				defer func() {
					if recover() == nil {
						t.Error("a round with a goroutine less")
					}
				}()
				c.Do(2, func(int) {})
			}()
		}
		c.Close()
	}
}

// Two calls of a round panic: Do reports one of them, and the next round does
// not report the other one.
func TestTwoPanics(t *testing.T) {
	t.Parallel()
	c := New(4)
	defer c.Close()
	func() {
		defer func() {
			if p, _ := recover().(*Panic); p == nil || p.Call != 1 {
				t.Errorf("%v", p)
			}
		}()
		c.Do(4, func(i int) {
			if i > 0 {
				boom()
			}
		})
	}()
	c.Do(4, func(int) {})
}

// No calls are none, and not one.
func TestNoCalls(t *testing.T) {
	t.Parallel()
	c := New(2)
	defer c.Close()
	c.Do(0, func(i int) { t.Errorf("call %d of none", i) })
}

// After Close there is no worker to call: Do panics.
func TestDoAfterClose(t *testing.T) {
	t.Parallel()
	c := New(2)
	c.Do(2, func(int) {})
	c.Close()
	c.Close()
	defer func() {
		if recover() == nil {
			t.Error("a round after Close")
		}
	}()
	c.Do(2, func(int) {})
}

func TestTooManyCalls(t *testing.T) {
	t.Parallel()
	c := New(0)
	defer c.Close()
	c.Do(1, func(int) {})
	defer func() {
		if recover() == nil {
			t.Error("two calls of one")
		}
	}()
	c.Do(2, func(int) {})
}

func TestDoAllocatesNothing(t *testing.T) {
	c := New(2)
	defer c.Close()
	f := func(int) {}
	if n := testing.AllocsPerRun(1000, func() { c.Do(2, f) }); n != 0 {
		t.Errorf("%v allocations a round", n)
	}
}

// BenchmarkDo is what a round costs where there is nothing to do.
func BenchmarkDo(b *testing.B) {
	c := New(2)
	defer c.Close()
	f := func(int) {}
	for b.Loop() {
		c.Do(2, f)
	}
}

// Goroutines that wait awake let others run: those end the turns.
func TestLongTurns(t *testing.T) { // not parallel: it changes GOMAXPROCS
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	c := New(2)
	defer c.Close()
	var sum atomic.Int64
	for round := range 20 {
		other := make(chan bool)
		c.Do(2-round%2, func(i int) {
			for start := time.Now(); time.Since(start) < 2*longTurn; {
				runtime.Gosched()
			}
			if i == round/2%2 {
				go close(other) // runs while the other one waits
				<-other
			}
			sum.Add(1)
		})
	}
	if sum.Load() != 30 {
		t.Errorf("%d turns", sum.Load())
	}
}

// outcome runs a round on a goroutine of its own, and returns what it panics
// with, or nil, and whether it returns.
func outcome(c *Cores, n int, turn func(int)) (panicked any, returned bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		c.Do(n, turn)
		returned = true
	}()
	<-done
	return panicked, returned
}

// Of several calls that fail the first panic counts, and a panic more than the
// end of a goroutine.
func TestFirstPanicCounts(t *testing.T) {
	t.Parallel()
	const panics, ends = 'p', 'e'
	for calls, want := range map[string]any{"pp.": 0, ".pp": 1, "pe.": 0, "ep.": 1, ".ep": 2, "e..": nil, ".e.": nil} {
		c := New(3)
		got, returned := outcome(c, 3, func(i int) {
			switch calls[i] {
			case panics:
				panic(i)
			case ends:
				runtime.Goexit()
			}
		})
		if p, ok := got.(*Panic); ok {
			got = p.Value
		}
		if got != want || returned {
			t.Errorf("%s: it panics with %v, want %v; returned: %v", calls, got, want, returned)
		}
		c.Close()
	}
}

// Close does not wait for ever for calls that wait for it.
func TestCloseInACall(t *testing.T) {
	t.Parallel()
	c := New(2)
	if got, _ := outcome(c, 2, func(i int) {
		if i == 0 {
			c.Close()
		}
	}); got == nil {
		t.Error("closed while calls run")
	}
	c.Do(2, func(int) {})
	c.Close()
}
