package report

import (
	"fmt"
	"math"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/stats"
)

// Target is something to be reached: a ratio of two cells that took turns, or a
// figure of one.
type Target struct {
	What    string
	Against string                            // what it is compared with, or the unit of an absolute figure
	Cell    string                            // name of the cell
	Peer    string                            // name of the cell to divide by; "" for an absolute figure
	Scale   float64                           // the peer's value counts so many times; 0 = once
	AtMost  bool                              // the bound is an upper one
	Bound   float64                           // 0 = none: only compared
	figure  func(rows Rows) (float64, string) // computes the figure instead; the text says why there is none
}

// Rows are the rows of a run by the name of their cell.
type Rows map[string]*cell.Row

// Targets returns all that is to be reached, in the order of the report.
func Targets() []Target {
	const (
		iperf, raw = "iperf3 TCP, one stream", "the raw limit"
		spin, ucx  = "raw UDP, spinning", "UCX tcp put"
		icrc       = "the raw limit with the product's ICRC"
		rxe        = "rxe to rxe within that guest"
		far        = "rxe of another guest to that guest"
	)
	all := []Target{
		{What: "WRITE 1 MiB", Against: iperf, Cell: "ours/write/1MiB", Peer: "iperf3/tcp", Bound: 1.25},
		{What: "SEND 1 MiB", Against: iperf, Cell: "ours/send/1MiB", Peer: "iperf3/tcp", Bound: 1.25},
		{What: "WRITE 1 MiB", Against: raw, Cell: "ours/write/1MiB", Peer: "raw/4140", Bound: 0.75},
		{What: "SEND 1 MiB", Against: raw, Cell: "ours/send/1MiB", Peer: "raw/4140", Bound: 0.75},
		{What: "WRITE 1 MiB", Against: icrc, Cell: "ours/write/1MiB", Peer: "raw/4140/icrc"},
		{What: "READ 1 MiB", Against: iperf, Cell: "ours/read/1MiB", Peer: "iperf3/tcp", Bound: 1.1},
		{What: "WRITE, both directions", Against: "iperf3 --bidir, sum", Cell: "ours/write/1MiB/both", Peer: "iperf3/bidir", Bound: 1},
		{What: "SEND, both directions", Against: "iperf3 --bidir, sum", Cell: "ours/send/1MiB/both", Peer: "iperf3/bidir", Bound: 1},
		{What: "WRITE, path MTU 1024", Against: raw + " at 1064", Cell: "ours/write/1MiB/mtu=1024", Peer: "raw/1064", Bound: 0.75},
		{What: "SEND, path MTU 1024", Against: raw + " at 1064", Cell: "ours/send/1MiB/mtu=1024", Peer: "raw/1064", Bound: 0.75},
		{What: "WRITE 8 B, 1 QP", Against: "Mmsg/s", Cell: "ours/write/8B/qps=1", Bound: 4},
		{What: "WRITE 8 B, 16 QPs", Against: "Mmsg/s", Cell: "ours/write/8B/qps=16", Bound: 4},
		{What: "WRITE 8 B, 1 QP", Against: ucx, Cell: "ours/write/8B/qps=1", Peer: "ucx/put_rate/8B", Bound: 5},
		{What: "WRITE 8 B, 16 QPs", Against: ucx, Cell: "ours/write/8B/qps=16", Peer: "ucx/put_rate/8B", Bound: 5},
		{What: "SEND 8 B, 1 QP", Against: "UCX tcp active messages", Cell: "ours/send/8B/qps=1", Peer: "ucx/am_rate/8B"},
		{What: "SEND 1 MiB, one at a time", Against: "libfabric udp;ofi_rxd, likewise", Cell: "ours/send/1MiB/pingpong", Peer: "fabric/rxd/1MiB"},
		{What: "SEND 1 MiB, one at a time", Against: "libfabric tcp, likewise", Cell: "ours/send/1MiB/pingpong", Peer: "fabric/tcp/1MiB"},
		{What: "SEND latency", Against: spin, Cell: "ours/send/lat", Peer: "raw/rtt/spin", AtMost: true, Bound: 1.3},
		{What: "WRITE latency", Against: spin, Cell: "ours/write/lat", Peer: "raw/rtt/spin", AtMost: true, Bound: 1.3},
		{What: "SEND latency", Against: ucx, Cell: "ours/send/lat", Peer: "ucx/put_lat/8B", AtMost: true, Bound: 0.7},
		{What: "WRITE latency", Against: ucx, Cell: "ours/write/lat", Peer: "ucx/put_lat/8B", AtMost: true, Bound: 0.7},
		{What: "READ latency", Against: spin + ", round trip", Cell: "ours/read/lat", Peer: "raw/rtt/spin", Scale: 2, AtMost: true, Bound: 1.6},
		{What: "atomic latency", Against: spin + ", round trip", Cell: "ours/atomic/lat", Peer: "raw/rtt/spin", Scale: 2, AtMost: true, Bound: 1.6},
		{What: "SEND latency, event mode", Against: "raw UDP, blocking", Cell: "ours/send/lat/event", Peer: "raw/rtt/block", AtMost: true, Bound: 1.5},
		{What: "idle, 1000 connected QPs", Against: cell.Percent, Cell: "ours/idle/qps=1000", AtMost: true, Bound: 0.5},
		{What: "10000 QPs in turn", Against: "10 QPs in turn", Cell: "ours/write/4KiB/qps=10000/rr", Peer: "ours/write/4KiB/qps=10/rr", Bound: 0.8},
		{What: "memory of an idle connected QP beyond its queues", Against: "B", AtMost: true, Bound: 4096, figure: memory},
		{What: "look-up among 1 million regions", Against: "among 10", Cell: "ours/lookup/mrs=1000000", Peer: "ours/lookup/mrs=10", AtMost: true, Bound: 1.25},
		{What: "WRITE 8 B with 1 million regions", Against: "with 10", Cell: "ours/write/8B/mrs=1000000", Peer: "ours/write/8B/mrs=10", Bound: 0.9},
		{What: "WRITE 1 MiB at 0.1 % loss", Against: "loss-free, link wrapped alike", Cell: "ours/write/1MiB/loss=0.1%", Peer: "ours/write/1MiB/loss=0%", Bound: 0.8},
		{What: "WRITE to rxe in the guest", Against: rxe, Cell: "kernel/write/ours-to-rxe", Peer: "kernel/write/rxe-to-rxe", Bound: 1},
		{What: "WRITE to rxe in the guest", Against: far, Cell: "kernel/write/ours-to-rxe", Peer: "kernel/write/guest-to-rxe", Bound: 1},
		{What: "READ from rxe in the guest", Against: far, Cell: "kernel/read/ours-to-rxe", Peer: "kernel/read/guest-to-rxe", Bound: 1},
		{What: "READ from rxe in the guest", Against: rxe, Cell: "kernel/read/ours-to-rxe", Peer: "kernel/read/rxe-to-rxe", Bound: 1},
		{What: "heap objects per 8-byte WRITE", Against: "both sides together", AtMost: true, Bound: 0.001, figure: allocations("ours/write/8B/qps=1")},
		{What: "heap objects per 8-byte SEND", Against: "both sides together", AtMost: true, Bound: 0.001, figure: allocations("ours/send/8B/qps=1")},
		{What: "heap objects per 8-byte READ", Against: "both sides together", AtMost: true, Bound: 0.001, figure: allocations("ours/read/8B/qps=1")},
	}
	return append(all, faces()...)
}

