//go:build (unix && !linux) || portable

package udp

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/internal/dontfrag"
	"github.com/gosoftroce/rocev2/transport"
)

// ipSocket is a UDP socket that sends unfragmented packets, and sets and tells
// what else the IP header has, as far as the system can.
//
// Package net and golang.org/x/net make it and set its options, which they know
// for each system. Then it has a descriptor of its own, of which the runtime's
// poller does not know: that would wake a thread for every packet, even while a
// program polls and no goroutine waits.
type ipSocket struct {
	file    *os.File
	raw     syscall.RawConn
	fd      int32 // for poll(2) of sockets that may be closed meanwhile
	v4      bool
	classes bool // traffic classes are sent and told
	trouble      // of Recv

	// Of what is sent, as set last. Sends are serialised.
	class, hops, groupHops int

	out struct {
		data []byte
		to4  unix.SockaddrInet4
		to6  unix.SockaddrInet6
		to   unix.Sockaddr
		err  error
	}
	write func(fd uintptr) // sends out
	set   struct {         // an option
		level, option, value int
		err                  error
	}
	apply func(fd uintptr) // sets it

	// Of what is received. Parsing control messages allocates, and there
	// are few that differ, so what they say is kept.
	in      incoming
	read    func(fd uintptr) // fills in
	headers map[string]header
	parse   func(control []byte) header
}

// controlRoom is in bytes: the control messages of a datagram need less.
const controlRoom = 128

// openSocket makes a socket that is bound to at, and sends to groups by an
// interface, if that is not nil. On an error, op is what failed.
func openSocket(at netip.AddrPort, _ uint32, by *net.Interface) (s *ipSocket, op string, err error) {
	c, err := net.ListenUDP(network(at), net.UDPAddrFromAddrPort(at))
	if err != nil {
		return nil, "bind", err
	}
	if s, err = newSocket(c, by, nil); err != nil {
		return nil, "set up the socket", err
	}
	return s, "", nil
}

// openGroupSocket makes a socket that is a member of a group.
func openGroupSocket(at netip.AddrPort, _ netip.Addr, by *net.Interface) (*ipSocket, error) {
	c, err := listenGroup(at, uint32(by.Index))
	if err != nil {
		return nil, err
	}
	return newSocket(c, by, &net.UDPAddr{IP: at.Addr().AsSlice()})
}

func network(at netip.AddrPort) string {
	if at.Addr().Is4() {
		return "udp4"
	}
	return "udp6"
}

// newSocket takes over c, also when it fails. It becomes a member of group, if
// that is not nil.
func newSocket(c *net.UDPConn, by *net.Interface, group *net.UDPAddr) (*ipSocket, error) {
	defer c.Close() // the socket has a descriptor of its own
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	v4 := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Is4()
	if err := dontfrag.Set(raw, v4); err != nil {
		return nil, fmt.Errorf("have packets sent unfragmented: %w", err)
	}
	s := &ipSocket{v4: v4, class: -1, hops: -1, groupHops: -1}
	opts := optionsOf(c, v4)
	if by != nil {
		// Copies come back to the members on this host. What is refused
		// concerns multicast alone.
		_ = opts.SetMulticastInterface(by)
		_ = opts.SetMulticastLoopback(true)
	}
	if group != nil {
		if err := opts.JoinGroup(by, group); err != nil {
			return nil, err
		}
	}
	told, classes := opts.tell(raw)
	if s.file, err = detach(raw, c.LocalAddr().String()); err != nil {
		return nil, err
	}
	if s.raw, err = s.file.SyscallConn(); err == nil {
		err = s.raw.Control(func(fd uintptr) { s.fd = int32(fd) })
	}
	if err != nil {
		s.file.Close()
		return nil, err
	}
	s.parse, s.headers = opts.parse, map[string]header{}
	s.in.init(v4, told)
	s.read = func(fd uintptr) { s.in.receive(int(fd)) }
	s.write = s.sendTo
	s.apply = s.setOption
	s.out.to = &s.out.to6
	if v4 {
		s.out.to = &s.out.to4
	}
	s.classes = classes && s.option(unix.IP_TOS, unix.IPV6_TCLASS, 0) == nil
	return s, nil
}

// detach returns a descriptor of a socket that blocks, so that the runtime's
// poller leaves it alone.
func detach(raw syscall.RawConn, name string) (*os.File, error) {
	var fd int
	var err error
	if e := raw.Control(func(old uintptr) {
		if fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			err = unix.SetNonblock(fd, false)
		}
	}); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), "udp "+name), nil
}

// setBuffers asks for buffers of recv and send bytes, or as much of them as the
// system grants; 0 leaves one as it is. It returns what they hold then, 0 if
// that is not known.
func (s *ipSocket) setBuffers(recv, send int) (gotRecv, gotSend int) {
	_ = s.raw.Control(func(fd uintptr) {
		gotRecv = setBufferOf(int(fd), unix.SO_RCVBUF, recv)
		gotSend = setBufferOf(int(fd), unix.SO_SNDBUF, send)
	})
	return gotRecv, gotSend
}

func setBufferOf(fd, option, n int) int {
	if n > 0 {
		askBuffer(n, bufferOf(fd, option), func(n int) error {
			return unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, n)
		})
	}
	return bufferOf(fd, option)
}

// bufferOf returns what a buffer holds, 0 if that is not known. Linux doubles
// the number to account for its overhead; that half is not counted.
func bufferOf(fd, option int) int {
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, option)
	switch {
	case err != nil:
		return 0
	case runtime.GOOS == "linux":
		return n / 2
	}
	return n
}

// Close closes the socket.
func (s *ipSocket) Close() error { return s.file.Close() }

