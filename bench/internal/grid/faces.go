package grid

import (
	"fmt"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/faces"
	"github.com/gosoftroce/rocev2/bench/internal/rawudp"
)

const gib = 1 << 30

// FacesPrefix begins the names of the cells of what programs see that know
// nothing of queue pairs. They stand in groups of their own, each with what it
// is compared with.
const FacesPrefix = "faces/"

func (g *group) face(name, what, unit, value string, c faces.Config) {
	stack := Rocev2
	if c.Face == faces.TCP {
		stack = GoTCP
	}
	g.add(cell.Cell{
		Name: FacesPrefix + name, Stack: stack, What: what, Unit: unit, Op: string(c.Test), Size: c.Size, QPs: c.Conns,
	}, faces.Runner(g.o.A, g.o.B, c, value))
}

// perf is the product's tool, as an operator runs it.
func (g *group) perf(prefix, test string, size int, unit string) {
	field := map[string]string{cell.Gbps: "gbps", cell.MsgRate: "mpps", cell.Micros: "lat_us_p50"}[unit]
	g.peer(prefix+"perf/"+test+"/"+cell.Bytes(size), Tool, "rocev2 perf "+test+" of "+cell.Bytes(size), unit, size,
		faces.Perf(g.o.A, g.o.B, test, size, field))
}

func connections(o Options) []cell.Cell {
	g := newGroup(o, "faces: connections")
	g.peer(FacesPrefix+"raw/rtt/spin", RawUDP, "half a round trip of 64 bytes, spinning", cell.Micros, 64, rawudp.RoundTrip(g.o.A, g.o.B, true))
	g.peer(FacesPrefix+"raw/rtt/block", RawUDP, "half a round trip of 64 bytes, blocking", cell.Micros, 64, rawudp.RoundTrip(g.o.A, g.o.B, false))
	all := []faces.Face{faces.CM, faces.RDMA, faces.RDMANet, faces.TCP}
	for _, f := range all {
		g.face(string(f)+"/connect", "connections made and closed one after the other, "+string(f), cell.PerSecond, "per_second",
			faces.Config{Test: faces.Connect, Face: f})
	}
	for _, f := range all {
		g.face(string(f)+"/dial-to-message", "from Dial to the answer of a first message, "+string(f), cell.Micros, "p50_us",
			faces.Config{Test: faces.First, Face: f})
	}
	return g.cells
}

func openConnections(o Options) []cell.Cell {
	g := newGroup(o, "faces: open connections")
	for _, f := range []faces.Face{faces.RDMA, faces.RDMANet, faces.TCP} {
		for _, used := range []bool{false, true} {
			if f == faces.TCP && (used || g.o.Quick) {
				continue
			}
			name, what := string(f)+"/idle/10000", "resident memory of both processes with 10000 open connections"
			if used {
				name, what = name+"/used", what+", each of which has carried a message"
			}
			g.face(name, what, cell.Megabytes, "both_rss_mb", faces.Config{Test: faces.Idle, Face: f, Conns: 10000, Used: used})
			g.rounds(g.iterations(3, 1))
		}
	}
	return g.cells
}

func floods(o Options) []cell.Cell {
	g := newGroup(o, "faces: flood")
	for _, f := range []faces.Face{faces.CM, faces.RDMA} {
		for _, from := range []faces.Source{faces.OneSource, faces.ManySources, faces.OwnSource} {
			g.face(fmt.Sprintf("%s/flood/%s", f, from), "the slowest Dial beside 50000 forged requests a second, source: "+string(from), cell.Millis, "max_ms",
				faces.Config{Test: faces.Flood, Face: f, From: from, Rate: 50000})
			g.rounds(g.iterations(3, 1))
		}
	}
	return g.cells
}

