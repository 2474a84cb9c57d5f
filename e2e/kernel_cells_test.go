//go:build linux

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/e2e/guest"
)

// cell is one tool with one set of parameters.
type cell struct {
	op     string // "pingpong", or perftest's name without "ib_"
	over   string // transport service: "UC" or "UD"; "" = RC
	shared bool   // a shared receive queue; with "pingpong" many queue pairs use it
	size   int    // bytes; 0 for atomics, which have 8
	mtu    int    // path MTU in bytes
	iters  int
	qps    int // 0 = 1
	ipv6   bool
	lossy  bool // the guest loses packets in both directions
	sample bool // the dissectors read the capture

	// manager is the option of perftest that has the connection manager
	// connect the two sides: "-z" for the control channel alone, "-R" for
	// all; "" = neither.
	manager string
}

func (c cell) name() string {
	family := "ipv4"
	if c.ipv6 {
		family = "ipv6"
	}
	s := c.op
	if c.over != "" {
		s += "/" + c.over
	}
	if c.shared {
		s += "/SRQ"
	}
	s += c.manager
	s += fmt.Sprintf("/%s/mtu%d", family, c.mtu)
	if c.size > 0 {
		s += "/" + sizeName(c.size)
	}
	if c.qps > 1 {
		s += fmt.Sprintf("/%dqps", c.qps)
	}
	if c.lossy {
		s += fmt.Sprintf("/loss%d%%", lossPercent)
	}
	return s
}

func sizeName(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", n>>20)
	case n >= 16<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", n>>10)
	}
	return fmt.Sprintf("%dB", n)
}

// title is that of the tool with its options, or of all with loss.
func (c cell) title() string {
	if c.lossy {
		return lossTitle
	}
	title := c.tool()
	if c.op != "pingpong" {
		if c.over != "" {
			title += " -c " + c.over
		}
		if c.shared {
			title += " --use-srq"
		}
		if c.manager != "" {
			title = "perftest " + c.manager
		}
	}
	return title
}

var lossTitle = fmt.Sprintf("%d %% loss in the guest, each direction", lossPercent)

func (c cell) traits() traits {
	t := traits{ipv6: c.ipv6, lossy: c.lossy, sample: c.sample}
	if c.manager != "" {
		t.meets = meeting{space: "TCP"}
		if c.lossy {
			t.patience = disconnecting
		}
	}
	return t
}

func (c cell) playable(bool) bool { return true }

func (c cell) left(context.Context, string, *guest.Guest, bool, *guest.Process) error { return nil }

// pingpong names the ping-pong of the cell, as our -t has it.
func (c cell) pingpong() string {
	switch {
	case c.shared:
		return "srq"
	case c.over != "":
		return strings.ToLower(c.over)
	}
	return "rc"
}

// tool is the field's own program.
func (c cell) tool() string {
	if c.op == "pingpong" {
		return "ibv_" + c.pingpong() + "_pingpong"
	}
	return "ib_" + c.op
}

// kernelArgv is the field's own tool in a guest. server is "" for the server.
func (c cell) kernelArgv(g *guest.Guest, port int, server string) []string {
	if c.op == "pingpong" {
		return c.add([]string{c.tool(), "-d", "rxe0", "-g", strconv.Itoa(g.GIDIndex(c.ipv6)), "-e"}, port, server)
	}
	argv := []string{c.tool(), "-d", "rxe0", "-x", strconv.Itoa(g.GIDIndex(c.ipv6)), "-F"}
	if !c.lossy {
		// A starved emulator is no lost packet: 0.5 s instead of 67 ms
		// before the kernel sends again.
		argv = append(argv, "-u", "17")
	}
	return c.add(argv, port, server)
}

