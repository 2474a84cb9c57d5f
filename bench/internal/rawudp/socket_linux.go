package rawudp

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/bench/internal/pair"
)

// socketBuffer is what is asked for in both directions, in bytes.
const socketBuffer = 16 << 20

// socket is a UDP socket or a TCP connection used by raw system calls.
type socket struct {
	fd        int
	peer      unix.RawSockaddrInet4
	connected bool
}

func open(c config) (pair.Side, error) {
	s, err := openSocket(c.Addr, c.TCP)
	if err != nil {
		return nil, err
	}
	e := &end{socket: s, cfg: c}
	if c.Echo {
		return &echo{e}, nil
	}
	return &stream{e}, nil
}

func openSocket(addr string, tcp bool) (*socket, error) {
	a, err := netip.ParseAddr(addr)
	if err != nil || !a.Is4() {
		return nil, fmt.Errorf("%q is no IPv4 address", addr)
	}
	kind := unix.SOCK_DGRAM
	if tcp {
		kind = unix.SOCK_STREAM
	}
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	for _, opt := range [][2]int{{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF}, {unix.SO_SNDBUFFORCE, unix.SO_SNDBUF}} {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt[0], socketBuffer) != nil {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt[1], socketBuffer) // the kernel grants what it may
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: a.As4()}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("bind %s: %w", addr, err)
	}
	if tcp {
		if err := unix.Listen(fd, 1); err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("listening at %s: %w", addr, err)
		}
	}
	return &socket{fd: fd}, nil
}

// end is what both kinds of sides share.
type end struct {
	*socket
	cfg config
}

// Hello returns where this side receives.
func (e *end) Hello() (any, error) {
	sa, err := unix.Getsockname(e.fd)
	if err != nil {
		return nil, err
	}
	return netip.AddrPortFrom(netip.AddrFrom4(sa.(*unix.SockaddrInet4).Addr), uint16(sa.(*unix.SockaddrInet4).Port)), nil
}

// Connect takes the peer's address. The socket stays unconnected, as that of a
// RoCE device does.
func (e *end) Connect(raw json.RawMessage) error {
	var p netip.AddrPort
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	if e.cfg.TCP && e.cfg.Active {
		return e.dial(p)
	}
	e.peer = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: p.Port()<<8 | p.Port()>>8, Addr: p.Addr().As4()}
	return nil
}

// dial connects to the side that listens, with a socket in place of the one
// that named this side.
func (e *end) dial(p netip.AddrPort) error {
	unix.Close(e.fd)
	var err error
	if e.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	if err := unix.SetsockoptInt(e.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("TCP_NODELAY: %w", err)
	}
	if err := unix.Connect(e.fd, &unix.SockaddrInet4{Port: int(p.Port()), Addr: p.Addr().As4()}); err != nil {
		return fmt.Errorf("connecting to %v: %w", p, err)
	}
	e.connected = true
	return nil
}

// accept takes the connection of the other side in place of the listener.
func (e *end) accept() error {
	if !e.cfg.TCP || e.cfg.Active {
		return nil
	}
	fd, _, err := unix.Accept4(e.fd, unix.SOCK_CLOEXEC)
	if err != nil {
		return fmt.Errorf("accepting: %w", err)
	}
	unix.Close(e.fd)
	e.fd, e.connected = fd, true
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("TCP_NODELAY: %w", err)
	}
	return nil
}

// Close closes the socket.
func (e *end) Close() error { return unix.Close(e.fd) }

// recvBuffer returns the bytes for which the socket may hold datagrams.
func (s *socket) recvBuffer() int {
	n, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return 0
	}
	return n
}

func (s *socket) sendto(b []byte, flags int) unix.Errno {
	to, size := unsafe.Pointer(&s.peer), unsafe.Sizeof(s.peer)
	if s.connected {
		to, size = nil, 0
	}
	_, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(flags), uintptr(to), size)
	return e
}

func (s *socket) recvfrom(b []byte, flags int) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(flags), 0, 0)
	return int(n), e
}

// recvSegments receives one buffer and the size of the segments in it.
func (s *socket) recvSegments(b, oob []byte, flags int) (n, segment int, e unix.Errno) {
	iov := unix.Iovec{Base: &b[0], Len: uint64(len(b))}
	hdr := unix.Msghdr{Iov: &iov, Iovlen: 1, Control: &oob[0], Controllen: uint64(len(oob))}
	r, _, e := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&hdr)), uintptr(flags))
	if e != 0 {
		return 0, 0, e
	}
	n = int(r)
	segment = n
	if hdr.Controllen >= uint64(unix.CmsgLen(4)) {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&oob[0]))
		if h.Level == unix.SOL_UDP && h.Type == unix.UDP_GRO {
			segment = int(*(*int32)(unsafe.Pointer(&oob[unix.CmsgLen(0)])))
		}
	}
	return n, segment, 0
}
