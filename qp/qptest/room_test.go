package qptest

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

// TestInFlightBeyondRoom: where much more is in flight than is kept after a
// gap, here or at the peer, as other queue pairs need the room, what was not
// kept goes again as soon as the gap is closed. Nothing waits for a probe.
func TestInFlightBeyondRoom(t *testing.T) {
	t.Parallel()
	for _, room := range []int{2 << 20, 6 << 20} {
		for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
			rate := func(loss float64) float64 {
				f, err := newFlood(op, rocev2.MTU1024, floodParams{loss: loss, own: true, probe: time.Millisecond, delay: 2e6, line: 25e9,
					size: 1 << 20, total: 200_000, window: qp.WindowConfig{MaxBytes: 16 << 20, MaxPSNs: 1 << 15}})
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range f.endpoint {
					e.SetReorder(qp.MakePool(qp.PoolConfig{Limit: room}))
				}
				rate, err := f.run()
				if err != nil {
					t.Error(err)
				}
				if s := f.endpoint[0].Stats(); s.Timeouts > 0 || s.Probes > 1 {
					t.Errorf("%v, %d bytes of room: %d probes, %d timeouts", op, room, s.Probes, s.Timeouts)
				}
				return rate / 1e9
			}
			if without, with := rate(0), rate(2e-5); with < 0.75*without {
				t.Errorf("%v, %d bytes of room: %.1f Gb/s, without loss %.1f", op, room, with, without)
			}
		}
	}
}
