package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/grid"
	"github.com/gosoftroce/rocev2/bench/internal/machine"
	"github.com/gosoftroce/rocev2/bench/internal/stats"
)

// Target is something to be reached: a ratio of two cells that took turns, or a
// figure of one.
type Target struct {
	What    string
	Against string                 // what it is compared with, or the unit of an absolute figure
	Cell    string                 // name of the cell
	Peer    string                 // name of the cell to divide by; "" for an absolute figure
	Scale   float64                // the peer's value counts that many times; 0 = once
	AtMost  bool                   // the bound is an upper one
	Bound   float64                // 0 = none: only compared
	figure  func(rows Rows) Figure // computes the figure instead
}

// Figure is what a target's figure computes.
type Figure struct {
	Value, Min, Max float64
	Note            string // what the figure is of
	Why             string // why there is none
}

// Rows are the rows of a run by the name of their cell.
type Rows map[string]*cell.Row

// Targets returns all that is to be reached on a processor, in the order of the
// report.
func Targets(p machine.Processor) []Target {
	return slices.Concat(throughput(), rates(p), latencies(), secured(), scale(), guests(), faces(), programs(), owned())
}

const (
	rawLimit = "the raw limit"
	rawSpin  = "raw UDP, spinning"
	ucxPut   = "UCX tcp put"
	ucxAM    = "UCX tcp active messages"
)

func throughput() []Target {
	const iperf, tool = "iperf3 TCP, one stream", "the same by this program"
	out := []Target{
		{What: "WRITE 1 MiB", Against: rawLimit, Cell: "ours/write/1MiB", Peer: "raw/4140/icrc", Bound: 0.85},
		{What: "SEND 1 MiB", Against: rawLimit, Cell: "ours/send/1MiB", Peer: "raw/4140/icrc", Bound: 0.85},
		{What: "READ 1 MiB", Against: rawLimit, Cell: "ours/read/1MiB", Peer: "raw/4140/icrc", Bound: 0.85},
		{What: "WRITE 1 MiB", Against: "raw UDP, a datagram with each system call", Cell: "ours/write/1MiB", Peer: "raw/4140/single", Bound: 0.5},
		{What: "WRITE, both directions", Against: rawLimit + " in both directions", Cell: "ours/write/1MiB/both", Peer: "raw/4140/icrc/both", Bound: 0.85},
		{What: "SEND, both directions", Against: rawLimit + " in both directions", Cell: "ours/send/1MiB/both", Peer: "raw/4140/icrc/both", Bound: 0.85},
		{What: "WRITE, path MTU 1024", Against: rawLimit + " at 1064", Cell: "ours/write/1MiB/mtu=1024", Peer: "raw/1064/icrc", Bound: 0.8},
		{What: "SEND, path MTU 1024", Against: rawLimit + " at 1064", Cell: "ours/send/1MiB/mtu=1024", Peer: "raw/1064/icrc", Bound: 0.8},
	}
	for _, op := range []string{"write", "send", "read"} {
		out = append(out,
			Target{What: strings.ToUpper(op) + " 16 KiB", Against: "64 KiB", Cell: grid.SizeCell(op, 16<<10), Peer: grid.SizeCell(op, 64<<10), Bound: 0.9},
			Target{What: strings.ToUpper(op) + ", 4 to 256 KiB", Against: "any smaller size, the worst two", Bound: noSlower, figure: dip(op)},
			Target{What: "rocev2 perf " + op + "_bw 16 KiB", Against: "64 KiB", Cell: "perf/" + op + "_bw/16KiB", Peer: "perf/" + op + "_bw/64KiB", Bound: 0.9},
			Target{What: "rocev2 perf " + op + "_bw 1 MiB", Against: tool, Cell: "perf/" + op + "_bw/1MiB", Peer: "ours/" + op + "/1MiB", Bound: 0.95},
		)
	}
	return append(out,
		Target{What: "WRITE 1 MiB", Against: iperf, Cell: "ours/write/1MiB", Peer: "iperf3/tcp"},
		Target{What: "SEND 1 MiB", Against: iperf, Cell: "ours/send/1MiB", Peer: "iperf3/tcp"},
		Target{What: "READ 1 MiB", Against: iperf, Cell: "ours/read/1MiB", Peer: "iperf3/tcp"},
		Target{What: "WRITE, both directions", Against: "iperf3 --bidir, sum", Cell: "ours/write/1MiB/both", Peer: "iperf3/bidir"},
		Target{What: "the raw limit", Against: iperf, Cell: "raw/4140/icrc", Peer: "iperf3/tcp"},
		Target{What: "WRITE 1 MiB", Against: ucxPut, Cell: "ours/write/1MiB", Peer: "ucx/put_bw/1MiB"},
		Target{What: "WRITE 1 MiB", Against: ucxAM, Cell: "ours/write/1MiB", Peer: "ucx/am_bw/1MiB"},
		Target{What: "SEND 1 MiB", Against: ucxAM, Cell: "ours/send/1MiB", Peer: "ucx/am_bw/1MiB"},
		Target{What: "SEND 1 MiB, one at a time", Against: "libfabric udp;ofi_rxd, likewise", Cell: "ours/send/1MiB/pingpong", Peer: "fabric/rxd/1MiB"},
		Target{What: "SEND 1 MiB, one at a time", Against: "libfabric tcp, likewise", Cell: "ours/send/1MiB/pingpong", Peer: "fabric/tcp/1MiB"},
	)
}