// receive takes a datagram, or fails with errNothing.
func (s *ipSocket) receive(b []byte, d *datagram) error {
	s.in.offer(b)
	if err := s.raw.Control(s.read); err != nil {
		return net.ErrClosed
	}
	switch s.in.err {
	case nil:
	case unix.EAGAIN, unix.EINTR:
		return errNothing
	default:
		return os.NewSyscallError("recvmsg", s.in.err)
	}
	d.n, d.header = s.in.n, s.headerOf(s.in.told())
	d.src, d.port = s.in.from()
	return nil
}

// mostHeaders is how many different control messages are remembered. A peer may
// send as many as it likes.
const mostHeaders = 256

// headerOf returns what control messages say.
func (s *ipSocket) headerOf(told []byte) header {
	h, known := s.headers[string(told)]
	if !known && len(told) > 0 {
		h = s.parse(told)
		if len(s.headers) >= mostHeaders {
			clear(s.headers)
		}
		s.headers[string(told)] = h
	}
	return h
}

// send sends a datagram, and waits where the system has no room.
func (s *ipSocket) send(b []byte, dst netip.Addr, port uint16, scope uint32) error {
	o := &s.out
	if o.data = b; s.v4 {
		o.to4.Addr, o.to4.Port = dst.As4(), int(port)
	} else {
		o.to6.Addr, o.to6.Port, o.to6.ZoneId = dst.As16(), int(port), 0
		if dst.IsLinkLocalUnicast() {
			o.to6.ZoneId = scope
		}
	}
	if err := s.raw.Control(s.write); err != nil {
		return net.ErrClosed
	}
	o.data = nil // it is the caller's
	if o.err != nil {
		return os.NewSyscallError("sendto", o.err)
	}
	return nil
}

func (s *ipSocket) sendTo(fd uintptr) {
	for s.out.err = unix.EINTR; s.out.err == unix.EINTR; {
		s.out.err = unix.Sendto(int(fd), s.out.data, 0, s.out.to)
	}
}

// prepare sets what the IP header of the next datagrams has. What the system
// refuses stays as it is.
func (s *ipSocket) prepare(p *transport.Path) {
	if class := int(p.TrafficClass); class != s.class {
		_ = s.option(unix.IP_TOS, unix.IPV6_TCLASS, class)
		s.class = class
	}
	hops := int(p.HopLimit)
	if hops == 0 {
		hops = hopLimit
	}
	switch {
	case p.Dst.IsMulticast() && hops != s.groupHops:
		_ = s.option(unix.IP_MULTICAST_TTL, unix.IPV6_MULTICAST_HOPS, hops)
		s.groupHops = hops
	case !p.Dst.IsMulticast() && hops != s.hops:
		_ = s.option(unix.IP_TTL, unix.IPV6_UNICAST_HOPS, hops)
		s.hops = hops
	}
}

// option sets an option, which IPv4 and IPv6 have under names of their own.
func (s *ipSocket) option(v4, v6, value int) error {
	o := &s.set
	o.level, o.option, o.value = unix.IPPROTO_IPV6, v6, value
	if s.v4 {
		o.level, o.option = unix.IPPROTO_IP, v4
	}
	if err := s.raw.Control(s.apply); err != nil {
		return err
	}
	return o.err
}

func (s *ipSocket) setOption(fd uintptr) {
	o := &s.set
	if s.v4 && o.option == unix.IP_MULTICAST_TTL { // some systems take no more than one byte
		o.err = unix.SetsockoptByte(int(fd), o.level, o.option, byte(o.value))
		return
	}
	o.err = unix.SetsockoptInt(int(fd), o.level, o.option, o.value)
}

// listenGroup makes a socket that is bound to a group, so that it receives
// nothing else, and shares the group with others. (Package net binds such a
// socket to the unspecified address, which then is taken for every device.)
func listenGroup(at netip.AddrPort, scope uint32) (*net.UDPConn, error) {
	family := unix.AF_INET6
	var sa unix.Sockaddr = &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16(), ZoneId: scope}
	if at.Addr().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	syscall.ForkLock.RLock() // no child inherits it
	fd, err := unix.Socket(family, unix.SOCK_DGRAM, unix.IPPROTO_UDP)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
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

// options are those of one version of IP.
type options interface {
	JoinGroup(*net.Interface, net.Addr) error
	SetMulticastInterface(*net.Interface) error
	SetMulticastLoopback(bool) error
	tell(raw syscall.RawConn) (any, classes bool) // has the system tell the header
	parse(control []byte) header
}

func optionsOf(c *net.UDPConn, v4 bool) options {
	if v4 {
		return v4Options{ipv4.NewPacketConn(c)}
	}
	return v6Options{ipv6.NewPacketConn(c)}
}

type v4Options struct{ *ipv4.PacketConn }

func (o v4Options) tell(raw syscall.RawConn) (any, classes bool) {
	any = o.SetControlMessage(ipv4.FlagTTL|ipv4.FlagInterface, true) == nil
	classes = receiveTOS(raw) == nil
	return any || classes, classes
}

func (o v4Options) parse(control []byte) header {
	var m ipv4.ControlMessage
	if m.Parse(control) != nil {
		return header{}
	}
	return header{class: tosOf(control), hops: uint8(m.TTL), iface: m.IfIndex}
}

type v6Options struct{ *ipv6.PacketConn }

func (o v6Options) tell(syscall.RawConn) (any, classes bool) {
	any = o.SetControlMessage(ipv6.FlagTrafficClass|ipv6.FlagHopLimit|ipv6.FlagInterface, true) == nil
	return any, any
}

func (o v6Options) parse(control []byte) header {
	var m ipv6.ControlMessage
	if m.Parse(control) != nil {
		return header{}
	}
	return header{class: uint8(m.TrafficClass), hops: uint8(m.HopLimit), iface: m.IfIndex}
}
