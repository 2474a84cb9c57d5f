//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/e2e/guest"
)

// daemonCell is a tool of the guest as the client of rocev2d, which serves all
// of them at once on their usual ports and is not told what comes.
type daemonCell struct {
	scenario        // the client
	tool     string // that rocev2d must take it for
	records  int    // how many of them it must tell of
	port     int    // of TCP
}

func (c daemonCell) name() string { return "rocev2d/" + c.scenario.name() }

func (c daemonCell) title() string { return "Clients of one rocev2d" }

func (c daemonCell) rowName() string {
	if cell, ok := c.scenario.(cell); ok {
		return strings.TrimPrefix(cell.title()+", "+cell.rowName(), ", ")
	}
	return c.scenario.rowName()
}

func (c daemonCell) playable(weServe bool) bool { return weServe }

func (c daemonCell) kernelArgv(g *guest.Guest, _ int, server string) []string {
	return c.scenario.kernelArgv(g, c.port, server)
}

// left compares what rcopy has copied. Which sender our mckey has heard is in
// the log.
func (c daemonCell) left(ctx context.Context, bin string, g *guest.Guest, _ bool, _ *guest.Process) error {
	if of, ok := c.scenario.(cmCell); ok && of.tool != "mckey" {
		return of.left(ctx, bin, g, true, nil)
	}
	return nil
}

// The ports of rocev2d for services that clients of perftest do not tell.
const (
	daemonRC = 18515
	daemonUC = 18516
	daemonUD = 18517
)

// daemonCells are all tools of the guests. The sizes and numbers are what the
// clients choose: rocev2d learns them from what they do.
func daemonCells() []scenario {
	var cells []scenario
	over := func(port int, list ...cell) {
		for _, c := range list {
			c.mtu = 1024
			cells = append(cells, daemonCell{c, c.tool(), 1, port})
		}
	}
	over(daemonRC,
		cell{op: "pingpong", size: 1000, iters: 50},
		cell{op: "pingpong", shared: true, size: 4096, iters: 100},
		cell{op: "send_bw", size: 2000, iters: 50, qps: 3},
		cell{op: "write_bw", size: 65536, iters: 50, qps: 2},
		cell{op: "read_bw", size: 65536, iters: 50},
		cell{op: "atomic_bw", iters: 50},
		cell{op: "send_lat", size: 64, iters: 50},
		cell{op: "write_lat", size: 64, iters: 50},
		cell{op: "write_lat", size: 3000, iters: 50},
		cell{op: "read_lat", size: 64, iters: 50},
		cell{op: "atomic_lat", iters: 50},
	)
	over(daemonUC, cell{op: "pingpong", over: "UC", size: 1000, iters: 50}, cell{op: "write_bw", over: "UC", size: 4096, iters: 50})
	over(daemonUD, cell{op: "pingpong", over: "UD", size: 1000, iters: 50}, cell{op: "send_lat", over: "UD", size: 64, iters: 50})
	for _, ipv6 := range []bool{false, true} {
		cells = append(cells,
			daemonCell{cmCell{tool: "rping", ipv6: ipv6, size: 1000, iters: 10}, "rping", 1, 0},
			daemonCell{cmCell{tool: "rdma_client", ipv6: ipv6}, "rdma_client", 1, 0},
			daemonCell{cmCell{tool: "ucmatose", ipv6: ipv6, size: 100, iters: 10}, "ucmatose", 1, 0},
			daemonCell{cmCell{tool: "udaddy", ipv6: ipv6, size: 100, iters: 10}, "udaddy", 1, 0},
			daemonCell{cmCell{tool: "cmtime", ipv6: ipv6, conns: 10}, "cmtime", 10, 0},
		)
	}
	return append(cells,
		daemonCell{cmCell{tool: "mckey", iters: mckeyMessages}, "mckey", 1, 0},
		daemonCell{cmCell{tool: "rcopy", size: rcopySize}, "rcopy", 1, 0},
	)
}

// daemon is a running rocev2d.
type daemon struct {
	bin   string
	guest []*guest.Guest
	p     *guest.Process
}

