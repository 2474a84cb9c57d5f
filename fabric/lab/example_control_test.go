package lab_test

import (
	"context"
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/fabric/lab"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// byEighths is a window that grows by a packet after each round trip of less
// than 30 µs, and else gives an eighth of itself away. What it does not say
// itself it has from a window that never changes.
type byEighths struct {
	*cc.Static
	bytes int
}

func (w *byEighths) Limit() cc.Limit {
	l := w.Static.Limit()
	l.Bytes = w.bytes
	return l
}

func (w *byEighths) Acked(_ clock.Time, f *cc.Flight, _ uint64) bool {
	switch {
	case f.Sample == 0: // no round trip was measured
		return false
	case f.Sample < 30*time.Microsecond:
		w.bytes = min(w.bytes+f.Packet, 1<<20)
	default:
		w.bytes = max(w.bytes*7/8, 2*f.Packet)
	}
	return true
}

// A congestion control of one's own drives the queue pairs of a scenario.
func ExampleAdapter_controller() {
	s := lab.Scenario{
		Until: 10_000 * lab.Microsecond, Warm: 5_000 * lab.Microsecond,
		Network: lab.Network{Topology: "star", Hosts: 9},
		Adapter: lab.Adapter{Controller: func() cc.Controller {
			bounds := cc.Config{MaxBytes: 1 << 20, MaxPSNs: 4096}
			return &byEighths{cc.NewStatic(0, bounds), 64 << 10}
		}},
		Traffic: []lab.Traffic{{Kind: "incast", Senders: 8}},
	}
	r, err := lab.Run(context.Background(), s)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, sum, jain := r.Rates()
	fmt.Println("95 % of the link:", sum > 95*lab.Gbps, "fair:", jain > 0.95)
	fmt.Println("longest queue since then below 500 KB:", r.Queues[0].Max < 500_000)
	// Output:
	// 95 % of the link: true fair: true
	// longest queue since then below 500 KB: true
}
