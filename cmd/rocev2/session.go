package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/transport/udp"
	"github.com/gosoftroce/rocev2/verbs"
)

// peerFlags are the flags of everything that talks to one peer.
type peerFlags struct {
	device   string
	port     int
	mtu      int
	timeout  time.Duration
	progress bool
	ibPort   int
	gidIndex int
	sl       int
	sport    string
	inspect  inspectFlags
	listen   string // a server's control connections
	sourceIP string // a client's
	peerGID  string
	idle     time.Duration
}

func (f *peerFlags) register(cmd *cobra.Command, gidName, gidShort string) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.VarP(deviceFlag{&f.device}, "ib-dev", "d", deviceUsage+" (default: the address that leads to the server, or the first address of this host)")
	fs.IntVarP(&f.port, "port", "p", interop.DefaultPort, "TCP `port` of the server's control connection")
	fs.IntVarP(&f.ibPort, "ib-port", "i", 1, "accepted for compatibility: a device has one port")
	fs.Var(deviceFlag{&f.device}, "device", "the same as --ib-dev")
	fs.MarkHidden("device")
	fs.IntVarP(&f.gidIndex, gidName, gidShort, 0, "accepted for compatibility: a device has one address")
	fs.StringVar(&f.sport, "sport", "", "UDP source `port` of the queue pairs, 49152 to 65535, or \"auto\" to derive it from their numbers (default: 4791)")
	fs.StringVar(&f.listen, "listen", "", "server: `address` on which to accept TCP connections, or \"any\" (default: the device's)")
	fs.StringVar(&f.sourceIP, "source_ip", "", "client: `address` from which to connect (default: the device's, if it is on the route to the server)")
	fs.StringVar(&f.peerGID, "peer-gid", "", "`address` or network that the peer may use for RDMA, or \"any\" (default: the address of its TCP connection)")
	fs.DurationVar(&f.idle, "idle-timeout", time.Minute, "give up if the peer is silent for this `time`")
	fs.DurationVar(&f.timeout, "timeout", 0, "give up after this `time` (for example 30s; default: no limit while there is progress)")
	f.inspect.register(cmd)
	fs.BoolVar(&f.progress, "progress", false, "show progress even if standard error is not a terminal")
}

func (f *peerFlags) check() error {
	if f.ibPort != 1 {
		return usagef("-i %d: a device has one port, number 1", f.ibPort)
	}
	if f.timeout < 0 {
		return usagef("--timeout %v: the time must be positive", f.timeout)
	}
	if f.idle <= 0 {
		return usagef("--idle-timeout %v: the time must be positive", f.idle)
	}
	for flag, addr := range map[string]string{"--listen": f.listen, "--source_ip": f.sourceIP} {
		if _, err := netip.ParseAddr(addr); err != nil && addr != "" && !(addr == "any" && flag == "--listen") {
			return usagef("%s %s: this is not an address", flag, addr)
		}
	}
	return checkPort(f.port)
}

// peers returns what --peer-gid asks for.
func (f *peerFlags) peers() (interop.Peers, error) {
	p, err := interop.ParsePeers(f.peerGID)
	if err != nil {
		return p, usagef("--peer-gid %v", err)
	}
	return p, nil
}

// sourcePort returns what --sport asks for.
func (f *peerFlags) sourcePort() (uint16, error) {
	switch f.sport {
	case "":
		return 0, nil
	case "auto":
		return verbs.AutoSourcePort, nil
	}
	n, err := strconv.ParseUint(f.sport, 10, 16)
	if err != nil || n < minSourcePort {
		return 0, usagef("--sport %s: a source port is a number from %d to 65535, or auto", f.sport, minSourcePort)
	}
	return uint16(n), nil
}

const minSourcePort = 49152

// forBoth returns what perf and pingpong alike make of the flags.
func (f *peerFlags) forBoth() (mtu verbs.MTU, port uint16, peers interop.Peers, err error) {
	if mtu, err = parseMTU(f.mtu); err != nil {
		return
	}
	if port, err = f.sourcePort(); err != nil {
		return
	}
	peers, err = f.peers()
	return
}

