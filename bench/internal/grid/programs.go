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
func unmodified(b *builder) {
	b.group = "programs: bulk"
	for _, op := range []string{"write", "read", "send"} {
		for _, size := range []int{64 << 10, mib} {
			b.perf("programs/", op+"_bw", size, cell.Gbps)
			perftests(b, programs.Perftest{Program: "ib_" + op + "_bw", Size: size}, cell.Gbps)
		}
	}
	b.peer("programs/iperf3/tcp", IPerf3, "one TCP stream", cell.Gbps, 0, peers.IPerf(false))
	b.ucx("programs/ucx/shm/put_bw/1MiB", "puts of 1 MiB", cell.Gbps, peers.UCXTest{Name: "ucp_put_bw", Size: mib, Iterations: b.iterations(20000, 5000), Depth: bulkDepth, Shm: true})
	b.group = "programs: rate"
	b.perf("programs/", "send_bw", 8, cell.MsgRate)
	perftests(b, programs.Perftest{Program: "ib_send_bw", Size: 8}, cell.MsgRate)
	b.group = "programs: latency"
	n := b.iterations(20000, 5000)
	for _, op := range []string{"write", "send"} {
		b.perf("programs/", op+"_lat", 8, cell.Micros)
		perftests(b, programs.Perftest{Program: "ib_" + op + "_lat", Size: 8, Iterations: n}, cell.Micros)
	}
	b.group = "programs: asleep"
	b.latency("programs/ours/send/lat/event", "SEND of 8 bytes, half a round trip, asleep on a completion channel", half,
		ours.Config{Op: "send", Events: true})
	perftests(b, programs.Perftest{Program: "ib_send_lat", Size: 8, Iterations: n, Events: true}, cell.Micros)
	b.peer("programs/epoll/8B", Perftest, "SEND of 8 bytes, half a round trip, asleep in epoll_wait", cell.Micros, 8, programs.Epoll(b.o.A, b.o.B, n))
	b.peer("programs/epoll/8B/one", Perftest, "the same, both programs on one address", cell.Micros, 8, programs.Epoll(b.o.A, b.o.A, n))
	b.group = "programs: calls"
	for _, f := range []struct{ cell, figure, what, unit string }{
		{"idle", "idle_mb", "memory of a program that has opened a device and a queue pair, and sleeps", cell.Megabytes},
		{"ibv_open_device/first", "first_us", "the first ibv_open_device of a process", cell.Micros},
		{"ibv_open_device", "open_us", "ibv_open_device", cell.Micros},
		{"ibv_post_send", "post_ns", "ibv_post_send of a WRITE of 8 bytes", cell.Nanos},
		{"ibv_poll_cq", "poll_ns", "ibv_poll_cq that finds nothing", cell.Nanos},
	} {
		b.peer("programs/"+f.cell, Perftest, f.what, f.unit, 0, programs.Calls(b.o.A, f.figure))
	}
	b.group = "programs: MPI"
	for _, size := range MPISizes {
		for _, test := range []string{"ring", "pingpong"} {
			mpi(b, test, size)
		}
	}
	needHeaders(b)
}

// MPISizes are the sizes of messages of MPI, in bytes.
var MPISizes = []int{8, 64 << 10, mib, 4 * mib}

// perftests adds a test of perftest: between programs on two addresses, each
// with an owner of its own, and on one.
func perftests(b *builder, t programs.Perftest, unit string) {
	t.Unit = unit
	name, what := "programs/"+t.Program+"/"+cell.Bytes(t.Size), t.Program+" of "+cell.Bytes(t.Size)
	if t.Events {
		name, what = name+"/events", what+", asleep on a completion channel"
	}
	t.Server, t.Client = b.o.A, b.o.B
	b.peer(name, Perftest, what, unit, t.Size, t.Run)
	t.Client = b.o.A
	b.peer(name+"/one", Perftest, what+", both programs on one address", unit, t.Size, t.Run)
}

// mpi adds a test of MPI over verbs, on two addresses and on one, and over TCP.
func mpi(b *builder, test string, size int) {
	t := programs.MPI{A: b.o.A, B: b.o.B, Test: test, Size: size, Verbs: true, Value: "gbps"}
	unit, name := cell.Gbps, "programs/mpi/"+test+"/"+cell.Bytes(size)
	what := test + " of two ranks, " + cell.Bytes(size) + ", UCX over "
	if test == "pingpong" {
		unit, t.Value = cell.Micros, "us"
	}
	b.peer(name+"/verbs", OpenMPI, what+"rc_verbs", unit, size, t.Run)
	t.B = b.o.A
	b.peer(name+"/verbs/one", OpenMPI, what+"rc_verbs, both ranks on one address", unit, size, t.Run)
	t.Verbs = false
	b.peer(name+"/tcp", OpenMPI, what+"TCP", unit, size, t.Run)
}

// needHeaders says what is missing to compile programs here.
func needHeaders(b *builder) {
	for i := range b.cells {
		c := &b.cells[i]
		if c.Group != "programs: calls" && !strings.HasPrefix(c.Name, "programs/epoll/") {
			continue
		}
		if exec.Command("cc", "-E", "-include", "infiniband/verbs.h", "-x", "c", "/dev/null").Run() != nil {
			c.Needs = "cc and the headers of libibverbs (packages gcc and libibverbs-dev) are not installed"
		}
	}
}
