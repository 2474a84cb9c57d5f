package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/programs"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/owner"
)

func TestUseReport(t *testing.T) {
	t.Parallel()
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	silent := func(pid int, l owner.Lease) programs.Used {
		l.PID, l.UID, l.Command, l.Run, l.Slot = pid, 1000, "ib_write_bw", "R", pid+int(l.TxPackets)
		return programs.Used{Device: "rxe_eth0", Addr: a, Lease: l, Runs: true, Ended: true}
	}
	used := func(pid int, l owner.Lease) programs.Used {
		l.Told, l.Last = true, true
		return silent(pid, l)
	}
	killed := used(7, owner.Lease{TxBytes: 9, TxPackets: 1})
	killed.Lease.Last = false
	running := used(7, owner.Lease{TxBytes: 9, TxPackets: 1, QPs: 2, Connections: 1})
	running.Ended = false
	for _, c := range []struct {
		name string
		list []programs.Used
		rdma rdmaUse
		want string
		lack string
	}{
		{"no device", nil, rdmaNoDevice, "rocev2 run: ./app has used no device of rocev2", "sent"},
		{"nothing sent", []programs.Used{used(7, owner.Lease{})}, rdmaUnused, "./app did not use RDMA: it opened devices, and no packet passed the network", "peers"},
		{"one process", []programs.Used{used(7, owner.Lease{TxBytes: 1, TxPackets: 2, RxBytes: 3, RxPackets: 1, MadeQPs: 5,
			Reached: []owner.Peer{{Addr: b, Native: true}}, Peers: []netip.Addr{a, b}, Work: transport.Work{
				Types:       []transport.UsedType{{Type: "RC", Made: 4}, {Type: "UD", Made: 1}},
				Requests:    []transport.UsedOperation{{Operation: "SEND", Requests: 2, Bytes: 1}, {Operation: "RDMA_READ", Requests: 1, Bytes: 3}},
				Connections: []transport.UsedConnection{{Type: "RC", QPN: 0x11, Peer: b, PeerQPN: 0x1234}}}})}, rdmaUsed,
			"rocev2 run: ib_write_bw, process 7, user 1000, on rxe_eth0 (192.0.2.1)\n" +
				"  sent      1 byte in 2 packets, by UDP\n  received  3 bytes in 1 packet, by UDP\n  made      5 queue pairs (4 RC, 1 UD)\n" +
				"  posted    2 SEND of 1 byte; 1 RDMA_READ of 3 bytes\n  connected RC 0x000011 to 0x001234 of 192.0.2.2\n" +
				"  peers     192.0.2.2 (rocev2), 192.0.2.1 (this address)\n" +
				"rocev2 run: ./app used RDMA: 1 process sent 1 byte and received 3 bytes over verbs, with 5 queue pairs.\n", "no packet"},
		{"shared memory", []programs.Used{used(7, owner.Lease{TxBytes: 100, TxPackets: 2, TxShm: 100, RxBytes: 30, RxPackets: 2, RxShm: 10})}, rdmaUsed,
			"  sent      100 bytes in 2 packets, all through shared memory\n  received  30 bytes in 2 packets, by UDP, and of them 10 bytes through shared memory\n", "no packet"},
		{"a process that told nothing", []programs.Used{silent(7, owner.Lease{})}, rdmaUnknown, "is not known", "did not"},
		{"one that told nothing, and one that did", []programs.Used{silent(7, owner.Lease{}), used(8, owner.Lease{TxBytes: 5})}, rdmaUsed, "2 processes sent 5 bytes", "did not"},
		{"killed", []programs.Used{killed}, rdmaUsed, "killed: what it did in its last quarter of a second may be missing", "runs"},
		{"it goes on", []programs.Used{running}, rdmaUsed, "which still runs", "killed"},
		{"in both lists", []programs.Used{killed, running}, rdmaUsed, "1 process sent 9 bytes", "still runs"},
		{"inside", []programs.Used{used(7, owner.Lease{MadeQPs: 2, Work: transport.Work{LoopPackets: 3, LoopBytes: 99}})}, rdmaInside, "inside one process only: 99 bytes", "did not"},
		{"not known", []programs.Used{{Device: "rxe_eth0", Addr: a, Lack: "why"}}, rdmaUnknown, "what has used rxe_eth0 (192.0.2.1) is not known: why\n", "no device of"},
		{"the daemon ended", []programs.Used{used(7, owner.Lease{TxBytes: 1}), {Lack: "EOF"}}, rdmaUsed, "the daemon has ended, and what was done after it told last is not known: EOF\n", "invalid"},
		{"the daemon ended, and told nothing", []programs.Used{{Lack: "EOF"}}, rdmaUnknown, "whether ./app used RDMA is not known: EOF", "no device of"},
		{"the daemon ended before anything passed", []programs.Used{used(7, owner.Lease{}), {Lack: "EOF"}}, rdmaUnknown, "whether ./app used RDMA is not known: EOF", "did not use"},
		{"inside, and another device", []programs.Used{used(7, owner.Lease{MadeQPs: 2, Work: transport.Work{LoopPackets: 3, LoopBytes: 99}}), {Device: "rxe_eth1", Addr: b, Lack: "why"}},
			rdmaUnknown, "whether ./app used RDMA is not known: why", "one process only"},
		{"a device opened to look", []programs.Used{used(7, owner.Lease{}), used(7, owner.Lease{RxPackets: 3, TxPackets: 3})}, rdmaUnused, "in 3 packets", "in 0 packets"},
		{"in order", []programs.Used{used(9, owner.Lease{TxBytes: 1}), used(8, owner.Lease{})}, rdmaUsed, "process 8, ", "did not"},
		{"of another run", []programs.Used{func() programs.Used { u := used(7, owner.Lease{TxBytes: 1}); u.Lease.Run = "R2"; return u }()}, rdmaNoDevice, "no device", "sent"},
		{"of a run inside", []programs.Used{func() programs.Used { u := used(7, owner.Lease{TxBytes: 1}); u.Lease.Run = "R-2"; return u }()}, rdmaUsed, "sent", "no device"},
	} {
		u := (&programRun{name: "R"}).of("./app", c.list)
		if out := u.text(); u.RDMA != c.rdma || !strings.Contains(out, c.want) || strings.Contains(out, c.lack) {
			t.Errorf("%s: %s, %s", c.name, u.RDMA, out)
		}
	}
}

