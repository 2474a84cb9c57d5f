package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"

	"github.com/gosoftroce/rocev2/internal/procfs"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// addresses looks at the state of the links, and says how peers name them.
func (d *checks) addresses() {
	if len(d.links) == 0 {
		d.add(Finding{Check: "address", Status: Problem, Text: "no interface has an address, so there is no device", Advice: "give one an address", Command: "ip address add 192.0.2.1/24 dev IFACE"})
		return
	}
	for _, l := range d.links {
		if l.Reason != "" {
			f := Finding{Check: "address", Subject: l.Addr.String(), Status: Problem, Text: fmt.Sprintf("%s (%s): no packet gets through", l.Reason, l.Interface), Advice: "check the cable and the other end"}
			if strings.Contains(l.Reason, "is down") {
				f.Advice, f.Command = "bring it up", "ip link set "+l.Interface+" up"
			}
			d.add(f)
			continue
		}
		d.ok("address", l.Addr.String(), "%s is active; peers name it GID %v", l.Interface, l.GID)
	}
	d.gids()
}

// gids says which index is wanted. It is always one of the host where it is
// given.
func (d *checks) gids() {
	const text = "a device of rocev2 has GID index 0 only, so nothing needs choosing here. A kernel's tool on the peer takes the index of its own GID of the same IP version (-g, -x): with Soft-RoCE 1 is the first IPv4 address; with adapters it is the entry of type RoCE v2"
	d.add(Finding{Check: "gid", Text: text, Advice: "list the peer's table there", Command: "grep -H . /sys/class/infiniband/*/ports/1/gids/* /sys/class/infiniband/*/ports/1/gid_attrs/types/* 2>/dev/null"})
}

// ports looks at which program has UDP port 4791.
func (d *checks) ports() {
	for _, l := range d.links {
		subject := fmt.Sprint(netip.AddrPortFrom(l.Addr, verbs.UDPPort))
		if l.Free {
			d.ok("port", subject, "free")
			continue
		}
		if hosts, sealed, ok := d.shared(l.Addr); ok {
			d.ok("port", subject, "shared: %s owns it, and a device of this user has a part; the page of rocev2d and run --stats show who else", l.Holder)
			if sealed {
				d.sealed(l.Addr, hosts)
			}
			continue
		}
		d.add(d.notFree(subject, l))
	}
}

// shared reports whether a device can be had on an address although its port is
// taken: then the process that has it leases parts of it. Where all packets of
// the port are sealed, it returns the hosts with which there are keys.
func (d *checks) shared(addr netip.Addr) (hosts []netip.Addr, sealed, ok bool) {
	dev, err := d.Open(addr, verbs.Config{})
	if err != nil {
		return nil, false, false
	}
	_, sealed = dev.GuardCounters()
	hosts = dev.KeyHosts()
	return hosts, sealed, dev.Close() == nil
}

// sealed says of a device whose packets are all sealed with which hosts there
// are keys.
func (d *checks) sealed(addr netip.Addr, hosts []netip.Addr) {
	d.secured = true
	with := "no host yet"
	if len(hosts) > 0 {
		with = fmt.Sprint(hosts)
	}
	d.ok("sealed", addr.String(), "all packets are sealed, and what comes in clear is dropped; there are keys with %s (rocev2d says in /api/v1/devices since when, and why there are none with others)", with)
}

// notFree says what to do about a port that cannot be had. The module of
// Soft-RoCE is loaded for the whole machine, other network namespaces included:
// where a process is seen to have the port, it is no reason.
func (d *checks) notFree(subject string, l Link) Finding {
	f := Finding{Check: "port", Subject: subject, Status: Problem, Text: "taken: " + l.Holder}
	at := netip.AddrPortFrom(l.Addr, verbs.UDPPort)
	switch err := d.Bind(at); {
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		f.Text = "refused: " + l.Holder
		f.Advice, f.Command = "see which processes may have it", "sysctl net.ipv4.ip_unprivileged_port_start"
		return f
	case err != nil && !errors.Is(err, syscall.EADDRINUSE):
		f.Text = "cannot be had: " + l.Holder
		f.Advice, f.Command = "see whether the address is there and in order", "ip address show dev "+l.Interface
		return f
	}
	if _, seen := procfs.HolderOf(d.Proc, at); !seen && d.rxeLoaded() {
		f.Advice, f.Command = "unload the kernel's Soft-RoCE, or run in another network namespace", "modprobe -r rdma_rxe"
		return f
	}
	f.Advice = "stop it, or use another local address (on loopback, any of 127.0.0.0/8); as root, ss shows all holders"
	f.Command = fmt.Sprintf("ss -ulpn 'sport = :%d'", verbs.UDPPort)
	return f
}

// mtus compares the interface's MTU with the path MTUs of RoCE.
func (d *checks) mtus() {
	for _, ifi := range d.interfaces() {
		got := portMTU(ifi.MTU)
		f := Finding{Check: "mtu", Subject: ifi.Name, Text: fmt.Sprintf("%d bytes carry a path MTU of %d%s", ifi.MTU, got, securedMTU(ifi.MTU, got))}
		switch {
		case got == 0:
			f.Status = Problem
			f.Text = fmt.Sprintf("%d bytes carry not even the smallest path MTU of %d", ifi.MTU, rocev2.MTU256.Bytes())
			f.Advice, f.Command = "raise it", "ip link set "+ifi.Name+" mtu 1500"
		case got < rocev2.MTU4096.Bytes():
			f.Text += "; peers must not use a larger one"
			f.Advice = fmt.Sprintf("for a path MTU of %d every interface, switch and router on the way must carry %d bytes", rocev2.MTU4096.Bytes(), rocev2.MTU4096.Bytes()+linkHeadroom)
			f.Command = "ip link set " + ifi.Name + " mtu 4200"
		}
		d.add(f)
	}
}