func rates(p machine.Processor) []Target {
	write := 4.0
	if p.Vendor == machine.AMD {
		write = 6
	}
	return []Target{
		{What: "WRITE 8 B, 1 QP", Against: "Mmsg/s", Cell: "ours/write/8B/qps=1", Bound: write},
		{What: "WRITE 8 B, 16 QPs", Against: "Mmsg/s", Cell: "ours/write/8B/qps=16", Bound: write},
		{What: "READ 8 B, 1 QP", Against: "Mmsg/s", Cell: "ours/read/8B/qps=1", Bound: 1.5},
		{What: "WRITE 8 B, 1 QP", Against: ucxPut, Cell: "ours/write/8B/qps=1", Peer: "ucx/put_rate/8B", Bound: 5},
		{What: "WRITE 8 B, 16 QPs", Against: ucxPut, Cell: "ours/write/8B/qps=16", Peer: "ucx/put_rate/8B", Bound: 5},
		{What: "SEND 8 B, 1 QP", Against: ucxAM, Cell: "ours/send/8B/qps=1", Peer: "ucx/am_rate/8B"},
	}
}

func latencies() []Target {
	const trip, awake, tool = rawSpin + ", round trip", "the target's program polls", "the same by this program"
	out := []Target{
		{What: "SEND latency", Against: rawSpin, Cell: "ours/send/lat", Peer: "raw/rtt/spin", AtMost: true, Bound: 1.3},
		{What: "WRITE latency", Against: rawSpin, Cell: "ours/write/lat", Peer: "raw/rtt/spin", AtMost: true, Bound: 1.3},
		{What: "READ latency", Against: trip, Cell: "ours/read/lat", Peer: "raw/rtt/spin", Scale: 2, AtMost: true, Bound: 1.3},
		{What: "atomic latency", Against: trip, Cell: "ours/atomic/lat", Peer: "raw/rtt/spin", Scale: 2, AtMost: true, Bound: 1.3},
		{What: "SEND latency, event mode", Against: "raw UDP, blocking", Cell: "ours/send/lat/event", Peer: "raw/rtt/block", AtMost: true, Bound: 1.2},
		{What: "READ latency, the target's program asleep", Against: awake, Cell: "ours/read/lat/parked", Peer: "ours/read/lat", AtMost: true, Bound: 1.15},
		{What: "atomic latency, the target's program asleep", Against: awake, Cell: "ours/atomic/lat/parked", Peer: "ours/atomic/lat", AtMost: true, Bound: 1.15},
		{What: "acknowledged WRITE, the target's program asleep", Against: awake, Cell: "ours/write/ack/lat/parked", Peer: "ours/write/ack/lat", AtMost: true, Bound: 1.15},
	}
	for op, same := range map[string]string{"send": "ours/send/lat", "write": "ours/write/lat", "read": "ours/read/lat/parked", "atomic": "ours/atomic/lat/parked"} {
		out = append(out, Target{What: "rocev2 perf " + op + "_lat", Against: tool, Cell: "perf/" + op + "_lat/8B", Peer: same, AtMost: true, Bound: 1.05})
	}
	slices.SortFunc(out[len(out)-4:], func(a, b Target) int { return strings.Compare(a.What, b.What) })
	return append(out,
		Target{What: "SEND latency", Against: "raw TCP, spinning", Cell: "ours/send/lat", Peer: "tcp/rtt/spin", AtMost: true},
		Target{What: "SEND latency", Against: ucxAM, Cell: "ours/send/lat", Peer: "ucx/am_lat/8B", AtMost: true},
		Target{What: "WRITE latency", Against: ucxPut, Cell: "ours/write/lat", Peer: "ucx/put_lat/8B", AtMost: true, Bound: 0.7},
		Target{What: "SEND latency, event mode", Against: "raw TCP, blocking", Cell: "ours/send/lat/event", Peer: "tcp/rtt/block", AtMost: true},
	)
}

