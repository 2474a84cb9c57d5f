package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// Prober sends probes from one address to another, all from one source port, so
// that a network that spreads flows sends them one way.
type Prober struct {
	to   netip.AddrPort
	file *os.File
	raw  rawConn
	echo bool // ICMP echo requests instead of UDP datagrams
	seq  uint32

	sendto func(fd int, b []byte, flags int, to unix.Sockaddr) error // the system call; tests set it
}

type rawConn interface {
	Control(f func(fd uintptr)) error
	Read(f func(fd uintptr) bool) error
}

// Open makes a prober that sends UDP datagrams from an address of this host, or
// from the one that the system chooses if local is not valid. They are never
// fragmented, and what the system has learned of the path does not count.
func Open(local netip.Addr, to netip.AddrPort) (*Prober, error) {
	return open(local, to, unix.IPPROTO_UDP, false)
}

// OpenEcho makes a prober that sends ICMP echo requests, which Linux allows to
// the groups of net.ipv4.ping_group_range.
func OpenEcho(local, peer netip.Addr) (*Prober, error) {
	proto := unix.IPPROTO_ICMPV6
	if peer.Is4() {
		proto = unix.IPPROTO_ICMP
	}
	return open(local, netip.AddrPortFrom(peer, 0), proto, true)
}

func open(local netip.Addr, to netip.AddrPort, proto int, echo bool) (*Prober, error) {
	family, src := unix.AF_INET6, netip.IPv6Unspecified()
	if to.Addr().Is4() {
		family, src = unix.AF_INET, netip.IPv4Unspecified()
	}
	if local.IsValid() {
		src = local
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := setUp(fd, to.Addr().Is4(), netip.AddrPortFrom(src, 0)); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("probe %v from %v: %w", to.Addr(), src, err)
	}
	f := os.NewFile(uintptr(fd), "probe") // a non-blocking one: the runtime's poller waits for it
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Prober{to: to, file: f, raw: raw, echo: echo, sendto: unix.Sendto}, nil
}

