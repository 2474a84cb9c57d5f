package udp

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/gosoftroce/rocev2/internal/dontfrag"
	"github.com/gosoftroce/rocev2/transport"
)

// ipSocket is a UDP socket of Winsock that sends unfragmented packets. It does
// not block: an event tells when something has come (WSAEventSelect), so that a
// thread waits for several sockets, and no goroutine reads ahead. Traffic
// classes are neither sent nor told.
type ipSocket struct {
	mu      sync.RWMutex // held for reading while the handle is used
	handle  windows.Handle
	closed  bool
	v4      bool
	classes bool // false
	trouble      // of Recv

	// Of what is sent. Sends are serialised.
	hops, groupHops int // as set last
	value           int32
	out             struct {
		buf windows.WSABuf
		n   uint32
		to4 windows.SockaddrInet4
		to6 windows.SockaddrInet6
		to  windows.Sockaddr
	}

	// Of what is received.
	in struct {
		buf      windows.WSABuf
		n, flags uint32
		from     windows.RawSockaddrAny
		fromLen  int32
	}
}

// startWinsock has the system load it, once in a process.
var startWinsock = sync.OnceValue(func() error {
	const version = 0x202
	return windows.WSAStartup(version, new(windows.WSAData))
})

// ws2def.h, ws2ipdef.h, winsock2.h
const (
	noHandleInherit = 0x80 // WSA_FLAG_NO_HANDLE_INHERIT
	overlapped      = 0x01 // WSA_FLAG_OVERLAPPED
	ipTTL           = 4
	ipMulticastIf   = 9
	ipMulticastTTL  = 10
	ipMulticastLoop = 11
	ipAddMembership = 12
	ipv6V6Only      = 27
	fdRead          = 0x01
	pollOut         = 0x10 // POLLWRNORM
)

var (
	winsock        = windows.NewLazySystemDLL("ws2_32.dll")
	wsaEventSelect = winsock.NewProc("WSAEventSelect")
	wsaPoll        = winsock.NewProc("WSAPoll")
	wsaRecvFrom    = winsock.NewProc("WSARecvFrom")
)

// openSocket makes a socket that is bound to at, and sends to groups by an
// interface, if that is not nil. On an error, op is what failed.
func openSocket(at netip.AddrPort, scope uint32, by *net.Interface) (s *ipSocket, op string, err error) {
	if s, op, err = newSocket(at.Addr().Is4()); err != nil {
		return nil, op, err
	}
	if by != nil {
		s.sendBy(at.Addr(), by)
	}
	if err := s.bind(at, scope); err != nil {
		s.Close()
		return nil, "bind", err
	}
	return s, "", nil
}

