package grid

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/kernel"
	"github.com/gosoftroce/rocev2/bench/internal/ours"
	"github.com/gosoftroce/rocev2/bench/internal/path"
	"github.com/gosoftroce/rocev2/bench/internal/peers"
	"github.com/gosoftroce/rocev2/bench/internal/quicpeer"
)

// A packet of the path MTU 4096 and its headers fit; TCP gets segments of the
// same size.
const pathMTU = 4200

// pathRate is what the emulated path carries. A third thread, the path itself,
// takes its part of the processors, so a faster one would measure that.
const pathRate = 1e9

// paths: losses and delays of a network, the same for all. Each run has a path
// of its own.
func paths(o Options) []cell.Cell {
	g := newGroup(o, "")
	rtts := []time.Duration{100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond}
	losses := []float64{0, 0.001, 0.01}
	if g.o.Quick {
		rtts = rtts[1:]
	}
	for _, rtt := range rtts {
		for _, loss := range losses {
			addPath(g, path.Config{
				Rate: pathRate, RTT: rtt, Loss: loss, MTU: pathMTU, Seed: 1,
				Queue: max(1<<20, int(pathRate/8*rtt.Seconds())),
			})
		}
	}
	return g.cells
}

// addPath adds the cells of one path.
func addPath(g *group, c path.Config) {
	name := fmt.Sprintf("path/%v/%g%%", c.RTT, c.Loss*100)
	g.name = name
	what := fmt.Sprintf(", %g Gb/s, round trip %v, %g %% lost", float64(c.Rate)/1e9, c.RTT, c.Loss*100)
	addrs := ours.Addrs{A: path.AddrA, B: path.AddrB}
	write := ours.Config{Test: ours.Stream, Op: "write", Size: mib, QPs: 1, Depth: 16, MTU: 4096, Path: true}
	foreign := write
	foreign.Foreign = true
	read := write
	read.Op = "read"
	for _, m := range []struct {
		stack, name, what string
		run               runFunc
	}{
		{Rocev2, "write", "RDMA WRITE of 1 MiB", ours.Runner(addrs, write, "gbps")},
		{Rocev2, "read", "RDMA READ of 1 MiB", ours.Runner(addrs, read, "gbps")},
		{Rocev2, "write/foreign", "RDMA WRITE of 1 MiB, to a peer that is taken for Linux", ours.Runner(addrs, foreign, "gbps")},
		{IPerf3, "tcp/cubic", "one TCP stream, cubic", peers.IPerfOver(addrs.A, addrs.B, "cubic")},
		{IPerf3, "tcp/bbr", "one TCP stream, bbr", peers.IPerfOver(addrs.A, addrs.B, "bbr")},
		{QUIC, "quic-go", "one stream", quicpeer.Throughput(addrs.A, addrs.B)},
	} {
		g.add(cell.Cell{Name: name + "/" + m.name, Stack: m.stack, What: m.what + what, Unit: cell.Gbps, Size: mib, Loss: c.Loss * 100, Needs: path.Available()}, over(c, m.run))
	}
}

// slowRate is what a path carries where kernels in emulated guests are at its
// ends: less than their processors take.
const slowRate = 100e6

// What is between the ends of those paths.
var (
	SlowRTTs   = []time.Duration{time.Millisecond, 10 * time.Millisecond}
	SlowLosses = []float64{0, 0.001, 0.01}
)

// SlowPath returns the name of a cell over a path of slowRate.
func SlowPath(rtt time.Duration, loss float64, stack string) string {
	return fmt.Sprintf("path/100Mb/%v/%g%%/%s", rtt, loss*100, stack)
}

// slowPaths: the same losses and delays between the rxe of two kernels, which
// run in emulated guests, and between two of ours. The path is so slow that the
// processor of a guest is not the limit, which is what the cells without loss
// show. Rounds of 100 µs are left out: a guest needs as long itself.
func slowPaths(o Options) []cell.Cell {
	g := newGroup(o, "slow path")
	addrs := ours.Addrs{A: path.AddrA, B: path.AddrB}
	for _, rtt := range SlowRTTs {
		for _, loss := range SlowLosses {
			c := path.Config{Rate: slowRate, RTT: rtt, Loss: loss, MTU: pathMTU, Seed: 1, Queue: 1 << 20}
			native := ours.Config{Test: ours.Stream, Op: "write", Size: mib, QPs: 1, Depth: bulkDepth, MTU: 4096, Path: true}
			foreign := native
			foreign.Foreign = true
			what := fmt.Sprintf(", 100 Mb/s, round trip %v, %g %% lost", rtt, loss*100)
			add := func(stack, name, ends, needs string, run runFunc) {
				g.add(cell.Cell{Name: SlowPath(rtt, loss, name), Stack: stack, What: "RDMA WRITE of 1 MiB, " + ends + what, Unit: cell.Gbps,
					Size: mib, Loss: loss * 100, Repeat: 3, Needs: needs}, run)
			}
			add(Rocev2, "write", "between two of ours", path.Available(), long(over(c, ours.Runner(addrs, native, "gbps"))))
			add(Rocev2, "write/foreign", "to a peer that is taken for Linux", path.Available(), long(over(c, ours.Runner(addrs, foreign, "gbps"))))
			add(Rxe, "rxe", "rxe to rxe of two guests", kernel.Available(), long(kernel.OverPath(c, "write", mib, bulkDepth)))
		}
	}
	return g.cells
}

// long has a run take long enough to count messages of 1 MiB at slowRate, of
// which some are lost more than once.
func long(run runFunc) runFunc {
	return func(ctx context.Context, w cell.Window) cell.Sample {
		w.Warm, w.Measure = time.Second, max(w.Measure, 6*time.Second)
		return run(ctx, w)
	}
}

// over has a run go over a path. What is warm there takes many round trips.
func over(c path.Config, run runFunc) runFunc {
	return func(ctx context.Context, w cell.Window) cell.Sample {
		p, err := path.Open(c)
		if err != nil {
			return cell.Failed(err)
		}
		w.Warm, w.Measure = time.Second, max(w.Measure, 2*time.Second)
		s := run(path.With(ctx, p), w)
		p.Close()
		if s.Count == nil {
			s.Count = map[string]uint64{}
		}
		maps.Copy(s.Count, p.Counts().Map())
		return s
	}
}