// scale: many queue pairs, many regions, loss, memory.
func scale() []Target {
	return []Target{
		{What: "idle, 1000 connected QPs", Against: cell.Percent, Cell: "ours/idle/qps=1000", AtMost: true, Bound: 0.5},
		{What: "10000 QPs in turn", Against: "10 QPs in turn", Cell: "ours/write/4KiB/qps=10000/rr", Peer: "ours/write/4KiB/qps=10/rr", Bound: 0.8},
		{What: "memory of an idle connected QP beyond its queues", Against: "B", AtMost: true, Bound: 4096, figure: memory},
		{What: "look-up among 1 million regions", Against: "among 10", Cell: "ours/lookup/mrs=1000000", Peer: "ours/lookup/mrs=10", AtMost: true, Bound: 1.25},
		{What: "WRITE 8 B with 1 million regions", Against: "with 10", Cell: "ours/write/8B/mrs=1000000", Peer: "ours/write/8B/mrs=10", Bound: 0.9},
		{What: "WRITE 1 MiB at 0.1 % loss", Against: "loss-free, link wrapped alike", Cell: "ours/write/1MiB/loss=0.1%", Peer: "ours/write/1MiB/loss=0%", Bound: 0.8},
		{What: "heap objects per 8-byte WRITE", Against: "both sides together", AtMost: true, Bound: 0.001, figure: allocations("ours/write/8B/qps=1")},
		{What: "heap objects per 8-byte SEND", Against: "both sides together", AtMost: true, Bound: 0.001, figure: allocations("ours/send/8B/qps=1")},
		{What: "heap objects per 8-byte READ", Against: "both sides together", AtMost: true, Bound: 0.001, figure: allocations("ours/read/8B/qps=1")},
	}
}

// guests: beside kernel rxe.
func guests() []Target {
	const rxe, far = "rxe to rxe within that guest", "rxe of another guest to that guest"
	out := []Target{
		{What: "WRITE to rxe in the guest", Against: rxe, Cell: "kernel/write/ours-to-rxe", Peer: "kernel/write/rxe-to-rxe", Bound: 1},
		{What: "WRITE to rxe in the guest", Against: far, Cell: "kernel/write/ours-to-rxe", Peer: "kernel/write/guest-to-rxe", Bound: 1},
		{What: "READ from rxe in the guest", Against: far, Cell: "kernel/read/ours-to-rxe", Peer: "kernel/read/guest-to-rxe", Bound: 1},
		{What: "READ from rxe in the guest", Against: rxe, Cell: "kernel/read/ours-to-rxe", Peer: "kernel/read/rxe-to-rxe", Bound: 1},
	}
	for _, rtt := range grid.SlowRTTs {
		for _, loss := range grid.SlowLosses[1:] {
			what := fmt.Sprintf("WRITE 1 MiB, 100 Mb/s, %v, %g %% lost, ", rtt, loss*100)
			peer := grid.SlowPath(rtt, loss, "rxe")
			out = append(out,
				Target{What: what + "native peers", Against: "rxe to rxe on that path", Cell: grid.SlowPath(rtt, loss, "write"), Peer: peer, Bound: 1},
				Target{What: what + "go-back-N", Against: "rxe to rxe on that path", Cell: grid.SlowPath(rtt, loss, "write/foreign"), Peer: peer, Bound: 1})
		}
	}
	return out
}