// openGroupSocket makes a socket that shares the port with others and is a
// member of a group. Windows binds none to a group. What comes to it for
// another address has no right ICRC for the group, and is dropped for that.
func openGroupSocket(at netip.AddrPort, local netip.Addr, by *net.Interface) (*ipSocket, error) {
	s, _, err := newSocket(at.Addr().Is4())
	if err != nil {
		return nil, err
	}
	err = windows.SetsockoptInt(s.handle, windows.SOL_SOCKET, windows.SO_REUSEADDR, 1)
	any := netip.IPv6Unspecified()
	if s.v4 {
		any = netip.IPv4Unspecified()
	}
	if err == nil {
		err = s.bind(netip.AddrPortFrom(any, at.Port()), 0)
	}
	switch {
	case err != nil:
	case s.v4:
		err = windows.SetsockoptIPMreq(s.handle, windows.IPPROTO_IP, ipAddMembership,
			&windows.IPMreq{Multiaddr: at.Addr().As4(), Interface: local.As4()})
	default:
		err = windows.SetsockoptIPv6Mreq(s.handle, windows.IPPROTO_IPV6, ipAddMembership,
			&windows.IPv6Mreq{Multiaddr: at.Addr().As16(), Interface: uint32(by.Index)})
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// newSocket makes a socket that is not bound.
func newSocket(v4 bool) (s *ipSocket, op string, err error) {
	if err := startWinsock(); err != nil {
		return nil, "start Winsock", err
	}
	s = &ipSocket{v4: v4, hops: -1, groupHops: -1}
	family := int32(windows.AF_INET6)
	if s.out.to = &s.out.to6; v4 {
		family, s.out.to = windows.AF_INET, &s.out.to4
	}
	s.handle, err = windows.WSASocket(family, windows.SOCK_DGRAM, windows.IPPROTO_UDP, nil, 0, overlapped|noHandleInherit)
	if err != nil {
		return nil, "socket", err
	}
	if !v4 {
		err = windows.SetsockoptInt(s.handle, windows.IPPROTO_IPV6, ipv6V6Only, 1)
	}
	if err == nil {
		err = dontfrag.Set(control{s}, v4)
	}
	if err != nil {
		s.Close()
		return nil, "have packets sent unfragmented", err
	}
	// Errors of earlier datagrams need not be told. Wine 8 knows one of
	// these.
	var off, n uint32
	for _, code := range []uint32{windows.SIO_UDP_CONNRESET, windows.SIO_UDP_NETRESET} {
		_ = windows.WSAIoctl(s.handle, code, (*byte)(unsafe.Pointer(&off)), uint32(unsafe.Sizeof(off)), nil, 0, &n, nil, 0)
	}
	return s, "", nil
}

func (s *ipSocket) bind(at netip.AddrPort, scope uint32) error {
	var sa windows.Sockaddr = &windows.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16(), ZoneId: scope}
	if s.v4 {
		sa = &windows.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	return os.NewSyscallError("bind", windows.Bind(s.handle, sa))
}

// sendBy has the socket send to groups by an interface, which has its address.
// Copies come back to the members on this host.
func (s *ipSocket) sendBy(local netip.Addr, by *net.Interface) {
	// What is refused concerns multicast alone.
	if s.v4 {
		a := local.As4()
		_ = windows.SetsockoptInt(s.handle, windows.IPPROTO_IP, ipMulticastIf, int(int32(binary.NativeEndian.Uint32(a[:]))))
		_ = windows.SetsockoptInt(s.handle, windows.IPPROTO_IP, ipMulticastLoop, 1)
		return
	}
	_ = windows.SetsockoptInt(s.handle, windows.IPPROTO_IPV6, ipMulticastIf, by.Index)
	_ = windows.SetsockoptInt(s.handle, windows.IPPROTO_IPV6, ipMulticastLoop, 1)
}

// control is the socket for package dontfrag.
type control struct{ s *ipSocket }

var _ syscall.RawConn = control{}

func (c control) Control(f func(fd uintptr)) error {
	return c.s.use(func(h windows.Handle) { f(uintptr(h)) })
}
func (c control) Read(func(uintptr) bool) error  { return errors.ErrUnsupported }
func (c control) Write(func(uintptr) bool) error { return errors.ErrUnsupported }

// use calls f with the handle, unless the socket is closed.
func (s *ipSocket) use(f func(windows.Handle)) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return net.ErrClosed
	}
	f(s.handle)
	return nil
}

// setBuffers asks for buffers of recv and send bytes, or as much of them as the
// system grants; 0 leaves one as it is. It returns what they hold then, 0 if
// that is not known.
func (s *ipSocket) setBuffers(recv, send int) (gotRecv, gotSend int) {
	_ = s.use(func(h windows.Handle) {
		gotRecv = setBufferOf(h, windows.SO_RCVBUF, recv)
		gotSend = setBufferOf(h, windows.SO_SNDBUF, send)
	})
	return gotRecv, gotSend
}

func setBufferOf(h windows.Handle, option, n int) int {
	if n > 0 {
		askBuffer(n, bufferOf(h, option), func(n int) error {
			return windows.SetsockoptInt(h, windows.SOL_SOCKET, option, n)
		})
	}
	return bufferOf(h, option)
}

// bufferOf returns what a buffer holds, 0 if that is not known.
func bufferOf(h windows.Handle, option int) int {
	n, err := windows.GetsockoptInt(h, windows.SOL_SOCKET, option)
	if err != nil {
		return 0
	}
	return n
}

// Close closes the socket.
func (s *ipSocket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.closed = true
	return os.NewSyscallError("closesocket", windows.Closesocket(s.handle))
}

