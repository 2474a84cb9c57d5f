//go:build !linux || portable

package udp

import (
	"bytes"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/gosoftroce/rocev2/internal/dontfrag"
	"github.com/gosoftroce/rocev2/transport"
)

// ipSocket is a UDP socket that sends unfragmented packets, and sets and tells
// what else the IP header has, as far as the system can.
//
// Package net moves the datagrams. ReadBatch and WriteBatch of golang.org/x/net
// move one datagram a call on every system but Linux, and none on Windows, and
// allocate an address for each. On Linux, where they can be compared, a packet
// of 1 KiB takes 1.6 µs and 2 allocations, and 1.3 µs and none by package net
// (the least of eight runs; BenchmarkBatch, BenchmarkPackageNet).
type ipSocket struct {
	*net.UDPConn
	ip      ipOptions
	classes bool // traffic classes are sent and told

	// Of what is sent, as set last. Sends are serialised.
	class, hops, groupHops int

	// Of what is received. The control messages are mostly those of the
	// datagram before, so they are not parsed again.
	control [controlRoom]byte
	room    []byte // of control; none if the system tells nothing
	last    []byte
	header  header
}

// header is what the system tells of the IP header of a datagram, 0 where it
// does not.
type header struct {
	class, hops uint8
	iface       int // index
}

// controlRoom is in bytes: the control messages of a datagram need less.
const controlRoom = 256

// ipOptions are the options of one version of IP.
type ipOptions interface {
	JoinGroup(*net.Interface, net.Addr) error
	SetMulticastInterface(*net.Interface) error
	SetMulticastLoopback(bool) error
	setClass(int) error
	setHops(int) error
	setGroupHops(int) error
	tell(raw syscall.RawConn) (any, classes bool) // has the system tell the header
	parse(control []byte) header
}

func newIPSocket(c *net.UDPConn, v4 bool) (*ipSocket, error) {
	s := &ipSocket{UDPConn: c, class: -1, hops: -1, groupHops: -1}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if err := dontfrag.Set(raw, v4); err != nil {
		return nil, err
	}
	s.ip = v6Options{ipv6.NewPacketConn(c)}
	if v4 {
		s.ip = v4Options{ipv4.NewPacketConn(c)}
	}
	any, classes := s.ip.tell(raw)
	if any {
		s.room = s.control[:]
	}
	s.classes = classes && s.ip.setClass(0) == nil
	return s, nil
}

// read reads a datagram.
func (s *ipSocket) read(b []byte) (n int, src netip.AddrPort, h header, err error) {
	if s.room == nil {
		n, src, err = s.ReadFromUDPAddrPort(b)
		return n, src, h, err
	}
	n, told, _, src, err := s.ReadMsgUDPAddrPort(b, s.room)
	if control := s.room[:told]; err == nil && !bytes.Equal(control, s.last) {
		s.last = append(s.last[:0], control...)
		s.header = s.ip.parse(control)
	}
	return n, src, s.header, err
}

// prepare sets what the IP header of the next datagrams has. What the system
// refuses stays as it is.
func (s *ipSocket) prepare(p *transport.Path) {
	if class := int(p.TrafficClass); class != s.class {
		_ = s.ip.setClass(class)
		s.class = class
	}
	hops := int(p.HopLimit)
	if hops == 0 {
		hops = hopLimit
	}
	switch {
	case p.Dst.IsMulticast() && hops != s.groupHops:
		_ = s.ip.setGroupHops(hops)
		s.groupHops = hops
	case !p.Dst.IsMulticast() && hops != s.hops:
		_ = s.ip.setHops(hops)
		s.hops = hops
	}
}

// sendBy has the socket send to groups by an interface. Copies come back to the
// members on this host.
func (s *ipSocket) sendBy(ifi *net.Interface) {
	// What is refused concerns multicast alone.
	_ = s.ip.SetMulticastInterface(ifi)
	_ = s.ip.SetMulticastLoopback(true)
}

type v4Options struct{ *ipv4.PacketConn }

func (o v4Options) setClass(n int) error     { return o.SetTOS(n) }
func (o v4Options) setHops(n int) error      { return o.SetTTL(n) }
func (o v4Options) setGroupHops(n int) error { return o.SetMulticastTTL(n) }

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

func (o v6Options) setClass(n int) error     { return o.SetTrafficClass(n) }
func (o v6Options) setHops(n int) error      { return o.SetHopLimit(n) }
func (o v6Options) setGroupHops(n int) error { return o.SetMulticastHopLimit(n) }

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
