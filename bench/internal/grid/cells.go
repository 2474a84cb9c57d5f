package grid

import (
	"cmp"
	"fmt"
	"time"

	"context"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/ours"
	"github.com/gosoftroce/rocev2/bench/internal/peers"
	"github.com/gosoftroce/rocev2/bench/internal/quicpeer"
	"github.com/gosoftroce/rocev2/bench/internal/rawudp"
)

// Segment sizes of the raw limit probe: a WRITE middle packet of the path MTU
// has 12 bytes of BTH and 4 of ICRC; a first one has 16 of RETH too, and that
// is what the limit is measured at.
const (
	segment4096 = 4140
	segment1024 = 1064
)

const mib = 1 << 20

// How many operations are outstanding, here and at peers whose tools can.
const (
	bulkDepth = 16   // of 1 MiB
	rateDepth = 2048 // of 8 bytes
)

// cells returns the whole grid.
func cells(o Options) []cell.Cell {
	var all []cell.Cell
	for _, group := range groups(o.Quick) {
		all = append(all, group(o)...)
	}
	return all
}

// groups returns what makes the cells of each group, or of some that belong
// together, in the order in which they are measured.
func groups(quick bool) []func(Options) []cell.Cell {
	all := []func(Options) []cell.Cell{
		bulk, bidirectional, smallMTU, sizes, toolSizes, rates, services, pollingLatency, eventLatency, secured, sameHost,
		idle, queuePairs, memory, regions, loss, paths,
		connections, openConnections, floods, messages, messageLatency, web, exported, daemon,
		unmodified, owned,
	}
	if !quick {
		all = append(all, depths, mtus, loopback, shm, slowPaths)
	}
	return all
}

// group is a group of cells that is being filled.
type group struct {
	o     Options
	name  string
	cells []cell.Cell
}

func newGroup(o Options, name string) *group { return &group{o: o, name: name} }

// last is the cell that was added last.
func (g *group) last() *cell.Cell { return &g.cells[len(g.cells)-1] }

// rounds says how often the last cell is measured.
func (g *group) rounds(n int) { g.last().Repeat = n }

type runFunc = func(context.Context, cell.Window) cell.Sample

func (g *group) add(c cell.Cell, run runFunc) {
	c.Group, c.Run = g.name, run
	g.cells = append(g.cells, c)
}

// ours adds a cell of this stack; value names what is taken.
func (g *group) ours(name, what, unit, value string, c ours.Config) {
	c.MTU = cmp.Or(c.MTU, 4096)
	c.QPs, c.Depth = max(c.QPs, 1), max(c.Depth, 1)
	g.add(cell.Cell{
		Name: name, Stack: Rocev2, What: what, Unit: unit, Op: c.Op, Size: c.Size, QPs: c.QPs, Depth: c.Depth, MTU: c.MTU,
		Loss: c.Loss * 100,
	}, ours.Runner(ours.Addrs{A: g.o.A, B: g.o.B}, c, value))
}

func (g *group) peer(name, stack, what, unit string, size int, run runFunc) {
	g.add(cell.Cell{Name: name, Stack: stack, What: what, Unit: unit, Size: size}, run)
}

// raw adds the raw limit with the product's ICRC, or with hash/crc32.
func (g *group) raw(name string, segment int, icrc bool) {
	crc := "hash/crc32"
	if icrc {
		crc = "the product's ICRC"
	}
	g.peer(name, RawUDP, fmt.Sprintf("GSO/GRO, %s on both sides, copy; %d-byte segments", crc, segment), cell.Gbps, segment,
		rawudp.Throughput(g.o.A, g.o.B, segment, icrc))
}

// ucx adds a test of ucx_perftest.
func (g *group) ucx(name, what, unit string, t peers.UCXTest) {
	stack := UCX
	if t.Shm {
		stack = UCXShm
	}
	t.Value = map[string]peers.UCXValue{cell.Gbps: peers.UCXGbps, cell.MsgRate: peers.UCXMsgRate, cell.Micros: peers.UCXLatency}[unit]
	if t.Depth > 0 {
		what += fmt.Sprintf(", %d outstanding", t.Depth)
	}
	g.add(cell.Cell{Name: name, Stack: stack, What: what, Unit: unit, Size: t.Size, Depth: t.Depth}, peers.UCX(t))
}

