package grid

import (
	"fmt"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/ours"
)

// ShmGroup has figures of two processes that share memory. Nothing of it passes
// the network stack, so they stand beside UCX over shared memory alone.
const ShmGroup = "same host, shared memory"

func shm(o Options) []cell.Cell {
	g := newGroup(o, ShmGroup)
	for _, op := range []string{"write", "send", "read"} {
		c := stream(op, mib)
		c.Shm = true
		g.ours("shm/"+op+"/1MiB", verb(op)+" of 1 MiB through shared memory, 16 outstanding", cell.Gbps, "gbps", c)
	}
	for _, op := range []string{"write", "send"} {
		c := ours.Config{Test: ours.Stream, Op: op, Size: 8, Depth: 2048, Burst: 64, Shm: true}
		g.ours("shm/"+op+"/8B", fmt.Sprintf("%s of 8 bytes through shared memory, %d outstanding, posted by %d", verb(op), c.Depth, c.Burst), cell.MsgRate, "mmsg", c)
	}
	for _, op := range []string{"write", "send"} {
		g.latency("shm/lat/"+op+"/8B", verb(op)+" of 8 bytes through shared memory, half a round trip, both programs poll", half,
			ours.Config{Op: op, Spin: true, Shm: true})
	}
	return g.cells
}