// startDaemon starts one with all addresses of our side. It listens for the
// tools alone.
func startDaemon(t *testing.T, lab *guest.Lab, bin string) *daemon {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "drain = \"1s\"\n[log]\nformat = \"json\"\n[admin]\nlisten = \"\"\n")
	var groups []string
	for _, g := range lab.Guests {
		fmt.Fprintf(&b, "[[device]]\naddress = %q\n[[device]]\naddress = %q\n", g.Host4, g.Host6)
		groups = append(groups, fmt.Sprintf("%q", groupOf(g).String()))
	}
	fmt.Fprintf(&b, "[targets]\ngroups = [%s]\nrcopy_root = %q\n[targets.ports]\nperftest_uc = %d\nperftest_ud = %d\n",
		strings.Join(groups, ", "), filesOf(bin), daemonUC, daemonUD)
	config := filepath.Join(filepath.Dir(bin), "rocev2d.toml")
	if err := os.WriteFile(config, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := lab.Host.Unprivileged().Start(context.WithoutCancel(t.Context()), bin+"d", "--config", config)
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{bin: bin, guest: lab.Guests, p: p}
	t.Cleanup(func() { d.stop(t) })
	if err := d.await(t.Context(), "ready", func(log) bool { return true }, 1); err != nil {
		t.Fatal(err)
	}
	return d
}

// stop has it drain: it must end well.
func (d *daemon) stop(t *testing.T) {
	_ = d.p.Signal(syscall.SIGTERM)
	late := time.AfterFunc(30*time.Second, func() { _ = d.p.Signal(syscall.SIGKILL) })
	defer late.Stop()
	if err := ended("rocev2d", d.p); err != nil {
		t.Error(err)
	}
	if stdout, stderr := d.p.Output(); t.Failed() {
		t.Logf("rocev2d: %s%s", stdout, stderr)
	}
}

// log is a line of rocev2d's log.
type log struct{ Msg, Target, Peer, Tool string }

// count returns how many lines with a message fit.
func (d *daemon) count(msg string, fits func(log) bool) (n int) {
	stdout, stderr := d.p.Output()
	for line := range strings.Lines(stdout + stderr) {
		var l log
		if json.Unmarshal([]byte(line), &l) == nil && l.Msg == msg && fits(l) {
			n++
		}
	}
	return n
}

// await returns when n lines fit.
func (d *daemon) await(ctx context.Context, msg string, fits func(log) bool, n int) error {
	tick, late := time.NewTicker(20*time.Millisecond), time.After(grace)
	defer tick.Stop()
	for d.count(msg, fits) < n {
		select {
		case <-tick.C:
		case <-d.p.Done():
			return ended("rocev2d", d.p)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late:
			return fmt.Errorf("rocev2d says %q of this client %d times, not %d", msg, d.count(msg, fits), n)
		}
	}
	return nil
}

// runClients runs the clients of a guest one after the other.
func (d *daemon) runClients(t *testing.T, m *matrix, h *guest.Host, g *guest.Guest) {
	for _, c := range daemonCells() {
		c := c.(daemonCell)
		ipv6 := c.traits().ipv6
		r := &run{
			cell: c, tap: g.Tap, host: h, client: kernelSide(g, c), server: side{addr: kernelReaches(g, c)},
			ours: g.Host(ipv6).String(), serverAddr: g.Host(ipv6).String(), clientAddr: g.Addr(ipv6).String(),
		}
		t.Run(c.name(), func(t *testing.T) {
			start := time.Now()
			faults := 0
			defer func() { m.set(g.Line, true, c, result{outcome(t), faults, time.Since(start)}) }()
			if err := alive(t.Context(), g); err != nil {
				t.Fatalf("guest does not answer: %v", err)
			}
			from := g.Addr(ipv6).String()
			fits := func(l log) bool {
				host, _, err := net.SplitHostPort(l.Peer)
				if c.tool == "mckey" {
					host, err = from, nil
					if !strings.Contains(l.Peer, groupOf(g).String()+",") {
						return false
					}
				}
				return err == nil && host == from && l.Tool == c.tool
			}
			r.left = func(ctx context.Context, _ *guest.Process) error {
				if c.tool == "mckey" {
					return nil // see cmTools: all messages do not come
				}
				// Several attempts are several clients.
				if err := d.await(ctx, "client done", fits, c.records); err != nil {
					return err
				}
				return c.left(ctx, d.bin, g, true, nil)
			}
			faults = runCell(t, r, g)
		})
	}
}

// kernelReaches is the address of ours that a client in the guest is given.
func kernelReaches(g *guest.Guest, c scenario) string {
	if c.traits().meets.space == "" {
		return g.Host4.String()
	}
	return g.Host(c.traits().ipv6).String()
}
