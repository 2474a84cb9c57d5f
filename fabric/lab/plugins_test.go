package lab

import (
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/gosoftroce/rocev2/fabric/adapter"
	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// This file has two congestion controls that the product does not have, as
// examples of how one is written: what a law does not say itself it has from
// the controller that it stands around.

// dctcp is DCTCP (Alizadeh et al., SIGCOMM 2010; RFC 8257) by notifications:
// the receiver sends one for each marked packet, and their share in a window
// says by how much that becomes smaller. 1 is 2^20.
type dctcp struct {
	*cc.Static
	size, most int
	alpha      uint32
	marked     uint64 // bytes
	acked      uint64
	end        uint64 // of the window that is looked at
	slow       bool   // no mark yet: it doubles
}

func newDCTCP(most int) *dctcp {
	return &dctcp{Static: cc.NewStatic(most, cc.Config{MaxBytes: most, MaxPSNs: 1 << 12}), size: 64 << 10, most: most, slow: true}
}

// Limit implements cc.Controller.
func (d *dctcp) Limit() cc.Limit {
	l := d.Static.Limit()
	l.Bytes = d.size
	return l
}

// Marked implements cc.Controller.
func (d *dctcp) Marked(_ clock.Time, f *cc.Flight, _ cc.Mark) bool {
	d.marked += uint64(f.Packet)
	d.slow = false
	return false
}

// Acked implements cc.Controller.
func (d *dctcp) Acked(_ clock.Time, f *cc.Flight, n uint64) bool {
	size := d.size
	const shift = 4 // g is 1/16
	d.acked += n
	if d.slow {
		d.size = min(d.size+int(n), d.most)
	}
	if f.Una >= d.end { // a round trip
		share := uint32(min(d.marked<<20/max(d.acked, 1), 1<<20))
		d.alpha += share>>shift - d.alpha>>shift
		if d.marked > 0 {
			d.size -= int(uint64(d.size) * uint64(d.alpha) >> 21)
		} else if !d.slow {
			d.size += f.Packet
		}
		d.size = min(max(d.size, 2*f.Packet), d.most)
		d.marked, d.acked, d.end = 0, 0, f.Next
	}
	return d.size != size
}

// byDelay keeps the round trip at a target: it grows by a packet in each that
// is shorter, and gives way in proportion to what is beyond, once in each
// (after Kumar et al., "Swift", SIGCOMM 2020). No switch needs to mark. Where
// the window falls below a packet it paces; here it does not come to that.
type byDelay struct {
	*cc.Static
	size, most int
	target     time.Duration
	end        uint64
}

func newByDelay(most int, target time.Duration) *byDelay {
	return &byDelay{Static: cc.NewStatic(most, cc.Config{MaxBytes: most, MaxPSNs: 1 << 12}), size: 64 << 10, most: most, target: target}
}

// Limit implements cc.Controller.
func (d *byDelay) Limit() cc.Limit {
	l := d.Static.Limit()
	l.Bytes = d.size
	return l
}

// Acked implements cc.Controller.
func (d *byDelay) Acked(_ clock.Time, f *cc.Flight, _ uint64) bool {
	size := d.size
	if f.Una >= d.end && f.RTT > 0 {
		if f.RTT <= d.target {
			d.size += f.Packet
		} else { // by 0.8 of the excess, at most by half
			d.size -= int(min(int64(d.size)*int64(f.RTT-d.target)*4/5/int64(f.RTT), int64(d.size/2)))
		}
		d.size = min(max(d.size, 2*f.Packet), d.most)
		d.end = f.Next
	}
	return d.size != size
}

// TestPlugins: congestion controls from outside drive queue pairs without a
// change in them. Eight senders meet at 40 Gb/s.
func TestPlugins(t *testing.T) {
	t.Parallel()
	const senders, message, most = 8, 256 << 10, 1 << 20
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "law\tsum Gb/s\tJain\tmean queue\tlongest\tmarks\tCNPs\tdigest\t\n")
	for _, law := range []struct {
		name    string
		control func() cc.Controller
		red     network.RED
	}{
		{"DCTCP", func() cc.Controller { return newDCTCP(most) }, network.RED{Kmin: 120_000, Kmax: 120_001, Pmax: 1e6}},
		{"delay", func() cc.Controller { return newByDelay(most, 30*time.Microsecond) }, network.RED{}},
		{"static", func() cc.Controller { return cc.NewStatic(most, cc.Config{MaxBytes: most, MaxPSNs: 1 << 12}) }, network.RED{}},
	} {
		profile := topology.DCQCN().Marking(law.red)
		g, err := topology.Star(senders+1, topology.Cable{Rate: 40 * topology.Gbps, Delay: int64(event.Microsecond)})
		must(t, err)
		a := adaptersOn(t, g, topology.Plan{Profile: profile, Seed: 3}, adapter.Config{NotifyInterval: -1, Window: qp.WindowConfig{MaxBytes: most}})
		got := make([]int64, senders)
		for i := range senders {
			x, _, err := a.Connect(i+1, 0, adapter.Connection{MTU: rocev2.MTU1024, TrafficClass: profile.RoCE<<2 | network.ECT0, Congestion: law.control})
			must(t, err)
			var post func(adapter.Completion)
			post = func(adapter.Completion) {
				if a.Now() > 5*event.Millisecond {
					got[i] += message
				}
				must(t, x.Post(adapter.Request{Op: ib.OpWrite, Bytes: message, Done: post}))
			}
			for range 4 {
				must(t, x.Post(adapter.Request{Op: ib.OpWrite, Bytes: message, Done: post}))
			}
		}
		port := a.Network().Port(senders+1, 0)
		a.Network().Run(5 * event.Millisecond)
		a.Network().ResetMax()
		area := port.Area()
		a.Network().Run(25 * event.Millisecond)
		mean, longest := scaled(port.Area()-area, 1<<20, uint64(20*event.Millisecond)), port.Queues().MaxBytes
		var sum, squares float64
		for _, n := range got {
			sum += float64(n)
			squares += float64(n) * float64(n)
		}
		jain, rate, st := sum*sum/(senders*squares), sum*8/20e-3/1e9, a.Stats()
		fmt.Fprintf(w, "%s\t%.2f\t%.4f\t%.1f KB\t%.0f KB\t%d\t%d\t%016x\t\n", law.name, rate, jain, float64(mean)/1e3, float64(longest)/1e3,
			a.Network().Totals().Marks, st.CNPsReceived, a.Network().Digest())
		if rate < 36 || jain < .98 || st.Retransmits > 0 {
			t.Errorf("%s: %.2f Gb/s, Jain %.4f, %d packets sent again", law.name, rate, jain, st.Retransmits)
		}
		if law.name != "static" && mean > 200_000 {
			t.Errorf("%s: a mean queue of %d", law.name, mean)
		}
	}
	w.Flush()
	golden(t, "plugins", b.String())
}
