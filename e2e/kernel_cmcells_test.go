//go:build linux

package e2e

import (
	"context"
	"crypto/md5"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gosoftroce/rocev2/e2e/guest"
)

// cmCell is a program that connects by the connection manager, with one set of
// parameters. Both sides have the same program, with the same flags.
type cmCell struct {
	tool   string // of the client
	ipv6   bool
	size   int // bytes of a message, or of the file
	iters  int // messages, pings ...; of rstream: transfers, rstreamTurns times
	conns  int // connections; 0 = 1
	lossy  bool
	sample bool
	only   string // "client" or "server": the role that we have; "" = both
}

// mckey by default, and the file of rcopy.
const (
	mckeyMessages = 10
	mckeySize     = 100
	rcopySize     = 300_000
)

// groupSpace is in the place of a port space for tools that meet in a multicast
// group.
const groupSpace = "group"

// groupOf is a group for a guest alone: all are on one bridge.
func groupOf(g *guest.Guest) netip.Addr {
	return netip.AddrFrom4([4]byte{239, 18, 0, g.Addr4.As4()[3]})
}

// rstreamTurns is how often the transfers of rstream go forth and back.
const rstreamTurns = 3

// cmTool is what a program does on the wire, and how it is told what to do.
type cmTool struct {
	server string // its name, "" = that of the client
	port   int    // of the connection manager
	space  string // "" = TCP

	// common are arguments of both sides. serve and dial are those of one:
	// at is its own address for a server, and the server's for a client.
	common      func(cmCell) []string
	serve, dial func(c cmCell, at string) []string

	// payload is the least that each side sends for a cell, in bytes.
	payload func(cmCell) (client, server int)
	endless bool // a server goes on for ever
}

// flags makes arguments of names and numbers; a 0 is left out.
func flags(nameAndValue ...any) (argv []string) {
	for f := range slices.Chunk(nameAndValue, 2) {
		if n := f[1].(int); n != 0 {
			argv = append(argv, f[0].(string), strconv.Itoa(n))
		}
	}
	return argv
}

// flagAt passes the address after a flag.
func flagAt(flag string) func(cmCell, string) []string {
	return func(_ cmCell, at string) []string { return []string{flag, at} }
}

func none(cmCell, string) []string { return nil }

// both is a payload that is the same for both sides.
func both(n func(cmCell) int) func(cmCell) (int, int) {
	return func(c cmCell) (int, int) { return n(c), n(c) }
}

// messages are those of a tool with -c, -C and -S, of 100 bytes by default.
func messages(c cmCell) int { return max(c.conns, 1) * c.iters * max(c.size, 100) }

var cmTools = map[string]cmTool{
	"rping": {
		port:   7174,
		common: func(c cmCell) []string { return flags("-S", c.size) },
		serve:  func(_ cmCell, at string) []string { return []string{"-s", "-a", at} },
		dial: func(c cmCell, at string) []string {
			return append([]string{"-c", "-V", "-a", at}, flags("-C", c.iters)...)
		},
		payload: both(func(c cmCell) int { return c.iters * (32 + c.size) }),
	},
	"rdma_client": {
		server: "rdma_server", port: 7471,
		serve: flagAt("-s"), dial: flagAt("-s"),
		payload: both(func(cmCell) int { return 16 }),
	},
	"rdma_xclient": {
		server: "rdma_xserver", port: 7471,
		serve: none, dial: flagAt("-s"),
		payload: func(cmCell) (int, int) { return 16, 0 },
	},
	"ucmatose": {
		port:   7471,
		common: func(c cmCell) []string { return flags("-c", c.conns, "-C", c.iters, "-S", c.size) },
		serve:  flagAt("-b"), dial: flagAt("-s"), payload: both(messages),
	},
	"udaddy": {
		port: 7174, space: "UDP",
		common: func(c cmCell) []string { return flags("-c", c.conns, "-C", c.iters, "-S", c.size) },
		serve:  flagAt("-b"), dial: flagAt("-s"), payload: both(messages),
	},
	"cmtime": {
		port: 7471, endless: true,
		common: func(c cmCell) []string { return flags("-c", c.conns) },
		serve:  flagAt("-b"), dial: flagAt("-s"),
		payload: both(func(cmCell) int { return 0 }),
	},
	// The sender is the client. It takes part in the group, too.
	"mckey": {
		space: groupSpace, serve: none, dial: func(cmCell, string) []string { return []string{"-s"} },
		common: func(c cmCell) []string { return flags("-C", c.iters) },
		// The sender of the original leaves without waiting for what it
		// sends, and Linux 6.12 then sends a part of it: one at least.
		payload: func(cmCell) (int, int) { return mckeySize, 0 },
	},
	"rcopy": {
		port: 7427, endless: true,
		serve: none, dial: none, // see rcopyArgv
		payload: func(c cmCell) (int, int) { return c.size, 0 },
	},
	"rstream": {
		port: 7471,
		common: func(c cmCell) []string {
			return append(flags("-S", c.size, "-C", c.iters, "-I", rstreamTurns), "-T", "v")
		},
		serve: flagAt("-b"), dial: flagAt("-s"),
		payload: both(func(c cmCell) int { return c.size * c.iters * rstreamTurns }),
	},
}

