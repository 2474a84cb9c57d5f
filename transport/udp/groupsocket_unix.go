//go:build (unix && !linux) || portable

package udp

import (
	"net"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// listenGroup makes a socket that is bound to a group, so that it receives
// nothing else, and shares the group with others. (Package net binds such a
// socket to the unspecified address, which then is taken for every device.)
func listenGroup(at netip.AddrPort, scope uint32) (*net.UDPConn, error) {
	family := unix.AF_INET6
	var sa unix.Sockaddr = &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16(), ZoneId: scope}
	if at.Addr().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM, unix.IPPROTO_UDP)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	unix.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "group")
	defer f.Close() // the connection has a descriptor of its own
	share := []int{unix.SO_REUSEADDR, unix.SO_REUSEPORT}
	if runtime.GOOS == "linux" {
		share = share[:1] // the other one gives each datagram to one of them
	}
	for _, option := range share {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 1); err != nil {
			return nil, os.NewSyscallError("setsockopt", err)
		}
	}
	if err := unix.Bind(fd, sa); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	c, err := net.FilePacketConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}
