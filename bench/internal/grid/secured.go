package grid

import (
	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/faces"
	"github.com/gosoftroce/rocev2/bench/internal/ours"
)

// SecuredPrefix begins the names of the cells of sealed packets. Those of a
// group differ in nothing else, and the first of them is in clear.
const SecuredPrefix = "secured/"

// seals are what the packets of a cell are sealed with.
var seals = []struct {
	name, what string
	seal       ours.Seal
}{
	{"clear", "in clear", ours.Clear},
	{"gcm128", "packets sealed with AES-GCM-128", ours.GCM128},
	{"gmac128", "packets sealed with AES-GMAC-128", ours.GMAC128},
}

func secured(o Options) []cell.Cell {
	g := newGroup(o, "secured: bulk")
	for _, s := range seals {
		c := stream("write", mib)
		c.Seal = s.seal
		g.ours(SecuredPrefix+"write/1MiB/"+s.name, "RDMA WRITE of 1 MiB, one queue pair, "+s.what, cell.Gbps, "gbps", c)
	}
	g.peer(SecuredPrefix+"tls/1MiB", GoTLS, "Write and Read of 1 MiB, one stream of TLS 1.3", cell.Gbps, mib,
		faces.Runner(g.o.A, g.o.B, faces.Config{Test: faces.Stream, Face: faces.TLS, Size: mib}, "gbps"))
	g.name = "secured: rate"
	for _, s := range seals {
		g.ours(SecuredPrefix+"write/8B/"+s.name, "RDMA WRITE of 8 bytes, 2048 outstanding, posted by 64, "+s.what, cell.MsgRate, "mmsg",
			ours.Config{Test: ours.Stream, Op: "write", Size: 8, Depth: rateDepth, Burst: 64, Seal: s.seal})
	}
	g.name = "secured: latency"
	for _, s := range seals {
		g.latency(SecuredPrefix+"write/lat/"+s.name, "RDMA WRITE of 8 bytes, half a round trip, polling, "+s.what, half,
			ours.Config{Op: "write", Spin: true, Seal: s.seal})
	}
	return g.cells
}