func (c cmCell) program() cmTool { return cmTools[c.tool] }

func (c cmCell) name() string {
	s := c.tool + "/" + c.family("ipv4", "ipv6")
	if c.size > 0 {
		s += "/" + sizeName(c.size)
	}
	if c.conns > 0 {
		s += fmt.Sprintf("/%dconns", c.conns)
	}
	if c.lossy {
		s += fmt.Sprintf("/loss%d%%", lossPercent)
	}
	return s
}

func (c cmCell) family(v4, v6 string) string {
	if c.ipv6 {
		return v6
	}
	return v4
}

func (c cmCell) title() string {
	if c.lossy {
		return lossTitle
	}
	return "Programs of librdmacm"
}

func (c cmCell) rowName() string {
	s := c.tool
	if c.size > 0 {
		s += ", " + sizeName(c.size)
	}
	s += ", " + c.family("IPv4", "IPv6")
	if c.conns > 0 {
		s += fmt.Sprintf(", %d connections", c.conns)
	}
	if c.iters > 0 {
		s += fmt.Sprintf(", ×%d", c.iters)
	}
	return s
}

func (c cmCell) traits() traits {
	p := c.program()
	t := traits{ipv6: c.ipv6, lossy: c.lossy, sample: c.sample, meets: meeting{space: "TCP", port: p.port}}
	if p.space != "" {
		t.meets.space = p.space
	}
	if p.endless {
		t.ends = syscall.SIGTERM
	}
	if c.lossy {
		t.patience = disconnecting
	}
	return t
}

func (c cmCell) playable(weServe bool) bool {
	return c.only == "" || weServe == (c.only == "server")
}

// argv is that of the original and of ours, without the program.
func (c cmCell) argv(g *guest.Guest, own netip.Addr, server string) []string {
	p := c.program()
	var argv []string
	if server == "" {
		argv = p.serve(c, own.String())
	} else {
		argv = p.dial(c, server)
	}
	if p.common != nil {
		argv = append(argv, p.common(c)...)
	}
	if p.space == groupSpace {
		argv = append(argv, "-b", own.String(), "-m", groupOf(g).String())
	}
	return argv
}

// role is the name of the program.
func (c cmCell) role(server string) string {
	if name := c.program().server; server == "" && name != "" {
		return name
	}
	return c.tool
}

func (c cmCell) kernelArgv(g *guest.Guest, _ int, server string) []string {
	if c.tool == "rcopy" && server != "" {
		script := fmt.Sprintf("head -c %d /dev/urandom >%s && exec rcopy %s %s:%s", c.size, guestSource, guestSource, server, c.file(g))
		return []string{"sh", "-c", script}
	}
	return append([]string{c.role(server)}, c.argv(g, g.Addr(c.ipv6), server)...)
}

func (c cmCell) ourArgv(bin string, g *guest.Guest, _ int, server string) []string {
	own := g.Host(c.ipv6)
	switch {
	case c.tool == "mckey" && server == "":
		c.iters = 1 // see cmTools
	case c.tool == "cmtime" && server == "":
		c.conns = 0 // then it goes on for ever, as the original
	}
	argv := append([]string{bin, c.role(server), "--ib-dev", own.String()}, c.argv(g, own, server)...)
	switch {
	case c.tool == "rcopy" && server == "":
		argv = append(argv, "--root", filesOf(bin))
	case c.tool == "rcopy":
		argv = append(argv, sourceOf(bin), server+":"+guestCopy)
	case c.tool == "mckey":
		argv = append(argv, "--json")
	}
	return argv
}

// Where rcopy finds and leaves files.
const (
	guestSource = "/tmp/rcopy.source"
	guestCopy   = "/tmp/rcopy.copy"
)

func filesOf(bin string) string             { return filepath.Join(filepath.Dir(bin), "files") }
func sourceOf(bin string) string            { return filepath.Join(filepath.Dir(bin), "source") }
func (c cmCell) file(g *guest.Guest) string { return c.family("copy4.", "copy6.") + g.Line }

// left compares what rcopy has copied, and checks the sender that our mckey
// names.
func (c cmCell) left(ctx context.Context, bin string, g *guest.Guest, weServe bool, server *guest.Process) error {
	switch {
	case c.tool == "mckey" && weServe:
		stdout, _ := server.Output()
		var said struct{ From string }
		if err := json.Unmarshal([]byte(stdout), &said); err != nil || said.From != g.Addr(c.ipv6).String() {
			return fmt.Errorf("our receiver says that %q has sent, not %v (%v)", said.From, g.Addr(c.ipv6), err)
		}
	case c.tool == "rcopy":
		there, here := guestCopy, sourceOf(bin)
		if weServe {
			there, here = guestSource, filepath.Join(filesOf(bin), c.file(g))
		}
		sum, err := guest.Run(ctx, g, "md5sum", there)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(here)
		if err != nil {
			return err
		}
		if want := fmt.Sprintf("%x", md5.Sum(data)); !strings.HasPrefix(sum.Stdout, want) || len(data) != c.size {
			return fmt.Errorf("the copy of %d bytes has the MD5 sum %s in the guest and %s on our side, which has %d bytes", c.size, sum.Stdout, want, len(data))
		}
	}
	return nil
}

