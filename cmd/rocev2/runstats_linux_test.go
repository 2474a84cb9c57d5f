package main

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/programs"
	"github.com/gosoftroce/rocev2/transport/owner"
)

func TestWriteUse(t *testing.T) {
	t.Parallel()
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	silent := func(pid int, l owner.Lease) programs.Used {
		l.PID, l.UID, l.Command = pid, 1000, "ib_write_bw"
		return programs.Used{Device: "rxe_eth0", Addr: a, Lease: l}
	}
	used := func(pid int, l owner.Lease) programs.Used {
		l.Told = true
		return silent(pid, l)
	}
	for _, c := range []struct {
		name string
		list []programs.Used
		want string
		lack string
	}{
		{"no device", nil, "./app has used no device of rocev2", "sent"},
		{"nothing sent", []programs.Used{used(7, owner.Lease{})}, "no packet passed the network", "peers"},
		{"one process", []programs.Used{used(7, owner.Lease{TxBytes: 1, TxPackets: 2, RxBytes: 3, RxPackets: 1, MadeQPs: 5, QPs: 2, Connections: 1,
			Reached: []owner.Peer{{Addr: b, Native: true}}, Peers: []netip.Addr{a, b}})},
			"rocev2 run: ib_write_bw, process 7, user 1000, on rxe_eth0 (192.0.2.1)\n" +
				"  sent      1 byte in 2 packets, by UDP\n  received  3 bytes in 1 packet, by UDP\n  made      5 queue pairs; open: 2 queue pairs, 1 connection\n" +
				"  peers     192.0.2.2 (rocev2), 192.0.2.1 (this address)\n", "no packet"},
		{"shared memory", []programs.Used{used(7, owner.Lease{TxBytes: 100, TxPackets: 2, TxShm: 100, RxBytes: 30, RxPackets: 2, RxShm: 10})},
			"  sent      100 bytes in 2 packets, all through shared memory\n  received  30 bytes in 2 packets, by UDP, and of them 10 bytes through shared memory\n", "no packet"},
		{"a process that told nothing", []programs.Used{silent(7, owner.Lease{})}, "is not known", "no packet"},
		{"a device opened to look", []programs.Used{used(7, owner.Lease{}), used(7, owner.Lease{RxPackets: 3, TxPackets: 3})}, "in 3 packets", "in 0 packets"},
		{"in order", []programs.Used{used(9, owner.Lease{TxPackets: 1}), used(8, owner.Lease{})}, "process 8, ", "no packet"},
	} {
		var out strings.Builder
		writeUse(&out, "./app", c.list)
		if !strings.Contains(out.String(), c.want) || strings.Contains(out.String(), c.lack) {
			t.Errorf("%s: %s", c.name, out.String())
		}
	}
}

// What was there before the run, as the daemon itself, is not of the run.
func TestUseSinceThen(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	list := sinceThen([]programs.Used{{Lease: owner.Lease{PID: 1, Since: begin.Add(-1)}}, {Lease: owner.Lease{PID: 2, Since: begin}}}, begin)
	if len(list) != 1 || list[0].Lease.PID != 2 {
		t.Errorf("got %+v", list)
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
