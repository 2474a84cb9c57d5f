package grid

import (
	"cmp"
	"context"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/ours"
	"github.com/gosoftroce/rocev2/bench/internal/peers"
	"github.com/gosoftroce/rocev2/bench/internal/rawudp"
)

// pollingLatency: both sides poll. SEND, WRITE and the raw datagrams show half
// of a round trip, READ and atomic a whole one.
func pollingLatency(o Options) []cell.Cell {
	g := newGroup(o, "latency, polling")
	g.peer("raw/rtt/spin", RawUDP, "half a round trip of 64 bytes, spinning", cell.Micros, 64, rawudp.RoundTrip(g.o.A, g.o.B, true))
	g.peer("tcp/rtt/spin", RawTCP, "half a round trip of 8 bytes, TCP_NODELAY, spinning", cell.Micros, 8, rawudp.TCPRoundTrip(g.o.A, g.o.B, true))
	for _, op := range []string{"send", "write", "read", "atomic"} {
		what, value := "half a round trip", half
		if op == "read" || op == "atomic" {
			what, value = "a round trip", whole
		}
		g.latency("ours/"+op+"/lat", verb(op)+" of 8 bytes, "+what+", polling", value, ours.Config{Op: op, Spin: true})
	}
	g.latency("ours/write/ack/lat", "RDMA WRITE of 8 bytes until it is acknowledged, the target's program polls", whole,
		ours.Config{Op: "write", Ack: true, Spin: true})
	for _, op := range []string{"read", "atomic"} {
		g.latency("ours/"+op+"/lat/parked", verb(op)+" of 8 bytes, a round trip, the target's program asleep", whole, ours.Config{Op: op})
	}
	g.latency("ours/write/ack/lat/parked", "RDMA WRITE of 8 bytes until it is acknowledged, the target's program asleep", whole,
		ours.Config{Op: "write", Ack: true})
	for _, op := range []string{"send", "write", "read", "atomic"} {
		g.perf("", op+"_lat", 8, cell.Micros)
	}
	n := g.iterations(50000, 10000)
	g.ucx("ucx/am_lat/8B", "active messages of 8 bytes, half a round trip", cell.Micros, peers.UCXTest{Name: "ucp_am_lat", Size: 8, Iterations: n})
	g.ucx("ucx/put_lat/8B", "puts of 8 bytes, half a round trip", cell.Micros, peers.UCXTest{Name: "ucp_put_lat", Size: 8, Iterations: n})
	return g.cells
}

// half and whole are what a latency cell shows of a round trip.
const (
	half  = 0.5
	whole = 1.0
)

func (g *group) latency(name, what string, part float64, c ours.Config) {
	c.Test = ours.Latency
	c.Size = cmp.Or(c.Size, 8)
	g.ours(name, what, cell.Micros, "p50_us", c)
	run := g.last().Run
	g.last().Run = func(ctx context.Context, w cell.Window) cell.Sample {
		s := run(ctx, w)
		s.Value *= part
		for _, tail := range []string{cell.P99, cell.P999} {
			if v, ok := s.Extra[tail]; ok {
				s.Extra[tail] = v * part
			}
		}
		return s
	}
}

func eventLatency(o Options) []cell.Cell {
	g := newGroup(o, "latency, blocked")
	g.peer("raw/rtt/block", RawUDP, "half a round trip of 64 bytes, blocking", cell.Micros, 64, rawudp.RoundTrip(g.o.A, g.o.B, false))
	g.peer("tcp/rtt/block", RawTCP, "half a round trip of 8 bytes, TCP_NODELAY, blocking", cell.Micros, 8, rawudp.TCPRoundTrip(g.o.A, g.o.B, false))
	g.latency("ours/send/lat/event", "SEND of 8 bytes, half a round trip, asleep on a completion channel", half,
		ours.Config{Op: "send", Events: true})
	g.latency("ours/read/lat/event", "RDMA READ of 8 bytes, a round trip, both sides asleep", whole,
		ours.Config{Op: "read", Events: true})
	return g.cells
}

// sameHost: two processes of one host, through memory that they share.
func sameHost(o Options) []cell.Cell {
	g := newGroup(o, "same host")
	n := g.iterations(20000, 5000)
	g.ucx("ucx/shm/am_bw/1MiB", "active messages of 1 MiB", cell.Gbps, peers.UCXTest{Name: "ucp_am_bw", Size: mib, Iterations: n, Depth: bulkDepth, Shm: true})
	g.ucx("ucx/shm/put_bw/1MiB", "puts of 1 MiB", cell.Gbps, peers.UCXTest{Name: "ucp_put_bw", Size: mib, Iterations: n, Depth: bulkDepth, Shm: true})
	g.ucx("ucx/shm/am_rate/8B", "active messages of 8 bytes", cell.MsgRate, peers.UCXTest{Name: "ucp_am_bw", Size: 8, Iterations: 200 * n, Depth: rateDepth, Shm: true})
	g.ucx("ucx/shm/am_lat/8B", "active messages of 8 bytes, half a round trip", cell.Micros, peers.UCXTest{Name: "ucp_am_lat", Size: 8, Iterations: 50 * n, Shm: true})
	g.ucx("ucx/shm/put_lat/8B", "puts of 8 bytes, half a round trip", cell.Micros, peers.UCXTest{Name: "ucp_put_lat", Size: 8, Iterations: 100 * n, Shm: true})
	return g.cells
}
