package network

import (
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/gosoftroce/rocev2/fabric/cores"
	"github.com/gosoftroce/rocev2/fabric/event"
)

// newWindows returns parts without a network: nothing but their queues.
func newWindows(t *testing.T, parts int) *windows {
	t.Helper()
	w := new(windows)
	w.begin()
	for i := range parts {
		q, err := event.NewQueue(4)
		if err != nil {
			t.Fatal(err)
		}
		w.all = append(w.all, &part{windows: w, number: i, q: q, inside: -1, out: make([]outlet, parts), often: event.Never})
	}
	return w
}

// Parts run in rounds. After each, what was sent is told up to where all have
// come, in the order of events, and not by parts; and no part runs.
func TestWindowTellsInOrder(t *testing.T) {
	w := newWindows(t, 3)
	for _, a := range w.all {
		a.q.Schedule(0, 5)
	}
	var ran []int
	var told []Time
	var rounds [][]Time
	w.parallel = func(parts int, turn func(int)) {
		rounds = append(rounds, told)
		told = nil
		for i := parts - 1; i >= 0; i-- {
			ran = append(ran, i)
			a := w.all[i]
			if len(rounds) > 1 || i == 2 { // the others have not come so far
				a.q.NextBefore(w.until)
			}
			if len(rounds) > 1 && i == 2 {
				continue
			}
			for at := range Time(3) {
				a.seen = append(a.seen, sighting{event.BeforeTime(3*at + Time(i)), Sight{At: 3*at + Time(i)}})
			}
			if len(rounds) == 1 && i < 2 {
				a.seen = a.seen[:1]
			} else if i < 2 {
				a.seen = append(a.seen[:0], a.seen[1:]...)
			}
		}
		if !w.apart {
			t.Error("the parts run, and no round seems to be under way")
		}
	}
	w.play(event.BeforeTime(100), func(s Sight) { told = append(told, s.At) })
	rounds = append(rounds, told)
	if want := [][]Time{nil, {0, 1, 2}, {3, 4, 5, 6, 7, 8}}; !slices.EqualFunc(rounds, want, slices.Equal) {
		t.Errorf("told of %v, want %v", rounds, want)
	}
	if !slices.Equal(ran, []int{2, 1, 0, 2, 1, 0}) || w.apart {
		t.Errorf("ran %v, under way: %v", ran, w.apart)
	}
}

// The first event of all parts is one that is pending.
func TestFirstOfAllParts(t *testing.T) {
	w := newWindows(t, 2)
	if first := w.first(); first != event.Never || w.pending(event.BeforeTime(event.Never)) {
		t.Errorf("the first event of none is at %v", first)
	}
	w.all[1].q.Schedule(0, 30)
	if first := w.first(); first != 30 || w.pending(event.BeforeTime(30)) || !w.pending(event.BeforeTime(31)) {
		t.Errorf("the first event is at %v, want 30", first)
	}
	w.advance(25)
	for _, a := range w.all {
		if a.q.Now() != 25 {
			t.Errorf("part %d is at %v, want 25", a.number, a.q.Now())
		}
	}
}

// A window ends where the first thing may come that another part sends: each
// has its own clock, and its own shortest cable to here.
func TestLimit(t *testing.T) {
	w := newWindows(t, 3)
	w.join(0, 2, 50)
	w.join(1, 2, 1000)
	w.join(0, 2, 20)
	a := w.all[2]
	for _, c := range []struct{ first, second, want Time }{{0, 0, 20}, {100, 0, 120}, {990, 0, 1000}, {5000, 4021, 5020}, {event.Never, event.Never, event.Never}} {
		w.all[0].clock.at.Store(int64(c.first))
		w.all[1].clock.at.Store(int64(c.second))
		if got, _ := a.limit(); got != c.want {
			t.Errorf("clocks at %v and %v: up to %v, want %v", c.first, c.second, got, c.want)
		}
	}
	if got, _ := w.all[0].limit(); got != event.Never {
		t.Errorf("to part 0 nothing comes, and its limit is %v", got)
	}
	if w.lookahead != 20 {
		t.Errorf("the least delay is %v", w.lookahead)
	}
}

// Each part is looked at once, and a host cannot ask for that.
func TestApart(t *testing.T) {
	t.Parallel()
	k := cores.New(2)
	defer k.Close()
	n := inParts(t, k.Do)
	var looked [2]int
	n.Apart(func(part int) { looked[part]++ })
	if looked != [2]int{1, 1} {
		t.Errorf("looked %v times", looked)
	}
	n.Attach(3, teller{f: func(Time) { n.Apart(func(int) {}) }})
	n.SetTimer(3, event.Microsecond)
	if got := panicsWith(func() { n.Run(event.Second) }); !strings.Contains(got, "Apart while hosts") {
		t.Error(got)
	}
}

// What nodes of several parts write to is not in one cache line.
func TestCacheLines(t *testing.T) {
	for what, size := range map[string]uintptr{"link": unsafe.Sizeof(link{}), "host": unsafe.Sizeof(host{})} {
		if size%64 != 0 && unsafe.Sizeof(uintptr(0)) == 8 {
			t.Errorf("a %s has %d bytes", what, size)
		}
	}
}

// What is about the whole network must not be asked for while parts run.
func TestTogether(t *testing.T) {
	w := newWindows(t, 2)
	w.together("Now")
	w.apart = true
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	w.together("Now")
}
