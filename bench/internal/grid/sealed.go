package grid

import (
	"fmt"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/ours"
	"github.com/gosoftroce/rocev2/bench/internal/tlspeer"
)

// SealedCell returns the name of a cell of what is sealed, with "clear" for
// what is not.
func SealedCell(algorithm, test string) string { return "sealed/" + algorithm + "/" + test }

// sealed: the same in clear, encrypted and authenticated, and authenticated
// alone, with a stream of TLS beside it.
func sealed(o Options) []cell.Cell {
	g := newGroup(o, "sealed")
	g.peer(SealedCell("tls", "stream"), GoTLS, "one stream with AES-GCM-128 over TCP", cell.Gbps, 0, tlspeer.Throughput(g.o.A, g.o.B))
	ways := []struct{ name, seal, what string }{{"clear", "", "in clear"}, {"gcm128", "gcm128", "AES-GCM-128"}, {"gmac128", "gmac128", "AES-GMAC-128"}}
	for _, w := range ways {
		c := stream("write", mib)
		c.Seal = w.seal
		g.ours(SealedCell(w.name, "write/1MiB"), "RDMA WRITE of 1 MiB, one queue pair, "+w.what, cell.Gbps, "gbps", c)
	}
	for _, w := range ways {
		c := ours.Config{Test: ours.Stream, Op: "write", Size: 8, Depth: rateDepth, Burst: 64, Seal: w.seal}
		g.ours(SealedCell(w.name, "write/8B"), fmt.Sprintf("RDMA WRITE of 8 bytes, %d outstanding, posted by 64, %s", rateDepth, w.what), cell.MsgRate, "mmsg", c)
	}
	for _, w := range ways {
		g.latency(SealedCell(w.name, "write/lat"), "RDMA WRITE of 8 bytes, half a round trip, polling, "+w.what, half, ours.Config{Op: "write", Spin: true, Seal: w.seal})
	}
	return g.cells
}
