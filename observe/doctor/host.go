package doctor

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/gosoftroce/rocev2/internal/ifaddrs"
	"github.com/gosoftroce/rocev2/internal/procfs"
	"github.com/gosoftroce/rocev2/transport/lease"
	"github.com/gosoftroce/rocev2/verbs"
)

// Host is what the checks look at. Tests make their own.
type Host struct {
	OS         string // as runtime.GOOS
	Proc, Sys  fs.FS  // /proc and /sys; on other systems than Linux they are empty
	Interfaces []Interface

	// Bind tries to bind a UDP socket and gives it back.
	Bind func(netip.AddrPort) error
	// Open opens a device, to see what it is granted.
	Open func(netip.Addr, verbs.Config) (*verbs.Device, error)
	// Output runs a command and returns its standard output, for the rules
	// of a firewall.
	Output func(name string, args ...string) (string, error)
}

// Interface is a network interface and its addresses.
type Interface struct {
	net.Interface
	Addrs []netip.Addr // with zone if link-local IPv6
}

// ThisHost is the host that the process runs on.
func ThisHost() (*Host, error) {
	h := &Host{
		OS: runtime.GOOS, Proc: procfs.Root(), Sys: os.DirFS("/sys"),
		Bind: bind, Open: verbs.OpenAddr, Output: output,
	}
	ifaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, ifi := range ifaces {
		i := Interface{Interface: ifi}
		for _, a := range ifaddrs.Of(&ifi) {
			i.Addrs = append(i.Addrs, a.Addr)
		}
		h.Interfaces = append(h.Interfaces, i)
	}
	return h, nil
}

func bind(at netip.AddrPort) error {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return err
	}
	return c.Close()
}

// portOf says whether UDP port 4791 of an address can be had, and if not, why.
func (h *Host) portOf(addr netip.Addr) (free bool, why string) {
	at := netip.AddrPortFrom(addr, verbs.UDPPort)
	err := h.Bind(at)
	switch {
	case err == nil:
		return true, ""
	case !errors.Is(err, syscall.EADDRINUSE):
		return false, err.Error()
	}
	if p, ok := procfs.HolderOf(h.Proc, at); ok {
		return false, p.String()
	}
	if h.rxeLoaded() {
		return false, "probably the kernel's Soft-RoCE (rdma_rxe)"
	}
	return false, "a process that is not visible here, of another user or namespace, or the kernel"
}

// leased reports whether the process that has UDP port 4791 of an address
// leases parts of it.
func (h *Host) leased(addr netip.Addr) bool {
	pid := lease.OwnerPID(addr, verbs.UDPPort)
	p, seen := procfs.HolderOf(h.Proc, netip.AddrPortFrom(addr, verbs.UDPPort))
	return pid != 0 && (!seen || p.PID == pid)
}

func (h *Host) rxeLoaded() bool {
	_, err := fs.Stat(h.Sys, "module/rdma_rxe")
	return err == nil
}

// output runs a command in the system's own language-neutral form.
func output(name string, args ...string) (string, error) {
	b, err := exec.Command(name, args...).Output()
	return string(b), err
}
