package grid

import (
	"fmt"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/ours"
)

// Sizes are those of the curve, of which no larger one may be slower than a
// smaller one between FirstSize and LastSize.
const (
	FirstSize = 4 << 10
	LastSize  = 256 << 10
)

func (g *group) curve() (sizes []int) {
	for size := FirstSize; size <= LastSize; size *= 2 {
		sizes = append(sizes, size)
	}
	if g.o.Quick {
		return sizes
	}
	return append(append([]int{8, 64, 512}, sizes...), mib, 4*mib)
}

// SizeCell is the name of a cell of the curve.
func SizeCell(op string, size int) string { return "ours/" + op + "/size=" + cell.Bytes(size) }

// sizes: the curve over the message size.
func sizes(o Options) []cell.Cell {
	g := newGroup(o, "sizes")
	for _, size := range g.curve() {
		depth := min(max(8*mib/size, 8), 1024)
		for _, op := range []string{"write", "send", "read"} {
			burst := min(max(depth/16, 1), 32)
			g.ours(SizeCell(op, size), fmt.Sprintf("%s of %s", verb(op), cell.Bytes(size)), cell.Gbps, "gbps",
				ours.Config{Test: ours.Stream, Op: op, Size: size, Depth: depth, Burst: burst})
		}
	}
	return g.cells
}

// toolSizes: the same by the tool, which posts requests one by one.
func toolSizes(o Options) []cell.Cell {
	g := newGroup(o, "sizes, tool")
	for size := FirstSize; size <= LastSize; size *= 2 {
		if g.o.Quick && size > 64<<10 {
			break
		}
		for _, op := range []string{"write", "send", "read"} {
			g.perf("", op+"_bw", size, cell.Gbps)
			g.last().Op = op
		}
	}
	return g.cells
}

func depths(o Options) []cell.Cell {
	g := newGroup(o, "depths")
	for _, depth := range []int{1, 2, 8, 32, 128} {
		for _, op := range []string{"write", "read"} {
			g.ours(fmt.Sprintf("ours/%s/64KiB/depth=%d", op, depth), fmt.Sprintf("%s of 64 KiB, %d outstanding", verb(op), depth), cell.Gbps, "gbps",
				ours.Config{Test: ours.Stream, Op: op, Size: 64 << 10, Depth: depth})
			g.rounds(3)
		}
	}
	return g.cells
}

func mtus(o Options) []cell.Cell {
	g := newGroup(o, "path MTUs")
	for _, mtu := range []int{256, 512, 1024, 2048, 4096} {
		c := stream("write", mib)
		c.MTU = mtu
		g.ours(fmt.Sprintf("ours/write/1MiB/pathmtu=%d", mtu), fmt.Sprintf("RDMA WRITE of 1 MiB, path MTU %d", mtu), cell.Gbps, "gbps", c)
		g.rounds(3)
	}
	return g.cells
}