// securedMTU says how that is for a secured connection, whose packets are
// longer.
func securedMTU(mtu, clear int) string {
	switch got := portMTU(mtu - transport.SealedOverhead); got {
	case clear:
		return ", secured connections too"
	case 0:
		return ", and no secured connection"
	default:
		return fmt.Sprintf(", and %d of secured connections", got)
	}
}

// kernel looks for RDMA of the kernel beside us.
func (d *checks) kernel() {
	if !d.linux("kernel rdma", "the kernel's RDMA devices") {
		return
	}
	devices := d.KernelDevices()
	for _, k := range devices {
		var gids []string
		for _, g := range k.GIDs {
			gids = append(gids, fmt.Sprintf("%d = %s (%s)", g.Index, g.GID, g.Type))
		}
		f := Finding{Check: "kernel rdma", Subject: k.Name, Text: fmt.Sprintf("on %s, %s; its GIDs: %s", k.Interface, k.State, strings.Join(gids, ", "))}
		if k.Soft {
			f.Status = Warning
			f.Text = "Soft-RoCE of the kernel is beside us, which has UDP port 4791 of every address: " + f.Text
			f.Advice, f.Command = "remove it, or run rocev2 in another network namespace", "rdma link delete "+k.Name
		}
		d.add(f)
	}
	sockets := procfs.Taking(d.Proc, netip.AddrPortFrom(netip.IPv4Unspecified(), verbs.UDPPort))
	_, owned := procfs.Holder(d.Proc, sockets)
	switch {
	case len(devices) == 0 && d.rxeLoaded():
		d.add(Finding{Check: "kernel rdma", Subject: "rdma_rxe", Status: Warning, Text: "the module is loaded, and its sockets may have UDP port 4791", Advice: "unload it if nothing uses it", Command: "modprobe -r rdma_rxe"})
	case len(devices) == 0:
		d.ok("kernel rdma", "", "no RDMA device of the kernel, and no Soft-RoCE, is beside us")
	}
	if len(sockets) > 0 && !owned {
		d.add(Finding{Check: "kernel rdma", Subject: "UDP tunnel", Status: Warning, Text: "a socket of no visible process has UDP port 4791 of all addresses: the kernel's Soft-RoCE has such ones, one for each IP version"})
	}
}

// wantBuffers are what a device asks for.
var wantBuffers = []struct {
	name, what string
	bytes      int
}{
	{"net.core.rmem_max", "receive", 16 << 20},
	{"net.core.wmem_max", "send", 4 << 20},
}

// Numbers of capabilities.
const (
	capNetBind  = 10
	capNetAdmin = 12
	capNetRaw   = 13
	capIPCLock  = 14
)

// buffers looks at the limits of socket buffers.
func (d *checks) buffers() {
	if !d.linux("buffers", "the limits of socket buffers") {
		return
	}
	caps, known := d.effective()
	for _, w := range wantBuffers {
		limit, ok := procfs.SysctlInt(d.Proc, w.name)
		switch {
		case !ok:
			d.notChecked("buffers", w.name, "it cannot be read")
		case limit >= w.bytes:
			d.ok("buffers", w.name, "%d bytes are enough for the %s buffer that a device asks for", limit, w.what)
		case known && caps&(1<<capNetAdmin) != 0:
			d.ok("buffers", w.name, "%d bytes; this process has CAP_NET_ADMIN and gets the %d bytes that a device asks for in any case", limit, w.bytes)
		default:
			d.add(Finding{Check: "buffers", Subject: w.name, Status: Warning,
				Text:   fmt.Sprintf("a device gets at most %d bytes of %s buffer and asks for %d: bursts may overrun it, and its window is smaller", limit, w.what, w.bytes),
				Advice: "raise the limit", Command: fmt.Sprintf("sysctl -w %s=%d", w.name, w.bytes)})
		}
	}
}

// offloads opens a device at a port of no account and looks at what it is
// granted.
func (d *checks) offloads() {
	if len(d.links) == 0 {
		return
	}
	// One says it for all: it is a matter of the system.
	dev, err := d.Open(d.links[0].Addr, verbs.Config{Port: probePort})
	for port := probePort + 1; errors.Is(err, syscall.EADDRINUSE) && port < probePort+16; port++ {
		dev, err = d.Open(d.links[0].Addr, verbs.Config{Port: uint16(port)})
	}
	if err != nil {
		d.notChecked("offloads", "", "a device cannot be opened to try: %v", err)
		return
	}
	p := dev.QueryPort()
	d.granted(p)
	if err := dev.Close(); err != nil {
		d.notChecked("offloads", "", "the device that was opened to try does not close: %v", err)
	}
}

// probePort is a UDP port to open a device at, to which no program talks.
const probePort = 47910

func (d *checks) granted(p verbs.PortAttr) {
	for _, o := range []struct {
		name, missing string
		have          bool
	}{
		{"GSO", "each packet costs a system call of its own, or a part of one: sending is slower", p.SegmentOffload},
		{"GRO", "each packet arrives by itself: receiving is slower", p.ReceiveOffload},
		{"source ports", "all flows leave from one UDP port, so a network cannot spread them", p.SourcePorts},
	} {
		if o.have {
			d.ok("offloads", o.name, "granted")
			continue
		}
		d.add(Finding{Check: "offloads", Subject: o.name, Status: Warning, Text: "not granted: " + o.missing, Advice: "use Linux 5.0 or newer, outside of sandboxes that emulate the network"})
	}
	if p.RecvBuffer > 0 {
		d.ok("offloads", "receive buffer", "%d bytes granted", p.RecvBuffer)
	}
}
