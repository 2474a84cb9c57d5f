//go:build linux

package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
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

// rstreamTurns is how often the transfers of rstream go forth and back.
const rstreamTurns = 3

// cmTool is what a program does on the wire, and how it is told what to do.
type cmTool struct {
	server string // its name, "" = that of the client
	port   int    // of the connection manager
	space  string // "" = TCP

	// common are arguments of both sides. serve and dial are those of one,
	// whose peer or own address is at.
	common      func(cmCell) []string
	serve, dial func(c cmCell, at string) []string

	// payload is the least that each side sends for a cell, in bytes.
	payload func(cmCell) (client, server int)
	parts   bool // somebody disconnects each connection
	endless bool // the original's server goes on for ever
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

// flagAt passes the address behind a flag.
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
		port: 7174, parts: true,
		common:  func(c cmCell) []string { return flags("-S", c.size) },
		serve:   func(_ cmCell, at string) []string { return []string{"-s", "-a", at} },
		dial:    func(c cmCell, at string) []string { return append([]string{"-c", "-V", "-a", at}, flags("-C", c.iters)...) },
		payload: both(func(c cmCell) int { return c.iters * (32 + c.size) }),
	},
	"rdma_client": {
		server: "rdma_server", port: 7471, parts: true,
		serve: flagAt("-s"), dial: flagAt("-s"),
		payload: both(func(cmCell) int { return 16 }),
	},
	"rdma_xclient": {
		server: "rdma_xserver", port: 7471, parts: true,
		serve: none, dial: flagAt("-s"),
		payload: func(cmCell) (int, int) { return 16, 0 },
	},
	"ucmatose": {
		port: 7471, parts: true,
		common: func(c cmCell) []string { return flags("-c", c.conns, "-C", c.iters, "-S", c.size) },
		serve:  flagAt("-b"), dial: flagAt("-s"), payload: both(messages),
	},
	"udaddy": {
		port: 7174, space: "UDP",
		// Without messages it connects all the same: that is what can be
		// run with loss.
		common: func(c cmCell) []string {
			return append(flags("-c", c.conns, "-S", c.size), "-C", strconv.Itoa(c.iters))
		},
		serve: flagAt("-b"), dial: flagAt("-s"), payload: both(messages),
	},
	"cmtime": {
		port: 7471, parts: true, endless: true,
		common: func(c cmCell) []string { return flags("-c", c.conns) },
		serve:  flagAt("-b"), dial: flagAt("-s"),
		payload: both(func(cmCell) int { return 0 }),
	},
	"rstream":   rstreamTool,
	"riostream": rstreamTool,
}

var rstreamTool = cmTool{
	port: 7471, parts: true,
	common: func(c cmCell) []string {
		return append(flags("-S", c.size, "-C", c.iters, "-I", rstreamTurns), "-T", "v")
	},
	serve: flagAt("-b"), dial: flagAt("-s"),
	payload: both(func(c cmCell) int { return c.size * c.iters * rstreamTurns }),
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
	return t
}

func (c cmCell) playable(weServe bool) bool {
	return c.only == "" || weServe == (c.only == "server")
}

// argv is that of the original and of ours, without the program.
func (c cmCell) argv(own netip.Addr, server string) []string {
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
	return append([]string{c.role(server)}, c.argv(g.Addr(c.ipv6), server)...)
}

func (c cmCell) ourArgv(bin string, g *guest.Guest, _ int, server string) []string {
	own := g.Host(c.ipv6)
	name := c.role(server)
	if name == "riostream" {
		name = "rstream" // the same on the wire
	}
	return append([]string{bin, name, "--ib-dev", own.String()}, c.argv(own, server)...)
}

func (c cmCell) expected() (client, server traffic) {
	p, n := c.program(), max(c.conns, 1)
	client.payload, server.payload = p.payload(c)
	if p.space == "UDP" {
		client.managed, server.managed = cmSent{sidrReq: n}, cmSent{sidrRep: n}
		return client, server
	}
	client.managed, server.managed = cmSent{req: n, rtu: n}, cmSent{rep: n}
	return client, server
}

func (c cmCell) silent(traffic) bool { return false }

// cmCells are run in both roles against every kernel.
func cmCells() []scenario {
	var cells []scenario
	for _, ipv6 := range []bool{false, true} {
		cells = append(cells,
			cmCell{tool: "rping", ipv6: ipv6, size: 64, iters: 10, sample: true},
			cmCell{tool: "rping", ipv6: ipv6, size: 65536, iters: 3},
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
		cmCell{tool: "rstream", size: 100, iters: 50},
		cmCell{tool: "riostream", size: 4096, iters: 5},
	)
	return cells
}

// lossyCMCells are run while the guest loses packets in both directions. udaddy
// makes its connections only, because nobody repeats a lost datagram.
func lossyCMCells() []scenario {
	return []scenario{
		cmCell{tool: "rping", size: 1000, iters: 20, lossy: true},
		cmCell{tool: "rdma_client", ipv6: true, lossy: true},
		cmCell{tool: "ucmatose", size: 1000, iters: 20, conns: 3, lossy: true},
		cmCell{tool: "udaddy", conns: 10, lossy: true},
		cmCell{tool: "cmtime", conns: 20, lossy: true},
		cmCell{tool: "rstream", size: 65536, iters: 5, lossy: true},
	}
}
