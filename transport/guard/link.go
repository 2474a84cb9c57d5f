package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/transport"
)

// Reason is why keys are wanted.
type Reason uint8

// Reasons.
const (
	ToSend  Reason = iota // packets wait for them
	Unknown               // a packet with the address of the peer is sealed with a key that is not known here
	Renew                 // those that there are have sealed many packets, or nothing comes back
)

// Config says where a Link has its keys from, and which socket of the port it
// is on. Table and Want are required.
type Config struct {
	Table *Table

	// Want asks for keys of a peer. It must not wait, and may be called
	// again and again. For Unknown the packet may be forged: keys that
	// there are must stay.
	Want func(peer netip.Addr, why Reason)

	Slot   uint8  // of the socket among those of the port
	Serial uint32 // another one for each that has the socket

	// Limit is how many packets a key may seal. Others are wanted after
	// half of them. 0: psp.MaxPackets; tests have less.
	Limit uint64

	// Through reports whether a packet, BTH to pad, goes to the owner of
	// the port, which seals it: the link inside leases a part of the port.
	// Nil: none does.
	Through func(packet []byte) bool
}

// Link seals and opens the packets of the link that it wraps. It is a
// transport.Link.
type Link struct {
	transport.Wrapper
	cfg      Config
	local    netip.Addr // without zone
	port     uint16
	ports    bool // others can be sent from, too
	own      bool // packets to the own address are sealed
	rx       opening
	contacts contacts
	counters counts

	mu   sync.Mutex // guards what follows: packets that have waited leave beside Send
	tx   sealing
	wait waiting
}

var _ transport.Link = (*Link)(nil)

// New wraps inner.
func New(inner transport.Link, c Config) *Link {
	if c.Limit == 0 || c.Limit > psp.MaxPackets {
		c.Limit = psp.MaxPackets
	}
	caps := inner.Capabilities()
	l := &Link{Wrapper: transport.Wrapper{Link: inner}, cfg: c, local: plain(inner.Addr()), port: caps.Port, ports: caps.SourcePorts}
	l.own = SealsOwn(l.local)
	l.rx.init(l)
	l.tx.init()
	l.wait.of = map[netip.Addr]*queue{}
	return l
}

// Counters returns what was sealed, opened and dropped.
func (l *Link) Counters() Counters { return l.counters.load() }

// Hosts returns the peers that there are keys of to send, but for the own
// address.
func (l *Link) Hosts() []netip.Addr {
	return slices.DeleteFunc(l.cfg.Table.Hosts(), func(a netip.Addr) bool { return a == l.local })
}

// Capabilities are those of the link inside, with room for what seals a packet.
func (l *Link) Capabilities() transport.Capabilities {
	c := l.Link.Capabilities()
	c.LinkMTU -= transport.SealedOverhead
	c.MTU = min(c.MTU, rocev2.LargestMTU(c.LinkMTU))
	return c
}

// ReadLinkMTU has room for what seals a packet; see transport.LinkMTUReader.
func (l *Link) ReadLinkMTU(peer netip.Addr) int {
	n := transport.ReadLinkMTU(l.Link, peer)
	if l.own || plain(peer) != l.local {
		n -= transport.SealedOverhead
	}
	return n
}

// ErrMulticast is why a link joins no group.
var ErrMulticast = errors.New("the port is secured, and multicast cannot be: its packets would be in clear")

// JoinGroup fails with ErrMulticast.
func (l *Link) JoinGroup(group netip.Addr) error {
	return fmt.Errorf("guard: join %v on %v: %w", group, l.local, ErrMulticast)
}

// CanProbePort reports false: the packets of a probe would be in clear.
func (l *Link) CanProbePort() bool { return false }

// ProbePort sends nothing: see CanProbePort.
func (l *Link) ProbePort(netip.Addr, []byte, <-chan struct{}) bool { return false }

// Close closes the link inside. What waits for keys is lost.
func (l *Link) Close() error {
	err := l.Link.Close() // first: a Send that blocks has the lock
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wait.end()
	return err
}

// SealsOwn reports whether packets of an address to itself are sealed, too: a
// stranger may send packets with the address as their source, and only over
// IPv4 does Linux drop those that have not come through loopback (RFC 1812
// 5.3.7). The Table has a peer with the address of the port itself.
func SealsOwn(a netip.Addr) bool {
	return !a.IsLoopback() && (a.Unmap().Is6() || runtime.GOOS != "linux")
}

// envelope is the opcode of what the owner of a port and its leaseholders say
// to each other, which is never sealed: a token authenticates it (package
// transport/lease).
const envelope = 0xd2

// inClear reports whether a packet from the own address to itself is in clear.
func (l *Link) inClear(data []byte) bool { return !l.own || data[0] == envelope }

// plain is an address as packets have it.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
