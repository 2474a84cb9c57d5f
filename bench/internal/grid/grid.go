// Package grid says what is measured, and measures it. The cells of a group
// take turns, so that whatever slows the machine down for a while slows all of
// them alike, and their ratios hold.
package grid

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/faces"
	"github.com/gosoftroce/rocev2/bench/internal/kernel"
	"github.com/gosoftroce/rocev2/bench/internal/peers"
)

// Options choose and adjust the grid.
type Options struct {
	Quick  bool   // the reduced grid
	A, B   string // addresses of the two processes
	Match  func(name string) bool
	Window cell.Window
	Repeat int // runs of each cell
	// Again is how often a run with errors is repeated at most if other
	// programs took much of the processors meanwhile: a stack that is not
	// scheduled sends again what was not lost. Runs with errors on a quiet
	// machine stand.
	Again int
	Logf  func(format string, args ...any)

	load func() func() float64 // of a test, instead of measuring
}

// BusyPercent of one processor used by other programs makes a run disturbed.
const BusyPercent = 10

// otherLoad begins to watch what other programs use; the function that it
// returns says how many percent of a processor that was.
func (o *Options) otherLoad() func() float64 {
	if o.load != nil {
		return o.load()
	}
	before := usageNow()
	return func() float64 { return usageNow().others(before) }
}

// Plan returns the cells that the options choose, in order.
func Plan(o Options) []cell.Cell {
	var out []cell.Cell
	for _, c := range cells(o) {
		if o.Match == nil || o.Match(c.Name) {
			if c.Repeat == 0 || c.Repeat > o.Repeat {
				c.Repeat = o.Repeat
			}
			out = append(out, c)
		}
	}
	return out
}

// Run measures the cells. When ctx ends, it returns what it has.
func Run(ctx context.Context, plan []cell.Cell, o Options) []cell.Row {
	missing := map[string]string{}
	for _, t := range peers.Missing() {
		missing[t.Program] = fmt.Sprintf("%s (package %s) is not installed", t.Program, t.Package)
	}
	if faces.Browser() == "" {
		missing["chromium"] = "chromium is not installed"
	}
	defer faces.RemovePrograms()
	var rows []cell.Row
	for len(plan) > 0 {
		n := 1
		for n < len(plan) && plan[n].Group == plan[0].Group {
			n++
		}
		rows = append(rows, runGroup(ctx, plan[:n], missing, o)...)
		plan = plan[n:]
		if err := kernel.EndGuests(); err != nil {
			o.Logf("ending the kernel guests: %v", err)
		}
	}
	return rows
}

func runGroup(ctx context.Context, group []cell.Cell, missing map[string]string, o Options) []cell.Row {
	rows := make([]cell.Row, len(group))
	repeats := 0
	var ref reference
	for i, c := range group {
		rows[i].Cell = c
		rows[i].Skipped = cmp.Or(c.Needs, missing[programOf(c.Stack)])
		repeats = max(repeats, c.Repeat)
		if c.Name == Reference(c.Group) && rows[i].Skipped == "" {
			ref = reference{run: c.Run, window: o.Window}
		}
	}
	for round := range repeats {
		for i := range rows {
			r := &rows[i]
			if r.Skipped != "" || round >= r.Cell.Repeat || ctx.Err() != nil {
				continue
			}
			ref.around(ctx, r, func() { runCell(ctx, r, round, o) })
		}
	}
	for i := range rows {
		r := &rows[i]
		if r.Summarise(); len(r.Samples) == 0 && r.Skipped == "" {
			r.Skipped = "interrupted"
		}
	}
	return rows
}

// runCell takes one sample.
func runCell(ctx context.Context, r *cell.Row, round int, o Options) {
	for again := 0; ; again++ {
		begin, load := time.Now(), o.otherLoad()
		s := r.Run(ctx, o.Window)
		if ctx.Err() != nil {
			return // the run was interrupted, not its fault
		}
		s.Others = load()
		report(o, r, &s, round, time.Since(begin))
		if s.OK() || s.Others < BusyPercent || again >= o.Again {
			r.Samples = append(r.Samples, s)
			return
		}
		r.Disturbed++
		if o.load == nil {
			waitForQuiet(ctx, o)
		}
	}
}

// waitForQuiet waits for other programs to leave the processors alone, but not
// for ever: a machine may be busy always.
func waitForQuiet(ctx context.Context, o Options) {
	const look, limit = 250 * time.Millisecond, 5 * time.Second
	for end := time.Now().Add(limit); time.Now().Before(end); {
		load := o.otherLoad()
		select {
		case <-ctx.Done():
			return
		case <-time.After(look):
		}
		if load() < BusyPercent {
			return
		}
	}
}

func report(o Options, r *cell.Row, s *cell.Sample, round int, took time.Duration) {
	if s.OK() {
		o.Logf("%-36s %d/%d  %10.3f %s  (%.1fs, others %.0f %%)", r.Name, round+1, r.Cell.Repeat, s.Value, r.Unit, took.Seconds(), s.Others)
	} else {
		o.Logf("%-36s %d/%d  FAILED: %s (others %.0f %%)", r.Name, round+1, r.Cell.Repeat, s.Why(), s.Others)
	}
}

// Stacks and programs that are measured, as the cells name them.
const (
	Rocev2    = "rocev2"
	Tool      = "rocev2 perf"
	RawUDP    = "raw UDP"
	RawTCP    = "raw TCP"
	IPerf3    = "iperf3 TCP"
	UCX       = "UCX tcp"
	UCXShm    = "UCX shared memory"
	FabricTCP = "libfabric tcp"
	FabricRxd = "libfabric udp;ofi_rxd"
	QUIC      = "quic-go"
	Rxe       = kernel.Name
	GoTCP     = "TCP of package net"
	GoTLS     = "TLS 1.3 of crypto/tls"
	Chromium  = "rocev2d in Chromium"
	Perftest  = "perftest over rocev2"
	OpenMPI   = "OpenMPI with UCX"
)

func programOf(stack string) string {
	switch stack {
	case IPerf3:
		return "iperf3"
	case UCX, UCXShm:
		return "ucx_perftest"
	case FabricTCP, FabricRxd:
		return "fi_pingpong"
	case Chromium:
		return "chromium"
	case Perftest:
		return "ib_write_bw"
	case OpenMPI:
		return "mpicc"
	}
	return ""
}
