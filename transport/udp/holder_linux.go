//go:build !portable

package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
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

// holder says who has the port, as far as /proc shows it, and what to do.
func holder(at netip.AddrPort) string {
	if who := holdingProcess(at); who != "" {
		return fmt.Sprintf("by %s; stop it, or open another local address (on loopback, any of 127.0.0.0/8)", who)
	}
	if _, err := os.Stat("/sys/module/rdma_rxe"); err == nil {
		return "and the kernel's Soft-RoCE (rdma_rxe) is loaded, which holds the port on every address of the initial network namespace; unload it (modprobe -r rdma_rxe) or run in another network namespace"
	}
	return "by a process that is not visible here, of another user or namespace, or by the kernel (rdma_rxe in this network namespace); stop it (ss -ulpn shows it to root), open another local address or use another network namespace"
}

// holdingProcess returns the process that has the port, "" if it is not
// visible. The kernel's list may lack a socket while others come and go, so it
// is read more than once.
func holdingProcess(at netip.AddrPort) string {
	for range 5 {
		if who := findProcess(socketInodes(at)); who != "" {
			return who
		}
	}
	return ""
}

// socketInodes returns the inodes of the UDP sockets that conflict with at.
func socketInodes(at netip.AddrPort) map[string]bool {
	found := make(map[string]bool)
	for _, name := range []string{"/proc/net/udp", "/proc/net/udp6"} {
		data, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			// sl local_address rem_address st tx:rx tr:when
			// retrnsmt uid timeout inode …
			f := strings.Fields(line)
			if len(f) < 10 {
				continue
			}
			addr, ok := parseProcAddr(f[1])
			if !ok || addr.Port() != at.Port() {
				continue
			}
			if a := addr.Addr(); a.IsUnspecified() || a == at.Addr().WithZone("") {
				found[f[9]] = true
			}
		}
	}
	return found
}

// parseProcAddr parses an address of /proc/net/udp: 32-bit words in hex in the
// machine's byte order, a colon, the port.
func parseProcAddr(s string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(s, ":")
	p, err := strconv.ParseUint(port, 16, 16)
	if err != nil || len(host)%8 != 0 {
		return netip.AddrPort{}, false
	}
	var b []byte
	for ; host != ""; host = host[8:] {
		w, err := strconv.ParseUint(host[:8], 16, 32)
		if err != nil {
			return netip.AddrPort{}, false
		}
		b = nativeAppend32(b, uint32(w))
	}
	a, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a.Unmap(), uint16(p)), ok
}

// findProcess returns the first process with a descriptor of one of the
// sockets, as "process 12 (name)".
func findProcess(inodes map[string]bool) string {
	if len(inodes) == 0 {
		return ""
	}
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return ""
	}
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		if err != nil {
			continue
		}
		inode, ok := strings.CutPrefix(target, "socket:[")
		if !ok || !inodes[strings.TrimSuffix(inode, "]")] {
			continue
		}
		pid := strings.Split(fd, "/")[2]
		if pid == strconv.Itoa(os.Getpid()) {
			return "this process itself (pid " + pid + "), which has a socket open there"
		}
		name, err := os.ReadFile("/proc/" + pid + "/comm")
		if err != nil {
			name = []byte("unknown")
		}
		return fmt.Sprintf("process %s (%s)", pid, strings.TrimSpace(string(name)))
	}
	return ""
}
