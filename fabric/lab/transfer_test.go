package lab

import (
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/gosoftroce/rocev2/fabric/adapter"
	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

// transfer is a message on a network that has nothing else to do.
type transfer struct {
	rate  int64 // of all cables
	hops  int64 // cables
	op    ib.Opcode
	bytes int64
}

const (
	transferDelay = event.Microsecond
	headers       = 20 + 8 + rocev2.BTHLen + rocev2.ICRCLen // of each packet, from IP on
)

// formula is how long a transfer takes: all its packets one after the other on
// one cable; the first, which is the largest, on each further cable, because
// switches store and forward; and the delays. A SEND or WRITE is complete when
// its acknowledgement is back, a READ when its data has come, for which the
// request went first.
func (c *transfer) formula() event.Time {
	wire := func(bytes int) event.Time {
		return event.Time(int64(network.WireSize(bytes)) * 8 * int64(event.Second) / c.rate)
	}
	const mtu = 4096
	full, rest := int(c.bytes/mtu), int(c.bytes%mtu)
	largest, others := headers+mtu, wire(headers+mtu)*event.Time(full-1)
	switch {
	case full == 0:
		largest, others = headers+rest, 0
	case rest > 0:
		others += wire(headers + rest)
	}
	answer := headers + rocev2.AETHLen // the acknowledgement
	switch c.op {
	case ib.OpWrite:
		largest += rocev2.RETHLen
	case ib.OpRead:
		answer = headers + rocev2.RETHLen // the request
		largest += rocev2.AETHLen
		if others > 0 { // so has the last response
			others += wire(headers+mtu+rocev2.AETHLen) - wire(headers+mtu)
		}
	}
	hops := event.Time(c.hops)
	return others + hops*(wire(largest)+transferDelay) + hops*(wire(answer)+transferDelay)
}

// measured is how long it takes.
func (c *transfer) measured(t *testing.T) (took event.Time) {
	t.Helper()
	cable := topology.Cable{Rate: c.rate, Delay: int64(transferDelay)}
	var g *topology.Graph
	var err error
	switch c.hops {
	case 2:
		g, err = topology.Star(2, cable)
	case 4:
		g, err = topology.LeafSpine{Leaves: 2, Spines: 1, HostsPerLeaf: 1, Host: cable}.Graph()
	default:
		g, err = topology.FatTree(4, cable)
	}
	must(t, err)
	window := qp.WindowConfig{InitialBytes: 64 << 20, MaxBytes: 64 << 20, MaxPSNs: 1 << 14} // more than is ever under way
	a := adaptersOn(t, g, topology.Plan{Profile: deep()}, adapter.Config{Window: window, ReadChunk: -1})
	x, _, err := a.Connect(0, int(g.Hosts())-1, adapter.Connection{})
	must(t, err)
	must(t, x.Post(adapter.Request{Op: c.op, Bytes: uint32(c.bytes), Done: func(d adapter.Completion) {
		if took = d.End - d.Start; d.Status != ib.StatusSuccess {
			t.Errorf("%+v: %v", *c, d.Status)
		}
	}}))
	settled(t, a, event.Second)
	return took
}

// TestTransfer: an unloaded transfer takes what the formula says, within
// 0.5 %. In fact it does to the picosecond.
func TestTransfer(t *testing.T) {
	t.Parallel()
	long(t)
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "Gb/s\tcables\toperation\tbytes\ttime\tformula\tppm more\t\n")
	for _, rate := range []int64{25, 100, 400} {
		for _, hops := range []int64{2, 4, 6} {
			for _, op := range []ib.Opcode{ib.OpWrite, ib.OpSend, ib.OpRead} {
				for _, bytes := range []int64{64, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 16 << 20} {
					c := transfer{rate * topology.Gbps, hops, op, bytes}
					took, want := c.measured(t), c.formula()
					ppm := int64(took-want) * 1_000_000 / int64(want)
					if ppm > 5000 || ppm < -5000 {
						t.Errorf("%+v takes %v, the formula says %v", c, took, want)
					}
					fmt.Fprintf(w, "%d\t%d\t%v\t%d\t%v\t%v\t%d\t\n", rate, hops, op, bytes, took, want, ppm)
				}
			}
		}
	}
	w.Flush()
	golden(t, "transfer", b.String())
}