func stream(op string, size int) ours.Config {
	return ours.Config{Test: ours.Stream, Op: op, Size: size, Depth: bulkDepth}
}

// bulk: large messages on one queue pair, beside every peer.
func bulk(o Options) []cell.Cell {
	g := newGroup(o, "bulk")
	g.raw("raw/4140/icrc", segment4096, true)
	g.raw("raw/4140", segment4096, false)
	g.peer("raw/4140/single", RawUDP, fmt.Sprintf("a datagram with each system call, the product's ICRC on both sides, copy; %d bytes", segment4096), cell.Gbps, segment4096,
		rawudp.Single(g.o.A, g.o.B, segment4096))
	g.peer("iperf3/tcp", IPerf3, "one TCP stream", cell.Gbps, 0, peers.IPerf(false))
	for _, op := range []string{"write", "send", "read"} {
		g.ours("ours/"+op+"/1MiB", verb(op)+" of 1 MiB, one queue pair", cell.Gbps, "gbps", stream(op, mib))
		g.perf("", op+"_bw", mib, cell.Gbps)
	}
	n := g.iterations(4000, 1000)
	g.ucx("ucx/am_bw/1MiB", "active messages of 1 MiB", cell.Gbps, peers.UCXTest{Name: "ucp_am_bw", Size: mib, Iterations: n, Depth: bulkDepth})
	g.ucx("ucx/put_bw/1MiB", "puts of 1 MiB", cell.Gbps, peers.UCXTest{Name: "ucp_put_bw", Size: mib, Iterations: n / 4, Depth: bulkDepth})
	g.pingpong()
	g.peer("fabric/tcp/1MiB", FabricTCP, "fi_pingpong of 1 MiB, one at a time", cell.Gbps, mib, peers.Libfabric("tcp", mib, n/2))
	g.peer("fabric/rxd/1MiB", FabricRxd, "fi_pingpong of 1 MiB, one at a time", cell.Gbps, mib, peers.Libfabric("udp;ofi_rxd", mib, n/40))
	g.peer("quic-go/stream", QUIC, "one stream", cell.Gbps, 0, quicpeer.Throughput(g.o.A, g.o.B))
	return g.cells
}

// pingpong is what fi_pingpong does: one message under way, in turns in either
// direction.
func (g *group) pingpong() {
	g.latency("ours/send/1MiB/pingpong", "SEND of 1 MiB, one at a time in turns in either direction", half,
		ours.Config{Op: "send", Size: mib, Spin: true})
	c := g.last()
	c.Unit = cell.Gbps
	run := c.Run
	c.Run = func(ctx context.Context, w cell.Window) cell.Sample {
		s := run(ctx, w)
		if s.Value > 0 { // µs
			s.Value = 8 * mib / s.Value / 1e3
		}
		delete(s.Extra, cell.P99) // of another unit
		delete(s.Extra, cell.P999)
		return s
	}
}

// iterations chooses a number for tools that are not bounded by time.
func (g *group) iterations(full, quick int) int {
	if g.o.Quick {
		return quick
	}
	return full
}

func verb(op string) string {
	switch op {
	case "write":
		return "RDMA WRITE"
	case "read":
		return "RDMA READ"
	case "atomic":
		return "fetch-and-add"
	}
	return "SEND"
}

func bidirectional(o Options) []cell.Cell {
	g := newGroup(o, "bidirectional")
	g.peer("raw/4140/icrc/both", RawUDP, fmt.Sprintf("the raw limit in both directions at once, their sum; %d-byte segments", segment4096), cell.Gbps, segment4096,
		rawudp.BothWays(g.o.A, g.o.B, segment4096))
	g.peer("iperf3/bidir", IPerf3, "one TCP stream in each direction, their sum", cell.Gbps, 0, peers.IPerf(true))
	for _, op := range []string{"write", "send"} {
		c := stream(op, mib)
		c.Both = true
		g.ours("ours/"+op+"/1MiB/both", verb(op)+" of 1 MiB, both directions at once, their sum", cell.Gbps, "gbps", c)
	}
	return g.cells
}

