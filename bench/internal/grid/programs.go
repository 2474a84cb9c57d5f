package grid

import (
	"os/exec"
	"strings"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/ours"
	"github.com/gosoftroce/rocev2/bench/internal/peers"
	"github.com/gosoftroce/rocev2/bench/internal/programs"
)

// unmodified are programs of a distribution over "rocev2 run", each group with
// what it is compared with.
func unmodified(o Options) []cell.Cell {
	g := newGroup(o, "programs: bulk")
	for _, op := range []string{"write", "read", "send"} {
		for _, size := range []int{64 << 10, mib} {
			g.perf("programs/", op+"_bw", size, cell.Gbps)
			perftests(g, programs.Perftest{Program: "ib_" + op + "_bw", Size: size}, cell.Gbps)
		}
	}
	g.peer("programs/iperf3/tcp", IPerf3, "one TCP stream", cell.Gbps, 0, peers.IPerf(false))
	g.ucx("programs/ucx/shm/put_bw/1MiB", "puts of 1 MiB", cell.Gbps, peers.UCXTest{Name: "ucp_put_bw", Size: mib, Iterations: g.iterations(20000, 5000), Depth: bulkDepth, Shm: true})
	g.name = "programs: rate"
	g.perf("programs/", "send_bw", 8, cell.MsgRate)
	perftests(g, programs.Perftest{Program: "ib_send_bw", Size: 8}, cell.MsgRate)
	g.name = "programs: latency"
	n := g.iterations(20000, 5000)
	for _, op := range []string{"write", "send"} {
		g.perf("programs/", op+"_lat", 8, cell.Micros)
		perftests(g, programs.Perftest{Program: "ib_" + op + "_lat", Size: 8, Iterations: n}, cell.Micros)
	}
	g.name = "programs: asleep"
	g.latency("programs/ours/send/lat/event", "SEND of 8 bytes, half a round trip, asleep on a completion channel", half,
		ours.Config{Op: "send", Events: true})
	perftests(g, programs.Perftest{Program: "ib_send_lat", Size: 8, Iterations: n, Events: true}, cell.Micros)
	g.peer("programs/epoll/8B", Perftest, "SEND of 8 bytes, half a round trip, asleep in epoll_wait", cell.Micros, 8, programs.Epoll(g.o.A, g.o.B, n))
	g.peer("programs/epoll/8B/one", Perftest, "the same, both programs on one address", cell.Micros, 8, programs.Epoll(g.o.A, g.o.A, n))
	g.name = "programs: calls"
	for _, f := range []struct{ cell, figure, what, unit string }{
		{"idle", "idle_mb", "memory of a program that has opened a device and a queue pair, and sleeps", cell.Megabytes},
		{"ibv_open_device/first", "first_us", "the first ibv_open_device of a process", cell.Micros},
		{"ibv_open_device", "open_us", "ibv_open_device", cell.Micros},
		{"ibv_post_send", "post_ns", "ibv_post_send of a WRITE of 8 bytes", cell.Nanos},
		{"ibv_poll_cq", "poll_ns", "ibv_poll_cq that finds nothing", cell.Nanos},
	} {
		g.peer("programs/"+f.cell, Perftest, f.what, f.unit, 0, programs.Calls(g.o.A, f.figure))
	}
	g.name = "programs: MPI"
	for _, size := range MPISizes {
		for _, test := range []string{"ring", "pingpong"} {
			mpi(g, test, size)
		}
	}
	needHeaders(g)
	return g.cells
}

// MPISizes are the sizes of messages of MPI, in bytes.
var MPISizes = []int{8, 64 << 10, mib, 4 * mib}

// perftests adds a test of perftest: between programs on two addresses, each
// with an owner of its own, and on one.
func perftests(g *group, t programs.Perftest, unit string) {
	t.Unit = unit
	name, what := "programs/"+t.Program+"/"+cell.Bytes(t.Size), t.Program+" of "+cell.Bytes(t.Size)
	if t.Events {
		name, what = name+"/events", what+", asleep on a completion channel"
	}
	t.Server, t.Client = g.o.A, g.o.B
	g.peer(name, Perftest, what, unit, t.Size, t.Run)
	t.Client = g.o.A
	g.peer(name+"/one", Perftest, what+", both programs on one address", unit, t.Size, t.Run)
}

// mpi adds a test of MPI over verbs, on two addresses and on one, and over TCP.
func mpi(g *group, test string, size int) {
	t := programs.MPI{A: g.o.A, B: g.o.B, Test: test, Size: size, Verbs: true, Value: "gbps"}
	unit, name := cell.Gbps, "programs/mpi/"+test+"/"+cell.Bytes(size)
	what := test + " of two ranks, " + cell.Bytes(size) + ", UCX over "
	if test == "pingpong" {
		unit, t.Value = cell.Micros, "us"
	}
	g.peer(name+"/verbs", OpenMPI, what+"rc_verbs", unit, size, t.Run)
	t.B = g.o.A
	g.peer(name+"/verbs/one", OpenMPI, what+"rc_verbs, both ranks on one address", unit, size, t.Run)
	t.Verbs = false
	g.peer(name+"/tcp", OpenMPI, what+"TCP", unit, size, t.Run)
}

// needHeaders says what is missing to compile programs here.
func needHeaders(g *group) {
	for i := range g.cells {
		c := &g.cells[i]
		if c.Group != "programs: calls" && !strings.HasPrefix(c.Name, "programs/epoll/") {
			continue
		}
		if exec.Command("cc", "-E", "-include", "infiniband/verbs.h", "-x", "c", "/dev/null").Run() != nil {
			c.Needs = "cc and the headers of libibverbs (packages gcc and libibverbs-dev) are not installed"
		}
	}
}