// A daemon of an older release knows of no runs: what was there before, as the
// daemon itself, is not of this one.
func TestUseSinceThen(t *testing.T) {
	t.Parallel()
	r := &programRun{name: "R", begin: time.Now()}
	list := []programs.Used{{Lease: owner.Lease{PID: 1, Since: r.begin.Add(-1)}}, {Lease: owner.Lease{PID: 2, Since: r.begin}}}
	if u := r.of("./app", list); len(u.Processes) != 1 || u.Processes[0].PID != 2 {
		t.Errorf("got %+v", u)
	}
}

// The name of a run begins with that of the run around it, and stays short.
func TestNameRun(t *testing.T) {
	t.Parallel()
	name := nameRun([]string{"A=b"})
	if len(name) < 16 || strings.Contains(name, "-") {
		t.Errorf("%q", name)
	}
	inner := nameRun([]string{"ROCEV2_RUN=" + name})
	if !strings.HasPrefix(inner, name+"-") || len(inner) <= len(name)+1 {
		t.Errorf("%q in %q", inner, name)
	}
	for range 100 {
		name = nameRun([]string{"ROCEV2_RUN=" + name})
	}
	if len(name) > 256 {
		t.Errorf("%d bytes", len(name))
	}
}

// A run with --stats ends as its program does, and tells what was used.
func TestRunProgramStats(t *testing.T) {
	t.Parallel()
	p := buildTool(t)
	for _, c := range []struct {
		script string
		code   int
	}{{"echo out", 0}, {"exit 7", 7}, {"kill -TERM $$", -1}, {"kill -SEGV $$", -1}} {
		var out, errs strings.Builder
		cmd := p.command("-d", freeAddress(), "--stats", "--", "sh", "-c", c.script)
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		if cmd.ProcessState.ExitCode() != c.code || !strings.HasPrefix(errs.String(), "rocev2 run: sh has used no device") ||
			strings.Contains(errs.String(), "goroutine") {
			t.Errorf("%s: %v, %q, %q", c.script, err, out.String(), errs.String())
		}
	}
}

// A Go program with a device on the address, without run, is told of, too.
func TestReportOfARun(t *testing.T) {
	t.Parallel()
	p := buildTool(t)
	addr := freeAddress()
	cmd := p.command("-d", addr, "--stats", "--", p.path, "perf", "write_lat", "--device", addr, "--iters", "10", addr)
	out, _ := cmd.CombinedOutput() // no server answers
	if !strings.Contains(string(out), "on rxe_lo0 ("+addr+")") {
		t.Errorf("%s", out)
	}
}

// Where another daemon owns the port, that is asked.
func TestReportOfASharedPort(t *testing.T) {
	t.Parallel()
	p := buildTool(t)
	addr := freeAddress()
	inner := fmt.Sprintf("env -u ROCEV2_PROGRAMS %s run --shm -d %s --stats -- %[1]s perf write_lat --device %[2]s --iters 10 %[2]s; true", p.path, addr)
	out, _ := p.command("-d", addr, "--", "sh", "-c", inner).CombinedOutput()
	if n := len(p.sockets()); n != 2 || !strings.Contains(string(out), "on rxe_lo0 ("+addr+")") {
		t.Errorf("%d daemons: %s", n, out)
	}
}

// The report goes to a file, which is made before the program runs.
func TestRunProgramStatsFile(t *testing.T) {
	t.Parallel()
	p := buildTool(t)
	addr, file := freeAddress(), filepath.Join(t.TempDir(), "stats")
	out, err := p.command("-d", addr, "--stats=json", "--stats-file", file, "--", "test", "-e", file).CombinedOutput()
	b, e := os.ReadFile(file)
	var u useReport
	if err != nil || e != nil || len(out) > 0 || json.Unmarshal(b, &u) != nil || u.RDMA != rdmaNoDevice || u.Program != "test" || u.Processes == nil {
		t.Errorf("%v %s, %v %s", err, out, e, b)
	}
	if out, err := p.command("--stats=xml", "--", "true").CombinedOutput(); err == nil || !strings.Contains(string(out), "the format is text or json") {
		t.Errorf("%v %s", err, out)
	}
	if out, err := p.command("-d", addr, "--stats-file", "/no/such/file", "--", "echo", "it ran").CombinedOutput(); err == nil || !strings.Contains(string(out), "/no/such/file") || strings.Contains(string(out), "it ran") {
		t.Errorf("%v %s", err, out)
	}
}

// A port of which parts can be had is shown as shared.
func TestLinksShowSharedPorts(t *testing.T) {
	t.Parallel()
	p := buildTool(t)
	addr := freeAddress()
	out, err := p.command("-d", addr, "--", p.path, "links", addr).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "shared: process ") {
		t.Errorf("%v: %s", err, out)
	}
}