func smallMTU(o Options) []cell.Cell {
	g := newGroup(o, "mtu 1024")
	g.raw("raw/1064/icrc", segment1024, true)
	for _, op := range []string{"write", "send"} {
		c := stream(op, mib)
		c.MTU = 1024
		g.ours("ours/"+op+"/1MiB/mtu=1024", verb(op)+" of 1 MiB, path MTU 1024", cell.Gbps, "gbps", c)
	}
	return g.cells
}

// rates: small messages, deep queues.
func rates(o Options) []cell.Cell {
	g := newGroup(o, "rates")
	n := g.iterations(500000, 100000)
	g.ucx("ucx/put_rate/8B", "puts of 8 bytes", cell.MsgRate, peers.UCXTest{Name: "ucp_put_bw", Size: 8, Iterations: n, Depth: rateDepth})
	g.ucx("ucx/am_rate/8B", "active messages of 8 bytes", cell.MsgRate, peers.UCXTest{Name: "ucp_am_bw", Size: 8, Iterations: n, Depth: rateDepth})
	for _, n := range []int{1, 16} {
		c := ours.Config{Test: ours.Stream, Op: "write", Size: 8, QPs: n, Depth: rateDepth, Burst: 64}
		g.ours(fmt.Sprintf("ours/write/8B/qps=%d", n), fmt.Sprintf("RDMA WRITE of 8 bytes, %d queue pairs, 2048 outstanding, posted by 64", n),
			cell.MsgRate, "mmsg", c)
	}
	g.ours("ours/send/8B/qps=1", "SEND of 8 bytes, 2048 outstanding, posted by 64", cell.MsgRate, "mmsg",
		ours.Config{Test: ours.Stream, Op: "send", Size: 8, Depth: 2048, Burst: 64})
	g.ours("ours/read/8B/qps=1", "RDMA READ of 8 bytes, 256 outstanding, posted by 16", cell.MsgRate, "mmsg",
		ours.Config{Test: ours.Stream, Op: "read", Size: 8, Depth: 256, Burst: 16})
	g.ours("ours/atomic/8B/qps=1", "fetch-and-add, 256 outstanding, posted by 16", cell.MsgRate, "mmsg",
		ours.Config{Test: ours.Stream, Op: "atomic", Size: 8, Depth: 256, Burst: 16})
	g.ours("ours/write/4KiB/qps=1", "RDMA WRITE of 4 KiB, 256 outstanding, posted by 16", cell.MsgRate, "mmsg",
		ours.Config{Test: ours.Stream, Op: "write", Size: 4096, Depth: 256, Burst: 16})
	return g.cells
}

// services: the unreliable ones beside the reliable one. Nothing holds their
// senders back, so what counts is what arrives.
func services(o Options) []cell.Cell {
	g := newGroup(o, "services")
	for _, size := range []int{4096, 8} {
		unit, value := cell.Gbps, "gbps"
		c := ours.Config{Test: ours.Stream, Op: "send", Size: size, Depth: 256, Burst: 16}
		if size == 8 {
			unit, value, c.Depth, c.Burst = cell.MsgRate, "mmsg", 2048, 64
		}
		for _, s := range []struct {
			service ours.Service
			name    string
			what    string
		}{{ours.RC, "rc", "RC"}, {ours.UC, "uc", "UC, as received"}, {ours.UD, "ud", "UD, as received"}} {
			c.Service = s.service
			g.ours(fmt.Sprintf("ours/%s/send/%s", s.name, cell.Bytes(size)), fmt.Sprintf("SEND of %s over %s", cell.Bytes(size), s.what), unit, value, c)
		}
	}
	return g.cells
}

func idle(o Options) []cell.Cell {
	g := newGroup(o, "idle")
	g.ours("ours/idle/qps=1000", "CPU time with 1000 connected queue pairs, the busier of both processes", cell.Percent, "percent",
		ours.Config{Test: ours.Idle, Op: "write", Size: 64, QPs: 1000})
	c := g.last()
	c.Repeat = 3
	run := c.Run
	c.Run = func(ctx context.Context, w cell.Window) cell.Sample {
		w.Warm, w.Measure = time.Second, max(3*w.Measure, 2*time.Second) // the share is small, the clock coarse
		return run(ctx, w)
	}
	return g.cells
}