// ourArgv is this project's tool on the host.
func (c cell) ourArgv(bin string, g *guest.Guest, port int, server string) []string {
	argv := []string{bin, "perf", c.op, "-F"}
	if c.op == "pingpong" {
		argv = []string{bin, "pingpong", "-e", "-t", c.pingpong()}
	}
	if c.op != "pingpong" && !c.lossy {
		// As for the kernel: a guest that is not scheduled for half a
		// second is no peer that is gone.
		argv = append(argv, "-u", "17")
	}
	argv = append(argv, "-d", g.Host(c.ipv6).String())
	if c.ipv6 { // the field's tools meet over IPv4 all the same
		argv = append(argv, "--peer-gid", g.Addr(true).String())
		if server == "" {
			argv = append(argv, "--listen", g.Host4.String())
		}
	}
	return c.add(argv, port, server)
}

// add appends the flags that both worlds share.
func (c cell) add(argv []string, port int, server string) []string {
	argv = append(argv, "-p", strconv.Itoa(port), "-n", strconv.Itoa(c.iters))
	if c.op != "pingpong" || c.over != "UD" { // ibv_ud_pingpong has no path MTU
		argv = append(argv, "-m", strconv.Itoa(c.mtu))
	}
	if c.op != "pingpong" && c.over != "" {
		argv = append(argv, "-c", c.over)
	}
	if c.op != "pingpong" && c.shared {
		argv = append(argv, "--use-srq")
	}
	if c.size > 0 {
		argv = append(argv, "-s", strconv.Itoa(c.size))
	}
	if c.qps > 1 {
		argv = append(argv, "-q", strconv.Itoa(c.qps))
	}
	if c.manager != "" {
		argv = append(argv, c.manager)
	}
	if server != "" {
		argv = append(argv, server)
	}
	return argv
}

// expected is the least that client and server must have put on the wire.
func (c cell) expected() (client, server traffic) {
	client, server = c.moved()
	if n := c.connections(); n > 0 {
		client.managed, server.managed = rcMessages(n, c.lossy)
	}
	return client, server
}

// connections is how many the connection manager makes.
func (c cell) connections() int {
	switch c.manager {
	case "-z":
		return 1
	case "-R":
		return 1 + max(c.qps, 1)
	}
	return 0
}

// moved is what the test itself moves.
func (c cell) moved() (client, server traffic) {
	all := c.size * c.iters * max(c.qps, 1)
	switch c.op {
	case "pingpong", "send_lat", "write_lat":
		return traffic{payload: all}, traffic{payload: all}
	case "send_bw", "write_bw":
		return traffic{payload: all}, traffic{}
	case "read_bw", "read_lat":
		return traffic{}, traffic{payload: all}
	}
	return traffic{atomics: c.iters}, traffic{}
}

// silent reports whether a side that must send nothing of its own sends nothing
// at all: UC and UD have no acknowledgements.
func (c cell) silent(want traffic) bool {
	return c.over != "" && want.payload == 0 && want.atomics == 0
}

// matrixCells are run in both roles against every kernel.
func matrixCells() []cell {
	var cells []cell
	for _, ipv6 := range []bool{false, true} {
		for _, mtu := range []int{1024, 4096} {
			for _, s := range []struct{ size, iters int }{{1, 200}, {1000, 200}, {4096, 200}, {1 << 20, 10}} {
				cells = append(cells, cell{op: "pingpong", ipv6: ipv6, mtu: mtu, size: s.size, iters: s.iters, sample: s.size == 4096 && mtu == 1024})
			}
		}
	}
	for _, op := range []string{"send_bw", "write_bw", "read_bw"} {
		cells = append(cells,
			cell{op: op, mtu: 4096, size: 65536, iters: 200},
			cell{op: op, mtu: 1024, size: 65536, iters: 100, ipv6: true, sample: true},
			cell{op: op, mtu: 1024, size: 1000, iters: 500},
		)
	}
	return append(cells,
		cell{op: "write_bw", mtu: 4096, size: 4096, iters: 100, qps: 4},
		cell{op: "atomic_bw", mtu: 1024, iters: 200, sample: true},
		cell{op: "atomic_bw", mtu: 4096, iters: 200, ipv6: true},
		cell{op: "send_lat", mtu: 1024, size: 2, iters: 100},
		cell{op: "send_lat", mtu: 4096, size: 8192, iters: 50, ipv6: true},
		cell{op: "write_lat", mtu: 1024, size: 2, iters: 100},
		cell{op: "write_lat", mtu: 4096, size: 8192, iters: 50, ipv6: true},
		cell{op: "read_lat", mtu: 1024, size: 2, iters: 100},
		cell{op: "read_lat", mtu: 4096, size: 8192, iters: 50, ipv6: true},
		cell{op: "atomic_lat", mtu: 1024, iters: 100},
	)
}