func (c cmCell) expected() (client, server traffic) {
	p, n := c.program(), max(c.conns, 1)
	client.payload, server.payload = p.payload(c)
	if p.space == groupSpace {
		client.cast = 1
		return client, server
	}
	if p.space == "UDP" {
		client.managed, server.managed = cmSent{sidrReq: n}, cmSent{sidrRep: n}
		return client, server
	}
	client.managed, server.managed = rcMessages(n, c.lossy)
	return client, server
}

// rcMessages are those of n connections. With loss data can be in the place of
// an RTU: it says as much.
func rcMessages(n int, lossy bool) (client, server cmSent) {
	if lossy {
		return cmSent{req: n}, cmSent{rep: n}
	}
	return cmSent{req: n, rtu: n}, cmSent{rep: n}
}

// silent: a receiver of multicast sends nothing.
func (c cmCell) silent(want traffic) bool { return c.tool == "mckey" && want.cast == 0 }

// cmCells are run in both roles against every kernel.
func cmCells() []scenario {
	var cells []scenario
	for _, ipv6 := range []bool{false, true} {
		cells = append(cells,
			cmCell{tool: "rping", ipv6: ipv6, size: 64, iters: 10, sample: true},
			cmCell{tool: "rping", ipv6: ipv6, size: 65535, iters: 3},
			cmCell{tool: "rdma_client", ipv6: ipv6, sample: true},
			cmCell{tool: "ucmatose", ipv6: ipv6, size: 100, iters: 10, sample: !ipv6},
			cmCell{tool: "ucmatose", ipv6: ipv6, size: 6000, iters: 10, conns: 3},
			cmCell{tool: "udaddy", ipv6: ipv6, size: 100, iters: 10, sample: true},
			cmCell{tool: "cmtime", ipv6: ipv6, conns: 20, sample: true},
			cmCell{tool: "rstream", ipv6: ipv6, size: 65536, iters: 5, sample: !ipv6},
		)
	}
	cells = append(cells,
		cmCell{tool: "rdma_xclient"},
		cmCell{tool: "mckey", iters: mckeyMessages, sample: true},
		cmCell{tool: "rcopy", size: rcopySize},
		cmCell{tool: "rstream", size: 100, iters: 50},
	)
	return cells
}

// lossyCMCells are run while the guest loses packets in both directions. Lost
// datagrams of udaddy and mckey are not repeated, so they are not here.
func lossyCMCells() []scenario {
	return []scenario{
		cmCell{tool: "rping", size: 1000, iters: 20, lossy: true},
		cmCell{tool: "rdma_client", ipv6: true, lossy: true},
		cmCell{tool: "ucmatose", size: 1000, iters: 20, conns: 3, lossy: true},
		cmCell{tool: "rdma_xclient", lossy: true},
		cmCell{tool: "cmtime", conns: 20, lossy: true},
		cmCell{tool: "rstream", size: 65536, iters: 5, lossy: true},
		cmCell{tool: "rcopy", size: rcopySize, lossy: true},
		cell{op: "write_bw", manager: "-z", mtu: 1024, size: 65536, iters: 20, lossy: true},
		cell{op: "write_bw", manager: "-R", mtu: 1024, size: 65536, iters: 20, qps: 2, lossy: true},
		cell{op: "read_bw", manager: "-R", mtu: 1024, size: 65536, iters: 20, lossy: true},
		cell{op: "send_lat", manager: "-R", mtu: 1024, size: 64, iters: 20, lossy: true},
		cell{op: "write_lat", manager: "-R", mtu: 1024, size: 64, iters: 20, lossy: true},
	}
}

// managedCells are perftest over the connection manager, over IPv4: the
// original resolves no IPv6 addresses.
func managedCells() []scenario {
	var cells []scenario
	for _, manager := range []string{"-z", "-R"} {
		for _, c := range []cell{
			{op: "send_bw", size: 65536, iters: 50},
			{op: "write_bw", size: 65536, iters: 50},
			{op: "read_bw", size: 65536, iters: 50},
			{op: "atomic_bw", iters: 50},
			{op: "send_lat", size: 64, iters: 50},
			{op: "write_lat", size: 64, iters: 50},
			{op: "read_lat", size: 64, iters: 50},
			{op: "atomic_lat", iters: 50},
		} {
			c.manager, c.mtu, c.sample = manager, 1024, c.op == "send_lat"
			cells = append(cells, c)
		}
	}
	return append(cells, cell{op: "write_bw", manager: "-R", mtu: 4096, size: 4096, iters: 50, qps: 3})
}