// queuePairs: WRITEs of 4 KiB, one on each queue pair in turn, so many
// outstanding that all see the same number whatever the number of queue pairs.
func queuePairs(o Options) []cell.Cell {
	g := newGroup(o, "queue pairs")
	counts := []int{1, 10, 100, 1000, 10000}
	if g.o.Quick {
		counts = []int{10, 10000}
	}
	for _, n := range counts {
		g.ours(fmt.Sprintf("ours/write/4KiB/qps=%d/rr", n), fmt.Sprintf("RDMA WRITE of 4 KiB in turn on %d queue pairs, 512 outstanding", n),
			cell.Gbps, "gbps", ours.Config{Test: ours.Stream, Op: "write", Size: 4096, QPs: n, Depth: 512})
	}
	return g.cells
}

// memory: the queues grow with their depth, what is beyond them does not.
func memory(o Options) []cell.Cell {
	g := newGroup(o, "memory")
	for _, depth := range []int{16, 32} {
		g.ours(fmt.Sprintf("ours/memory/depth=%d", depth), fmt.Sprintf("heap of an idle connected queue pair, of 10000, both queues %d deep", depth),
			cell.BytesPer, "heap_per_qp", ours.Config{Test: ours.Memory, Op: "write", Size: 64, QPs: 10000, Depth: depth})
		g.rounds(g.iterations(3, 1))
	}
	return g.cells
}

func regions(o Options) []cell.Cell {
	g := newGroup(o, "regions")
	counts := []int{10, 1000, 100_000, 1_000_000}
	if g.o.Quick {
		counts = []int{10, 1_000_000}
	}
	for _, n := range counts {
		g.ours(fmt.Sprintf("ours/lookup/mrs=%d", n), fmt.Sprintf("resolving ten keys in turn among %d regions", n), cell.Nanos, "hot_ns",
			ours.Config{Test: ours.Lookup, Op: "write", Regions: n})
	}
	for _, n := range counts {
		if !g.o.Quick && n != counts[0] && n != counts[len(counts)-1] {
			continue
		}
		g.ours(fmt.Sprintf("ours/write/8B/mrs=%d", n), fmt.Sprintf("RDMA WRITE of 8 bytes, %d regions registered on either side", n),
			cell.MsgRate, "mmsg", ours.Config{Test: ours.Stream, Op: "write", Size: 8, Depth: 2048, Burst: 64, Regions: n})
	}
	return g.cells
}

// loss: the link is wrapped on both sides, also without loss.
func loss(o Options) []cell.Cell {
	g := newGroup(o, "loss")
	rates := []float64{0, 0.001, 0.01, 0.05}
	if g.o.Quick {
		rates = []float64{0, 0.001, 0.05}
	}
	for _, op := range []string{"write", "read"} {
		if g.o.Quick && op == "read" {
			continue
		}
		g.ours("ours/"+op+"/1MiB/plain", verb(op)+" of 1 MiB, link not wrapped", cell.Gbps, "gbps", stream(op, mib))
		for _, rate := range rates {
			c := stream(op, mib)
			c.Fault, c.Loss = true, rate
			g.ours(fmt.Sprintf("ours/%s/1MiB/loss=%g%%", op, rate*100),
				fmt.Sprintf("%s of 1 MiB, %g %% of the packets lost in each direction", verb(op), rate*100), cell.Gbps, "gbps", c)
		}
	}
	return g.cells
}

// LoopbackGroup has figures that stand beside no others: in one process nothing
// is sent, and what a message costs is two copies in memory.
const LoopbackGroup = "loopback, one process"

func loopback(o Options) []cell.Cell {
	g := newGroup(o, LoopbackGroup)
	for _, op := range []string{"write", "send", "read"} {
		c := stream(op, mib)
		c.Test = ours.Loopback
		g.ours("loopback/"+op+"/1MiB", verb(op)+" of 1 MiB within one device, 16 outstanding", cell.Gbps, "gbps", c)
		c = ours.Config{Test: ours.Loopback, Op: op, Size: 8, Depth: 2048, Burst: 64}
		if op == "read" {
			c.Depth, c.Burst = 256, 16
		}
		g.ours("loopback/"+op+"/8B", fmt.Sprintf("%s of 8 bytes within one device, %d outstanding, posted by %d", verb(op), c.Depth, c.Burst),
			cell.MsgRate, "mmsg", c)
	}
	return g.cells
}
