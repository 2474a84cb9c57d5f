package adapter

import (
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/ib"
)

// Tasks run at their times, those of one time in order, and may post; what the
// engine waits for is not forgotten meanwhile.
func TestTasks(t *testing.T) {
	t.Parallel()
	a := starOf(t, 2, 0, network.Switch{}, Config{}, 1, nil)
	x, _ := mustConnect(t, a, 0, 1, Connection{})
	h := x.Host()
	var got []event.Time
	note := func() { got = append(got, h.Now()) }
	h.At(5*event.Microsecond, note)
	h.At(3*event.Microsecond+1, func() {
		note()
		h.At(0, note) // now, rounded up
		must(t, x.Post(Request{Op: ib.OpWrite, Bytes: 1 << 20, Done: func(Completion) { h.At(h.Now()+event.Millisecond, note) }}))
	})
	h.At(5*event.Microsecond, note)
	settle(t, a)
	a.Network().Run(10 * event.Millisecond)
	if len(got) != 5 || !slices.IsSorted(got) || got[0] != 3*event.Microsecond+event.Nanosecond || got[1] != got[0] || got[2] != 5*event.Microsecond || got[3] != got[2] || got[4] < event.Millisecond {
		t.Errorf("they ran at %v", got)
	}
}

// A queue pair with a rate sends at it, in both directions.
func TestRateOfConnection(t *testing.T) {
	t.Parallel()
	a := starOf(t, 2, 0, network.Switch{}, Config{}, 1, nil)
	x, _ := mustConnect(t, a, 0, 1, Connection{Rate: 10_000_000})
	const bytes = 1 << 20
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
		var took event.Time
		must(t, x.Post(Request{Op: op, Bytes: bytes, Done: func(c Completion) { took = c.End - c.Start }}))
		settle(t, a)
		if ideal := event.Time(bytes * 8 * 100); took < ideal || took > ideal*11/10 {
			t.Errorf("%v takes %v, and at 10 Gb/s %v", op, took, ideal)
		}
	}
}