func messages(o Options) []cell.Cell {
	g := newGroup(o, "faces: messages")
	send := func(name, what, unit string, c faces.Config) {
		c.Test = faces.Stream
		g.face(name, what, unit, map[string]string{cell.Gbps: "gbps", cell.MsgRate: "mmsg"}[unit], c)
	}
	g.perf(FacesPrefix, "send_bw", 8, cell.MsgRate)
	send("rdma/send/8B", "Send and Recv of 8 bytes", cell.MsgRate, faces.Config{Face: faces.RDMA, Size: 8})
	send("tcp/send/8B", "Write and Read of 8 bytes", cell.MsgRate, faces.Config{Face: faces.TCP, Size: 8})
	g.perf(FacesPrefix, "send_bw", mib, cell.Gbps)
	g.ours(FacesPrefix+"ours/send/1MiB", "SEND of 1 MiB, one queue pair", cell.Gbps, "gbps", stream("send", mib))
	send("rdma/send/1MiB", "Send and RecvMsg of 1 MiB", cell.Gbps, faces.Config{Face: faces.RDMA, Size: mib, NoCopy: true})
	send("rdma/send/1MiB/copy", "Send and Recv of 1 MiB", cell.Gbps, faces.Config{Face: faces.RDMA, Size: mib})
	send("rdmanet/stream/1MiB", "Write and Read of 1 MiB, rdmanet", cell.Gbps, faces.Config{Face: faces.RDMANet, Size: mib})
	g.raw(FacesPrefix+"raw/4140/icrc", segment4096, true)
	send("tcp/stream/1MiB", "Write and Read of 1 MiB, TCP of package net", cell.Gbps, faces.Config{Face: faces.TCP, Size: mib})
	return g.cells
}

func messageLatency(o Options) []cell.Cell {
	g := newGroup(o, "faces: latency")
	g.perf(FacesPrefix, "send_lat", 8, cell.Micros)
	for _, f := range []faces.Face{faces.RDMA, faces.RDMANet, faces.TCP} {
		g.face(string(f)+"/lat", "a message of 8 bytes, half a round trip, "+string(f), cell.Micros, "half_us",
			faces.Config{Test: faces.Latency, Face: f, Size: 8})
	}
	return g.cells
}

func web(o Options) []cell.Cell {
	g := newGroup(o, "faces: http")
	for _, f := range []faces.Face{faces.RDMANet, faces.TCP} {
		g.face("http/"+string(f)+"/get/1MiB", "net/http, GET of 1 MiB, one after the other, "+string(f), cell.Gbps, "gbps",
			faces.Config{Test: faces.HTTP, Face: f, Size: mib})
	}
	return g.cells
}

func exported(o Options) []cell.Cell {
	g := newGroup(o, "faces: regions")
	g.perf(FacesPrefix, "read_bw", mib, cell.Gbps)
	g.peer(FacesPrefix+"region/tool/1GiB", Rocev2, "rocev2 region read of 1 GiB from rocev2d", cell.Gbps, gib, faces.RegionRead(g.o.A, g.o.B, gib))
	g.rounds(g.iterations(5, 1))
	c := faces.Config{Test: faces.Region, Face: faces.RDMA, Size: gib}
	g.face("region/copy/1GiB", "RemoteRegion.CopyTo of 1 GiB, to nowhere", cell.Gbps, "gbps", c)
	c.NoCopy = true
	g.face("region/read/1GiB", "RemoteRegion.Read of 1 GiB, into memory", cell.Gbps, "gbps", c)
	return g.cells
}

func daemon(o Options) []cell.Cell {
	g := newGroup(o, "faces: daemon")
	g.face("rocev2d/metrics", "GET /metrics with 10000 connections", cell.Millis, "p50_ms",
		faces.Config{Test: faces.Metrics, Face: faces.RDMA, Conns: 10000})
	g.rounds(g.iterations(3, 1))
	g.face("rocev2d/page", "first paint of the page with 1000 connections, headless Chromium", cell.Millis, "paint_ms",
		faces.Config{Test: faces.Page, Face: faces.RDMA, Conns: 1000})
	g.rounds(g.iterations(3, 1))
	g.last().Stack = Chromium
	g.face("rocev2d/idle", "processor time of a daemon that does nothing", cell.Percent, "cpu_percent",
		faces.Config{Test: faces.Resting, Face: faces.RDMA})
	g.rounds(g.iterations(3, 1))
	return g.cells
}
