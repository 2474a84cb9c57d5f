//go:build !portable

package udp

import (
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/internal/sockfilter"
)

// socket is a bound UDP socket.
type socket struct {
	file *os.File // owns the descriptor; a blocking one, so that the runtime's poller leaves it alone
	raw  syscall.RawConn
}

// newSocket takes over fd, also when it fails.
func newSocket(fd int, at netip.AddrPort) (socket, error) {
	f := os.NewFile(uintptr(fd), "udp "+at.String())
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return socket{}, err
	}
	return socket{file: f, raw: raw}, nil
}

// bind makes a socket with the options of c that is bound to at. prepare, if
// not nil, sets more options before that. On an error, op is what failed.
func bind(at netip.AddrPort, scope uint32, c *Config, prepare func(fd int) error) (fd int, op string, err error) {
	family := unix.AF_INET6
	var sa unix.Sockaddr = &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16(), ZoneId: scope}
	if at.Addr().Is4() {
		family = unix.AF_INET
		sa = &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return -1, "socket", err
	}
	if !at.Addr().Is4() { // which cannot be set later
		err = os.NewSyscallError("setsockopt IPV6_V6ONLY", unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1))
	}
	if err == nil {
		err = setOptions(fd, at.Addr().Is4(), c)
	}
	if err == nil && prepare != nil {
		err = prepare(fd)
	}
	if err != nil {
		op = "set socket option"
	} else if err = unix.Bind(fd, sa); err != nil {
		op = "bind"
	}
	if err != nil {
		unix.Close(fd)
		return -1, op, err
	}
	return fd, "", nil
}

// dropAll makes the kernel drop what arrives at the socket. A filter refuses
// everything; where there are no filters, a few datagrams fill the buffer.
func dropAll(fd int) {
	// Either is enough, so no error counts.
	_ = sockfilter.Attach(fd, bpf.RetConstant{Val: 0})
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0)
}

// setOptions makes the socket send what the ICRC was computed for: unfragmented
// packets, on IPv4 with Identification 0.
func setOptions(fd int, v4 bool, c *Config) error {
	type option struct{ level, name, value int }
	opts := []option{
		{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE},
		{unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1},
		{unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1},
		{unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1},
		{unix.IPPROTO_IPV6, ipv6Flowinfo, 1},
		{unix.IPPROTO_IPV6, ipv6FlowinfoSend, 1},
		{unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, hopLimit},
		// Kernel rxe sends UDP checksum 0 on IPv6 too (allowed by RFC
		// 6936).
		{unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX, 1},
	}
	if v4 {
		opts = []option{
			{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE},
			{unix.IPPROTO_IP, unix.IP_RECVTOS, 1},
			{unix.IPPROTO_IP, unix.IP_RECVTTL, 1},
			{unix.IPPROTO_IP, unix.IP_TTL, hopLimit},
		}
	}
	// The kernel says what it has put together, and nothing of others.
	// Linux before 4.13 does not.
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVFRAGSIZE, 1)
	if !v4 {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVFRAGSIZE, 1)
	}
	if c.ReusePort {
		opts = append(opts, option{unix.SOL_SOCKET, unix.SO_REUSEPORT, 1})
	}
	for _, o := range opts {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	return nil
}

// setBuffer asks for n bytes and returns what was granted. The kernel doubles
// the number to account for its overhead; that half is not counted.
func setBuffer(fd, force, plain, n int) int {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, n) != nil {
		// An error leaves the default, which is then what is reported.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, n)
	}
	return granted(fd, plain)
}

// granted returns the size of a buffer, as setBuffer does.
func granted(fd, plain int) int {
	got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, plain)
	if err != nil {
		return 0
	}
	return got / 2
}