// control is where the two sides find each other: a server's listener or a
// client's connection.
type control struct {
	ln   net.Listener
	conn net.Conn
}

// open opens the device, which the inspector closes at its end, checks what is
// to run on it, and opens the listener or the control connection. A server that
// cannot run does not let a client in.
func (f *peerFlags) open(ctx context.Context, io *inspector, server string, check func(*verbs.Device) error) (*verbs.Device, *control, error) {
	switch {
	case server != "" && f.listen != "":
		return nil, nil, usagef("--listen %s: a client does not listen; --source_ip chooses the address that it connects from", f.listen)
	case server == "" && f.sourceIP != "":
		return nil, nil, usagef("--source_ip %s: a server does not connect; --listen chooses the address that it listens on", f.sourceIP)
	}
	dev, err := openDevice(io.streams, f.device, server, io.open)
	if err != nil {
		return nil, nil, err
	}
	var m control
	if err = check(dev); err == nil {
		if server == "" {
			m.ln, err = f.listenFor(ctx, io.streams, dev)
		} else {
			m.conn, err = interop.Dial(ctx, f.source(dev, server), server, f.port)
		}
	}
	return dev, &m, err
}

// listenFor opens the listener of a server, on the device's address unless the
// user wants another.
func (f *peerFlags) listenFor(ctx context.Context, io streams, dev *verbs.Device) (net.Listener, error) {
	host := f.listen
	switch host {
	case "":
		host = dev.Addr().String()
	case "any":
		host = ""
	}
	ln, err := interop.Listen(ctx, host, f.port)
	if err != nil {
		return nil, err
	}
	where := "of " + host
	if host == "" {
		where = "of all addresses"
	}
	fmt.Fprintf(io.err, "waiting on TCP port %d %s for a client of device %v\n", f.port, where, dev.Addr())
	return ln, nil
}

// source returns the address from which a client connects: the device's, which
// the server expects, unless the way to the server is on another network.
func (f *peerFlags) source(dev *verbs.Device, server string) netip.Addr {
	if f.sourceIP != "" {
		a, _ := netip.ParseAddr(f.sourceIP) // check has seen it
		return a
	}
	way, err := routeTo(server)
	if err != nil || !sameInterface(way, dev.Addr()) {
		return netip.Addr{}
	}
	return dev.Addr()
}

// sameInterface reports whether two addresses of this host, of the same IP
// version, are on one network interface.
func sameInterface(a, b netip.Addr) bool {
	if a.WithZone("") == b.WithZone("") {
		return true
	}
	if a.Is4() != b.Is4() {
		return false
	}
	ia, oka := udp.InterfaceOf(a)
	ib, okb := udp.InterfaceOf(b)
	return oka && okb && ia.Index == ib.Index
}

// mostRefusals is how many refused clients get a line each; after them every
// thousandth does.
const mostRefusals = 100

// refused returns a function that tells of clients that a server does not
// take.
func refused(io streams) func(net.Addr, error) {
	n := 0
	return func(from net.Addr, why error) {
		if n++; n <= mostRefusals || n%1000 == 0 {
			fmt.Fprintf(io.err, "client %v refused (number %d): %v\n", from, n, why)
		}
	}
}

// limit bounds ctx by the user's time limit.
func (f *peerFlags) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("not done within --timeout %v: %w", f.timeout, context.DeadlineExceeded))
}

func serverOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// controlHelp is what the commands with two sides say about the TCP connection.
const controlHelp = `The two sides exchange addresses and keys over TCP. The server accepts TCP
connections on the address of its device. --listen chooses another address, or
"any". The server takes the first client that speaks the protocol. It refuses
all others with a line on standard error.

The RDMA traffic goes to the address that the peer names. This must be the
address of the peer's TCP connection. --peer-gid allows others, for hosts that
have control and RDMA on different networks. If a peer is silent for
--idle-timeout, the run ends.`
