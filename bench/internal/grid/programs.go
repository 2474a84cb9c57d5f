package grid

import (
	"os/exec"

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
			perftest(b, b.o.A, b.o.B, "", programs.Perftest{Program: "ib_" + op + "_bw", Size: size}, cell.Gbps)
		}
	}
	b.group = "programs: latency"
	n := b.iterations(20000, 5000)
	for _, op := range []string{"write", "send"} {
		b.perf("programs/", op+"_lat", 8, cell.Micros)
		perftest(b, b.o.A, b.o.B, "", programs.Perftest{Program: "ib_" + op + "_lat", Size: 8, Iterations: n}, cell.Micros)
	}
	b.latency("programs/ours/send/lat/event", "SEND of 8 bytes, half a round trip, asleep on a completion channel", half,
		ours.Config{Op: "send", Events: true})
	perftest(b, b.o.A, b.o.B, "/events", programs.Perftest{Program: "ib_send_lat", Size: 8, Iterations: n, Events: true}, cell.Micros)
	b.group = "programs: one daemon"
	b.peer("programs/iperf3/tcp", IPerf3, "one TCP stream", cell.Gbps, 0, peers.IPerf(false))
	b.ucx("programs/ucx/shm/put_bw/1MiB", "puts of 1 MiB", cell.Gbps, peers.UCXTest{Name: "ucp_put_bw", Size: mib, Iterations: b.iterations(20000, 5000), Depth: bulkDepth, Shm: true})
	for _, op := range []string{"write", "read", "send"} {
		perftest(b, b.o.A, b.o.A, "/one", programs.Perftest{Program: "ib_" + op + "_bw", Size: mib}, cell.Gbps)
	}
	perftest(b, b.o.A, b.o.A, "/one", programs.Perftest{Program: "ib_send_lat", Size: 8, Iterations: n}, cell.Micros)
	b.group = "programs: calls"
	b.peer("programs/ibv_open_device", Perftest, "ibv_open_device", cell.Micros, 0, programs.Calls(b.o.A, "open_us"))
	b.peer("programs/ibv_post_send", Perftest, "ibv_post_send of a WRITE of 8 bytes", cell.Nanos, 8, programs.Calls(b.o.A, "post_ns"))
	b.group = "programs: MPI"
	b.peer("programs/mpi/verbs", OpenMPI, "ring of two ranks, 256 KiB, UCX over rc_verbs", cell.Gbps, 256<<10, programs.MPIRing(b.o.A, b.o.B, true))
	b.peer("programs/mpi/verbs/one", OpenMPI, "ring of two ranks, 256 KiB, UCX over rc_verbs, both ranks on one daemon", cell.Gbps, 256<<10, programs.MPIRing(b.o.A, b.o.A, true))
	b.peer("programs/mpi/tcp", OpenMPI, "ring of two ranks, 256 KiB, UCX over TCP", cell.Gbps, 256<<10, programs.MPIRing(b.o.A, b.o.B, false))
	needHeaders(b)
}

// perftest adds a test of perftest.
func perftest(b *builder, server, client, suffix string, t programs.Perftest, unit string) {
	t.Server, t.Client = server, client
	what := t.Program + " of " + cell.Bytes(t.Size)
	if t.Events {
		what += ", asleep on a completion channel"
	}
	if server == client {
		what += ", both programs on one daemon"
	}
	b.peer("programs/"+t.Program+"/"+cell.Bytes(t.Size)+suffix, Perftest, what, unit, t.Size, t.Run)
}

// needHeaders says what is missing to compile programs here.
func needHeaders(b *builder) {
	for i := range b.cells {
		c := &b.cells[i]
		if c.Group != "programs: calls" {
			continue
		}
		if exec.Command("cc", "-E", "-include", "infiniband/verbs.h", "-x", "c", "/dev/null").Run() != nil {
			c.Needs = "cc and the headers of libibverbs (packages gcc and libibverbs-dev) are not installed"
		}
	}
}
