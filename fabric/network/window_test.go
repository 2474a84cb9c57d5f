package network

import (
	"slices"
	"testing"

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
		a := &part{windows: w, number: i, q: q, first: event.Never, inside: -1}
		a.out[0], a.out[1] = make([]box, parts), make([]box, parts)
		w.all = append(w.all, a)
	}
	return w
}

// A window is run by all parts. Then what was sent is told, in the order of
// events, and not by parts; and no part runs.
func TestWindowTellsInOrder(t *testing.T) {
	w := newWindows(t, 3)
	var ran []int
	w.parallel = func(parts int, turn func(int)) {
		for i := parts - 1; i >= 0; i-- {
			turn(i)
			ran = append(ran, i)
			for at := range Time(3) {
				w.all[i].seen = append(w.all[i].seen, sighting{event.BeforeTime(10*at + Time(i)), Sight{At: 10*at + Time(i)}})
			}
		}
		if !w.apart {
			t.Error("the parts run, and the window does not seem open")
		}
	}
	between := 0
	w.between = append(w.between, func() { between++ })
	var told []Time
	w.open(event.BeforeTime(100), func(s Sight) { told = append(told, s.At) })
	if want := []Time{0, 1, 2, 10, 11, 12, 20, 21, 22}; !slices.Equal(told, want) {
		t.Errorf("told of %v, want %v", told, want)
	}
	if !slices.Equal(ran, []int{2, 1, 0}) || between != 1 || w.apart {
		t.Errorf("ran %v, %d times between, open: %v", ran, between, w.apart)
	}
}

// The first event of all parts is one that is pending, or one that arrives.
func TestFirstOfAllParts(t *testing.T) {
	w := newWindows(t, 2)
	if first := w.first(); first != event.Never {
		t.Errorf("the first event of none is at %v", first)
	}
	w.all[1].q.Schedule(0, 30)
	if first := w.first(); first != 30 {
		t.Errorf("the first event is at %v, want 30", first)
	}
	w.all[0].first = 20
	if first := w.first(); first != 20 {
		t.Errorf("what arrives first does so at %v, want 20", first)
	}
	w.exchange()
	if first := w.first(); first != 30 {
		t.Errorf("after the exchange the first event is at %v, want 30", first)
	}
	w.advance(25)
	for _, a := range w.all {
		if a.q.Now() != 25 {
			t.Errorf("part %d is at %v, want 25", a.number, a.q.Now())
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