// noSlower is what a size must reach of the rate of any smaller one. What is
// missing to 1 is the noise of the medians.
const noSlower = 0.97

// dip is the worst ratio of a size to a smaller one, between FirstSize and
// LastSize.
func dip(op string) func(Rows) Figure {
	return func(rows Rows) Figure {
		worst := Figure{Value: math.Inf(1)}
		for small := grid.FirstSize; small <= grid.LastSize; small *= 2 {
			a := rows[grid.SizeCell(op, small)]
			if !a.OK() {
				return Figure{Why: absent(a)}
			}
			for large := 2 * small; large <= grid.LastSize; large *= 2 {
				b := rows[grid.SizeCell(op, large)]
				if !b.OK() {
					return Figure{Why: absent(b)}
				}
				s := stats.Of(stats.Ratios(b.Values(), a.Values()))
				if s.N > 0 && s.Median < worst.Value {
					worst = Figure{Value: s.Median, Min: s.Min, Max: s.Max, Note: cell.Bytes(large) + " beside " + cell.Bytes(small)}
				}
			}
		}
		if worst.Note == "" {
			worst.Why = "no round has both"
		}
		return worst
	}
}

// memory extrapolates to queues without entries: m(16) - 16·(m(32)-m(16))/16.
func memory(rows Rows) Figure {
	a, b := rows["ours/memory/depth=16"], rows["ours/memory/depth=32"]
	for _, r := range []*cell.Row{a, b} {
		if !r.OK() {
			return Figure{Why: absent(r)}
		}
	}
	return figureOf(2*a.Median - b.Median)
}

func allocations(name string) func(Rows) Figure {
	return func(rows Rows) Figure {
		r := rows[name]
		if !r.OK() {
			return Figure{Why: absent(r)}
		}
		return figureOf(r.Extra["active_allocs_per_msg"] + r.Extra["passive_allocs_per_msg"])
	}
}

func figureOf(v float64) Figure { return Figure{Value: v, Min: v, Max: v} }

// NotMeasured is why there is no figure of a cell that the run did not have.
const NotMeasured = "not measured"

func absent(r *cell.Row) string {
	switch {
	case r == nil:
		return NotMeasured
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
	Note     string  // what the figure is of
	Why      string  // why there is none
	Met      bool
	Unsteady int // rounds that were left out, of Rounds: the machine changed its speed
	Rounds   int
}

// Judge compares the rows with the target. The ratio of two cells is the median
// of the ratios of each round.
func (t Target) Judge(rows Rows) Verdict {
	v := Verdict{Target: t, Measured: math.NaN()}
	switch {
	case t.figure != nil:
		f := t.figure(rows)
		if v.Why = f.Why; f.Why != "" {
			return v
		}
		v.Measured, v.Min, v.Max, v.Note = f.Value, f.Min, f.Max, f.Note
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
		var ratios []float64
		ratios, v.Unsteady = ratiosOf(a, b)
		v.Rounds = len(ratios) + v.Unsteady
		switch {
		case v.Rounds == 0:
			v.Why = "no round has both"
			return v
		case len(ratios) == 0:
			v.Why = fmt.Sprintf("the machine was not steady in any of %d rounds", v.Rounds)
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
	if v.Note != "" {
		figure += ", " + v.Note
	}
	if v.Unsteady > 0 {
		figure += fmt.Sprintf(", %d of %d rounds left out", v.Unsteady, v.Rounds)
	}
	if v.Bound == 0 {
		return figure, ""
	}
	if v.Met {
		return figure, "met"
	}
	return figure, "**not met**"
}
