//go:build !portable

package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/internal/procfs"
)

// bindHint explains why bind failed.
func bindHint(at netip.AddrPort, err error) string {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Sprintf("UDP port %d on %v is taken %s", at.Port(), at.Addr(), holder(at))
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Sprintf("%v is not an address of this machine; local are %s", at.Addr(), localAddrs())
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Sprintf("no permission to bind UDP port %d; ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE, and security policy may forbid it", at.Port())
	case errors.Is(err, unix.EMFILE):
		return filesHint
	}
	return ""
}

// sourcePortHint explains why bind failed for a port to send from.
func sourcePortHint(at netip.AddrPort, err error) string {
	if !errors.Is(err, unix.EADDRINUSE) {
		return bindHint(at, err)
	}
	who := holdingProcess(at)
	if who == "" {
		who = "a process that is not visible here, of another user or namespace"
	}
	return fmt.Sprintf("UDP port %d on %v is taken by %s; choose another source port, or let one be chosen", at.Port(), at.Addr(), who)
}

// holder says which process has the port, as far as /proc shows it, and what to
// do.
func holder(at netip.AddrPort) string {
	if who := holdingProcess(at); who != "" {
		return fmt.Sprintf("by %s, which does not share it; %s", who, otherPlace)
	}
	if _, err := os.Stat("/sys/module/rdma_rxe"); err == nil {
		return "and the kernel's Soft-RoCE (rdma_rxe) is loaded, which holds the port on every address of the initial network namespace; unload it (modprobe -r rdma_rxe) or run in another network namespace"
	}
	return "by a process that is not visible here, of another user or namespace, or by the kernel (rdma_rxe in this network namespace), and one process has the port of an address (ss -ulpn shows it to root); " + otherPlace
}

// otherPlace is what helps where a port is taken.
const otherPlace = "stop it, or let it share the port with processes of its user (verbs.Config.Owner, rocev2d and rocev2 run do), or open another local address (on loopback any of 127.0.0.0/8, such as 127.0.0.2; on an interface a second one, ip addr add; of IPv6 too, ip addr add fd00::2/128 dev lo), or use another network namespace (ip netns)"

// holdingProcess returns the process that has the port, "" if it is not
// visible.
func holdingProcess(at netip.AddrPort) string {
	if p, ok := procfs.HolderOf(procfs.Root(), at); ok {
		return p.String()
	}
	return ""
}