func setUp(fd int, v4 bool, src netip.AddrPort) error {
	type option struct{ level, name, value int }
	opts := []option{
		{unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1},
		{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE},
		{unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1},
	}
	if v4 {
		opts = []option{
			{unix.IPPROTO_IP, unix.IP_RECVERR, 1},
			{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE},
		}
	}
	for _, o := range opts {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	return os.NewSyscallError("bind", unix.Bind(fd, sockaddr(src)))
}

func sockaddr(ap netip.AddrPort) unix.Sockaddr {
	a := ap.Addr()
	if a.Is4() {
		return &unix.SockaddrInet4{Port: int(ap.Port()), Addr: a.As4()}
	}
	sa := &unix.SockaddrInet6{Port: int(ap.Port()), Addr: a.As16()}
	if ifi, err := net.InterfaceByName(a.Zone()); a.Zone() != "" && err == nil {
		sa.ZoneId = uint32(ifi.Index)
	}
	return sa
}

// Close gives the socket back.
func (p *Prober) Close() error { return p.file.Close() }

// Probe sends one packet of size bytes, IP header included, with a hop limit (0
// means the system's), and waits for an answer. The error is one of this host:
// a packet that does not fit its interface is none, but an Answer.
func (p *Prober) Probe(ctx context.Context, hops, size int, timeout time.Duration) (Answer, error) {
	p.seq++
	packet := p.packet(size)
	start := time.Now()
	err := p.send(packet, hops)
	switch {
	case errors.Is(err, unix.EMSGSIZE):
		a := Answer{Kind: TooBig, Local: true}
		p.drain(func(e icmpError) { a.MTU = e.mtu })
		return a, nil
	case errors.Is(err, unix.ENOBUFS):
		return dropped(size), nil
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		return Answer{Kind: Unreachable, Local: true}, nil
	case errors.Is(err, unix.EPERM):
		// A firewall's rule for what leaves this host.
		return Answer{Kind: Prohibited, Local: true}, nil
	case err != nil:
		return Answer{}, fmt.Errorf("probe %v: %w", p.to.Addr(), err)
	}
	return p.await(ctx, start, timeout)
}

// dropped says what came of a packet that the device has dropped each time
// (ENOBUFS): the other end of its cable, as of a veth, takes less than this
// one. Of a short packet it can only be that the device's queue is full.
func dropped(size int) Answer {
	if size <= shortPacket {
		return Answer{Kind: Silent, Local: true}
	}
	return Answer{Kind: TooBig, Local: true}
}

// shortPacket is in bytes: no network that carries RoCEv2 takes less, since the
// smallest path MTU has 256 bytes of payload alone.
const shortPacket = 256

func (p *Prober) packet(size int) []byte {
	b := make([]byte, max(size-ipHeader(p.to.Addr())-udpHeader, markLen))
	mark(b, p.seq)
	if !p.echo {
		return b
	}
	m := icmp.Message{Type: ipv6.ICMPTypeEchoRequest, Body: &icmp.Echo{Seq: int(uint16(p.seq)), Data: b}}
	if p.to.Addr().Is4() {
		m.Type = ipv4.ICMPTypeEcho
	}
	packet, err := m.Marshal(nil) // the system fills in identifier and checksum
	if err != nil {
		panic(err) // of an echo request there is nothing that it cannot write
	}
	return packet
}

// send sends a packet. An error of an earlier one, which the socket remembers,
// is not of this one: it stands in the queue of errors.
func (p *Prober) send(b []byte, hops int) (err error) {
	level, name := unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
	if p.to.Addr().Is4() {
		level, name = unix.IPPROTO_IP, unix.IP_TTL
	}
	if hops == 0 {
		hops = -1 // the system's
	}
	ctl := p.raw.Control(func(fd uintptr) {
		if err = unix.SetsockoptInt(int(fd), level, name, hops); err != nil {
			err = os.NewSyscallError("setsockopt", err)
			return
		}
		for range 3 {
			err = p.sendto(int(fd), b, 0, sockaddr(p.to))
			if err == nil || errors.Is(err, unix.EMSGSIZE) {
				return
			}
		}
	})
	return errors.Join(ctl, err)
}

// await waits for the answer to the last packet.
func (p *Prober) await(ctx context.Context, start time.Time, timeout time.Duration) (a Answer, err error) {
	p.file.SetReadDeadline(start.Add(timeout))
	defer context.AfterFunc(ctx, func() { p.file.SetReadDeadline(time.Unix(1, 0)) })()
	found := false
	err = p.raw.Read(func(fd uintptr) bool {
		drainErrors(int(fd), p.to.Addr().Is4(), func(e icmpError) {
			if e.seqKnown && e.seq != p.seq || found {
				return // late, of an earlier packet
			}
			found, a = true, e.answer()
		})
		if p.echo && !found {
			found, a = p.takeEcho(int(fd))
		}
		return found
	})
	if ctx.Err() != nil && !found {
		return a, context.Cause(ctx)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && !found {
		return a, nil
	}
	a.RTT = time.Since(start)
	return a, err
}

func (p *Prober) takeEcho(fd int) (bool, Answer) {
	protocol := ipv6.ICMPTypeEchoReply.Protocol()
	if p.to.Addr().Is4() {
		protocol = ipv4.ICMPTypeEchoReply.Protocol()
	}
	var b [icmpHeader + markLen]byte // the rest is cut off
	for {
		n, from, err := unix.Recvfrom(fd, b[:], unix.MSG_DONTWAIT)
		if err != nil {
			return false, Answer{}
		}
		m, err := icmp.ParseMessage(protocol, b[:n])
		if err != nil {
			continue
		}
		echo, ok := m.Body.(*icmp.Echo)
		if !ok {
			continue
		}
		if seq, ok := seqOf(echo.Data); ok && seq == p.seq {
			return true, Answer{Kind: Echoed, From: addrOf(from)}
		}
	}
}

func addrOf(sa unix.Sockaddr) netip.Addr {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(sa.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(sa.Addr).Unmap()
	}
	return netip.Addr{}
}

// drain takes what is in the queue of errors.
func (p *Prober) drain(f func(icmpError)) {
	// There is nothing to tell of an error of the queue itself.
	_ = p.raw.Control(func(fd uintptr) { drainErrors(int(fd), p.to.Addr().Is4(), f) })
}

// icmpError is an entry of the queue of errors.
type icmpError struct {
	unix.SockExtendedErr
	from     netip.Addr
	mtu      int
	seq      uint32
	seqKnown bool
}

func drainErrors(fd int, v4 bool, f func(icmpError)) {
	var data [512]byte
	var oob [256]byte
	for {
		n, on, _, _, err := unix.Recvmsg(fd, data[:], oob[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if err != nil {
			return
		}
		msgs, err := unix.ParseSocketControlMessage(oob[:on])
		if err != nil {
			continue
		}
		for _, m := range msgs {
			if e, ok := parseError(m, v4); ok {
				if e.seq, e.seqKnown = seqOf(data[:n]); !e.seqKnown && n > icmpHeader {
					e.seq, e.seqKnown = seqOf(data[icmpHeader:n])
				}
				f(e)
			}
		}
	}
}

func parseError(m unix.SocketControlMessage, v4 bool) (e icmpError, ok bool) {
	want := [2]int32{unix.IPPROTO_IPV6, unix.IPV6_RECVERR}
	if v4 {
		want = [2]int32{unix.IPPROTO_IP, unix.IP_RECVERR}
	}
	size := int(unsafe.Sizeof(unix.SockExtendedErr{}))
	if [2]int32{m.Header.Level, m.Header.Type} != want || len(m.Data) < size {
		return e, false
	}
	e.SockExtendedErr = *(*unix.SockExtendedErr)(unsafe.Pointer(&m.Data[0]))
	if e.Errno == uint32(unix.EMSGSIZE) {
		e.mtu = int(e.Info)
	}
	// The sender of the ICMP message follows, as a sockaddr.
	if b := m.Data[size:]; len(b) >= unix.SizeofSockaddrInet4 && binary.NativeEndian.Uint16(b) == unix.AF_INET {
		e.from = netip.AddrFrom4([4]byte(b[4:8]))
	} else if len(b) >= unix.SizeofSockaddrInet6 && binary.NativeEndian.Uint16(b) == unix.AF_INET6 {
		e.from = netip.AddrFrom16([16]byte(b[8:24])).Unmap()
	}
	return e, true
}

// Codes of destination unreachable by which a firewall says that something may
// not pass: network, host, communication prohibited (RFC 1122, RFC 1812); and
// of IPv6 prohibited, policy, route rejected (RFC 4443).
var (
	prohibited  = []uint8{9, 10, 13}
	prohibited6 = []uint8{1, 5, 6}
)

func (e *icmpError) answer() Answer {
	a := Answer{From: e.from, Local: e.Origin == unix.SO_EE_ORIGIN_LOCAL, MTU: e.mtu}
	v4, v6 := ipv4.ICMPType(-1), ipv6.ICMPType(-1)
	switch e.Origin {
	case unix.SO_EE_ORIGIN_ICMP:
		v4 = ipv4.ICMPType(e.Type)
	case unix.SO_EE_ORIGIN_ICMP6:
		v6 = ipv6.ICMPType(e.Type)
	}
	switch {
	case e.Errno == uint32(unix.EMSGSIZE):
		a.Kind = TooBig
	case e.Errno == uint32(unix.ECONNREFUSED):
		a.Kind = Refused
	case v4 == ipv4.ICMPTypeTimeExceeded || v6 == ipv6.ICMPTypeTimeExceeded:
		a.Kind = TimeUp
	case v4 == ipv4.ICMPTypeDestinationUnreachable && slices.Contains(prohibited, e.Code),
		v6 == ipv6.ICMPTypeDestinationUnreachable && slices.Contains(prohibited6, e.Code):
		a.Kind = Prohibited
	default:
		a.Kind = Unreachable
	}
	return a
}