// serviceCells are run in both roles against every kernel, too. Nothing repeats
// what UC and UD lose, so these runs are short: a guest with one processor must
// take them whole.
func serviceCells() []cell {
	var cells []cell
	for _, ipv6 := range []bool{false, true} {
		cells = append(cells,
			cell{op: "pingpong", over: "UC", ipv6: ipv6, mtu: 1024, size: 4096, iters: 100, sample: true},
			cell{op: "pingpong", over: "UC", ipv6: ipv6, mtu: 4096, size: 65536, iters: 20},
			cell{op: "pingpong", over: "UD", ipv6: ipv6, mtu: 4096, size: 1000, iters: 100, sample: true},
			cell{op: "pingpong", over: "UD", ipv6: ipv6, mtu: 4096, size: 4096, iters: 50},
			cell{op: "pingpong", shared: true, ipv6: ipv6, mtu: 1024, size: 4096, iters: 200, sample: true},
			cell{op: "send_bw", over: "UC", ipv6: ipv6, mtu: 1024, size: 4096, iters: 50},
			cell{op: "write_bw", over: "UC", ipv6: ipv6, mtu: 1024, size: 4096, iters: 50},
			cell{op: "send_lat", over: "UC", ipv6: ipv6, mtu: 1024, size: 2, iters: 100},
			cell{op: "write_lat", over: "UC", ipv6: ipv6, mtu: 4096, size: 8192, iters: 50},
			cell{op: "send_bw", over: "UD", ipv6: ipv6, mtu: 1024, size: 1000, iters: 100},
			cell{op: "send_lat", over: "UD", ipv6: ipv6, mtu: 4096, size: 4096, iters: 50},
			cell{op: "send_bw", shared: true, ipv6: ipv6, mtu: 1024, size: 4096, iters: 100, qps: 4},
			cell{op: "send_lat", shared: true, ipv6: ipv6, mtu: 4096, size: 64, iters: 50},
		)
	}
	return append(cells, cell{op: "send_bw", over: "UD", shared: true, mtu: 4096, size: 64, iters: 50})
}

// lossyCells are run while the guest loses packets in both directions.
func lossyCells() []cell {
	cells := []cell{
		{op: "pingpong", mtu: 1024, size: 1000, iters: 100, ipv6: true},
		{op: "pingpong", mtu: 4096, size: 4096, iters: 100},
		{op: "pingpong", mtu: 1024, size: 1 << 20, iters: 3},
		{op: "send_bw", mtu: 1024, size: 65536, iters: 50},
		{op: "write_bw", mtu: 1024, size: 65536, iters: 50},
		{op: "read_bw", mtu: 1024, size: 65536, iters: 50},
		{op: "atomic_bw", mtu: 1024, iters: 200},
		{op: "send_lat", mtu: 1024, size: 4096, iters: 50},
		{op: "write_lat", mtu: 1024, size: 4096, iters: 50},
		{op: "read_lat", mtu: 1024, size: 4096, iters: 50},
		{op: "atomic_lat", mtu: 1024, iters: 100},
	}
	for i := range cells {
		cells[i].lossy = true
	}
	return cells
}

// cleanCells are all that run without loss, and lossCells all that run with it.
func cleanCells() []scenario {
	return slices.Concat(scenarios(matrixCells()), scenarios(serviceCells()), cmCells(), managedCells())
}

func lossCells() []scenario { return append(scenarios(lossyCells()), lossyCMCells()...) }

func scenarios[S scenario](list []S) []scenario {
	all := make([]scenario, len(list))
	for i, c := range list {
		all[i] = c
	}
	return all
}