// receive takes a datagram, or fails with errNothing.
func (s *ipSocket) receive(b []byte, d *datagram) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return net.ErrClosed
	}
	in := &s.in
	in.buf = windows.WSABuf{Len: uint32(len(b)), Buf: &b[0]}
	in.flags, in.fromLen = 0, int32(unsafe.Sizeof(in.from))
	// Directly, because golang.org/x/sys allocates the error that nothing
	// has come.
	failed, _, errno := syscall.SyscallN(wsaRecvFrom.Addr(), uintptr(s.handle), uintptr(unsafe.Pointer(&in.buf)), 1,
		uintptr(unsafe.Pointer(&in.n)), uintptr(unsafe.Pointer(&in.flags)),
		uintptr(unsafe.Pointer(&in.from)), uintptr(unsafe.Pointer(&in.fromLen)), 0, 0)
	if failed == 0 {
		errno = 0
	}
	switch errno {
	case 0:
	case windows.WSAEMSGSIZE:
		// A datagram that is longer than b, which is full. As an error
		// it would be one of the socket, and any host can send such
		// datagrams.
		in.n = uint32(len(b))
	case windows.WSAEWOULDBLOCK:
		return errNothing
	default:
		return os.NewSyscallError("wsarecvfrom", errno)
	}
	d.n, d.header = int(in.n), header{}
	if s.v4 {
		a := (*windows.RawSockaddrInet4)(unsafe.Pointer(&in.from))
		d.src, d.port = netip.AddrFrom4(a.Addr), networkOrder(a.Port)
		return nil
	}
	a := (*windows.RawSockaddrInet6)(unsafe.Pointer(&in.from))
	d.src, d.port = netip.AddrFrom16(a.Addr).Unmap(), networkOrder(a.Port)
	return nil
}

// send sends a datagram, and waits where the system has no room.
func (s *ipSocket) send(b []byte, dst netip.Addr, port uint16, scope uint32) error {
	o := &s.out
	if s.v4 {
		o.to4.Addr, o.to4.Port = dst.As4(), int(port)
	} else {
		o.to6.Addr, o.to6.Port, o.to6.ZoneId = dst.As16(), int(port), 0
		if dst.IsLinkLocalUnicast() {
			o.to6.ZoneId = scope
		}
	}
	for {
		err := s.trySend(b)
		if err != windows.WSAEWOULDBLOCK {
			return os.NewSyscallError("wsasendto", err)
		}
	}
}

// trySend sends a datagram, and waits for a moment if there is no room.
func (s *ipSocket) trySend(b []byte) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return net.ErrClosed
	}
	o := &s.out
	o.buf = windows.WSABuf{Len: uint32(len(b)), Buf: &b[0]}
	err := windows.WSASendto(s.handle, &o.buf, 1, &o.n, 0, o.to, nil, nil)
	o.buf.Buf = nil // it is the caller's
	if err == windows.WSAEWOULDBLOCK {
		s.awaitRoom()
	}
	return err
}

// awaitRoom waits until there is room for a datagram, or for as long as Close
// may wait.
func (s *ipSocket) awaitRoom() {
	fd := struct {
		handle          windows.Handle
		events, revents int16
	}{handle: s.handle, events: pollOut}
	// What it returns does not matter: to send is tried again.
	_, _, _ = wsaPoll.Call(uintptr(unsafe.Pointer(&fd)), 1, uintptr(maxPause.Milliseconds()))
}

// prepare sets what the IP header of the next datagrams has. What the system
// refuses stays as it is.
func (s *ipSocket) prepare(p *transport.Path) {
	hops := int(p.HopLimit)
	if hops == 0 {
		hops = hopLimit
	}
	had, option := &s.hops, ipTTL // IPv6 has the same numbers
	if p.Dst.IsMulticast() {
		had, option = &s.groupHops, ipMulticastTTL
	}
	if hops == *had {
		return
	}
	*had = hops
	level := windows.IPPROTO_IPV6
	if s.v4 {
		level = windows.IPPROTO_IP
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.closed {
		s.value = int32(hops)
		_ = windows.Setsockopt(s.handle, int32(level), int32(option), (*byte)(unsafe.Pointer(&s.value)), int32(unsafe.Sizeof(s.value)))
	}
}