// memory extrapolates to queues without entries: m(16) - 16·(m(32)-m(16))/16.
func memory(rows Rows) (float64, string) {
	a, b := rows["ours/memory/depth=16"], rows["ours/memory/depth=32"]
	for _, r := range []*cell.Row{a, b} {
		if !r.OK() {
			return 0, absent(r)
		}
	}
	return 2*a.Median - b.Median, ""
}

func allocations(name string) func(Rows) (float64, string) {
	return func(rows Rows) (float64, string) {
		r := rows[name]
		if !r.OK() {
			return 0, absent(r)
		}
		return r.Extra["active_allocs_per_msg"] + r.Extra["passive_allocs_per_msg"], ""
	}
}

func absent(r *cell.Row) string {
	switch {
	case r == nil:
		return "not measured"
	case r.Skipped != "":
		return "skipped: " + r.Skipped
	case r.Failed != "":
		return r.Name + " failed: " + r.Failed
	}
	return "no samples"
}

// Verdict is what became of a target.
type Verdict struct {
	Target
	Measured float64 // the ratio or figure; NaN if there is none
	Min, Max float64 // of the ratios of single rounds
	Why      string  // why there is none
	Met      bool
}

// Judge compares the rows with the target. The ratio of two cells is the median
// of the ratios of each round.
func (t Target) Judge(rows Rows) Verdict {
	v := Verdict{Target: t, Measured: math.NaN()}
	switch {
	case t.figure != nil:
		n, why := t.figure(rows)
		if v.Why = why; why != "" {
			return v
		}
		v.Measured, v.Min, v.Max = n, n, n
	case t.Peer == "":
		r := rows[t.Cell]
		if !r.OK() {
			v.Why = absent(r)
			return v
		}
		v.Measured, v.Min, v.Max = r.Median, r.Min, r.Max
	default:
		a, b := rows[t.Cell], rows[t.Peer]
		for _, r := range []*cell.Row{a, b} {
			if !r.OK() {
				v.Why = absent(r)
				return v
			}
		}
		ratios := stats.Ratios(a.Values(), b.Values())
		if len(ratios) == 0 {
			v.Why = "no round has both"
			return v
		}
		if t.Scale != 0 {
			for i := range ratios {
				ratios[i] /= t.Scale
			}
		}
		s := stats.Of(ratios)
		v.Measured, v.Min, v.Max = s.Median, s.Min, s.Max
	}
	v.Met = v.Measured >= t.Bound
	if t.AtMost {
		v.Met = v.Measured <= t.Bound
	}
	return v
}

// bound formats what is asked for.
func (t Target) bound() string {
	sign := "≥"
	if t.AtMost {
		sign = "≤"
	}
	if t.Bound == 0 {
		return "—"
	}
	return fmt.Sprintf("%s %s%s", sign, number(t.Bound), t.times())
}

func (t Target) times() string {
	if t.Peer != "" {
		return " ×"
	}
	return ""
}

// Result formats the verdict's figure and says whether the target was met.
func (v *Verdict) Result() (figure, met string) {
	if v.Why != "" {
		return "—", v.Why
	}
	figure = number(v.Measured) + v.times()
	if v.Min != v.Max {
		figure += fmt.Sprintf(" (%s … %s)", number(v.Min), number(v.Max))
	}
	if v.Bound == 0 {
		return figure, ""
	}
	if v.Met {
		return figure, "met"
	}
	return figure, "**not met**"
}
