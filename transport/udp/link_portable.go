//go:build !linux || portable

package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/internal/dontfrag"
	"github.com/gosoftroce/rocev2/transport"
)

// Link is a transport.Link over one unconnected UDP socket, one more for each
// source port that paths ask for, and one for each group, with one datagram per
// system call. It has no goroutine: Recv and Send call the system, and Wait
// blocks in it. The package documentation says what it cannot do.
type Link struct {
	own    *ipSocket
	addr   netip.Addr
	local  netip.AddrPort
	scope  uint32                 // interface index of a link-local address
	caps   transport.Capabilities // without what changes
	mtu    ownMTU
	others *sourcePorts
	groups groups

	full fullQueue // of Send

	closed  atomic.Bool
	waiting waiter
	rx      receiver
	stats   transport.LinkCounters
}

var _ transport.Link = (*Link)(nil)

// Open binds a link to addr, which must be a unicast address of this machine. A
// link-local IPv6 address needs its zone if several interfaces have it. The
// error is an *OpenError. ReusePort is not supported here.
func Open(addr netip.Addr, c Config) (*Link, error) {
	at, scope, err := c.place(addr)
	if err != nil {
		return nil, err
	}
	if c.ReusePort {
		return nil, &OpenError{Addr: at, Op: "share the port", Err: errors.ErrUnsupported}
	}
	addr = at.Addr()
	l := &Link{addr: addr, local: netip.AddrPortFrom(addr.WithZone(""), c.Port), scope: scope}
	l.mtu.init(addr)
	by := sendingInterface(l.mtu.iface)
	s, op, err := openSocket(at, scope, by)
	if err != nil {
		return nil, &OpenError{Addr: at, Op: op, Err: err,
			Hint: bindHint(at, err)}
	}
	recv, send := s.setBuffers(c.RecvBuffer, c.SendBuffer)
	if err := l.waiting.init(s); err != nil {
		s.Close()
		return nil, &OpenError{Addr: at, Op: "have Wait woken", Err: err}
	}
	l.own = s
	l.caps = transport.Capabilities{Port: c.Port, FullICRC: !addr.Is4(), NativeOnly: addr.Is4() && !dontfrag.ZeroID, ECN: s.classes, SourcePorts: true,
		RecvBuffer: recv, SendBuffer: send}
	l.others = newSourcePorts(at, scope, l.mtu.iface, c)
	l.groups.init(c.RecvBuffer, l.mtu.iface)
	l.rx.verifier = transport.NewVerifier(l.local)
	return l, nil
}

// bindHint says what to do about an error of a socket that was to be bound.
func bindHint(at netip.AddrPort, err error) string {
	switch {
	case errors.Is(err, addrInUse):
		return fmt.Sprintf("another socket has UDP port %d on %v; stop its process, or open another local address; local are %s",
			at.Port(), at.Addr(), localAddrs())
	case errors.Is(err, addrNotLocal):
		return fmt.Sprintf("%v is not an address of this machine; local are %s", at.Addr(), localAddrs())
	case errors.Is(err, noPermission):
		return fmt.Sprintf("no permission to bind UDP port %d: the system, or a firewall, keeps it for others", at.Port())
	case errors.Is(err, manyFiles):
		return filesHint
	}
	return ""
}

// sendingInterface returns the interface by which datagrams to groups leave;
// nil: the routes decide.
func sendingInterface(index int) *net.Interface {
	if ifi, err := net.InterfaceByIndex(index); err == nil {
		return ifi
	}
	return nil
}

// Addr returns the local address, with its zone if it is link-local.
func (l *Link) Addr() netip.Addr { return l.addr }

// Capabilities returns what the link can do.
func (l *Link) Capabilities() transport.Capabilities {
	c := l.caps
	l.mtu.fill(&c)
	return c
}

// ReadLinkMTU reads the MTU of the link's interface; the way to a peer is not
// known on this system.
func (l *Link) ReadLinkMTU(netip.Addr) int {
	return l.mtu.read(func(index int) (int, bool) {
		ifi, err := net.InterfaceByIndex(index)
		if err != nil {
			return 0, false
		}
		return ifi.MTU, true
	})
}

// Wait blocks in the system until a socket has something, and where receiving
// fails for a while.
func (l *Link) Wait() error {
	if l.closed.Load() {
		return transport.ErrClosed
	}
	if l.rx.more.Load() {
		return nil
	}
	err := l.waiting.wait(l)
	if l.closed.Load() {
		return transport.ErrClosed
	}
	return err
}

// Wake makes a Wait return, the current one or the next.
func (l *Link) Wake() { l.waiting.wake() }

// Send transmits b, one datagram at a time.
func (l *Link) Send(b *transport.TxBatch) error {
	if l.closed.Load() {
		return transport.ErrClosed
	}
	var fail transport.SendError
	sent, bytes := 0, 0
	for i := range b.Len() {
		r := b.Run(i, false)
		err := l.sendOne(b, &r)
		switch {
		case err == nil:
			sent++
			bytes += len(r.Data)
		case errors.Is(err, net.ErrClosed):
			return transport.ErrClosed
		default:
			fail.Add(i, 1, err)
		}
	}
	l.stats.Sent(sent, sent, bytes)
	l.stats.SendFailed(fail.Failed)
	return fail.Result()
}

var errFamily = errors.New("path of another address family")

func (l *Link) sendOne(b *transport.TxBatch, r *transport.Run) error {
	p, s := r.Path, l.own
	if p.Dst.Is4() != l.addr.Is4() {
		return errFamily
	}
	if p.SrcPort != 0 && p.SrcPort != l.local.Port() {
		var err error
		if s, err = l.others.socket(p.SrcPort); err != nil {
			return err
		}
	}
	b.Seal(r, l.local)
	s.prepare(p)
	err := s.send(r.Data, p.Dst, p.Port(l.local.Port()), l.scope)
	for err != nil && l.full.mayWait(err, &l.stats) {
		err = s.send(r.Data, p.Dst, p.Port(l.local.Port()), l.scope)
	}
	if err == nil {
		l.full.waited = 0
	}
	if err != nil && errors.Is(err, dontfrag.ErrTooLong) {
		return fmt.Errorf("%w: %w", transport.ErrTooLong, err)
	}
	return err
}

// Close closes the sockets and wakes Wait.
func (l *Link) Close() error {
	if l.closed.Swap(true) {
		return transport.ErrClosed
	}
	l.Wake()
	return errors.Join(l.own.Close(), l.others.leave(), l.groups.close(), l.waiting.close())
}

// Stats returns the counters. RxOverflow is not known on this system.
func (l *Link) Stats() transport.LinkStats { return l.stats.Load() }

// OpenGroup binds one link: ports are not shared here. n must be 1 or less.
func OpenGroup(addr netip.Addr, c Config, n int) ([]*Link, error) {
	if n > 1 {
		return nil, &OpenError{Addr: netip.AddrPortFrom(addr, c.Port), Op: "open a group", Err: errors.ErrUnsupported}
	}
	l, err := Open(addr, c)
	if err != nil {
		return nil, err
	}
	return []*Link{l}, nil
}

// isAbroad reports whether the socket is of another network namespace.
func (l *Link) isAbroad() bool { return false }

// sourceSocket sends from a port beside the link's own.
type sourceSocket = ipSocket

// openSource makes a socket for sending from a port. What comes to it fills its
// small buffer, and is dropped from then on.
func openSource(at netip.AddrPort, scope uint32, iface int, c *Config) (s *sourceSocket, op string, err error) {
	if s, op, err = openSocket(at, scope, sendingInterface(iface)); err != nil {
		return nil, op, err
	}
	s.setBuffers(1, c.SendBuffer)
	return s, "", nil
}

// OpenSourcePort binds a socket for paths with SrcPort port, unless there is
// one. It fails with an *OpenError when another process has the port or when
// MaxSourcePorts are open; unless exact, another port takes its place. Send
// opens the ports of its paths itself; calling this first shows the error
// early.
func (l *Link) OpenSourcePort(port uint16, exact bool) (uint16, error) {
	if l.closed.Load() {
		return 0, transport.ErrClosed
	}
	if port == 0 || port == l.local.Port() {
		return port, nil
	}
	got, err := l.others.open(port, exact)
	if e := (*OpenError)(nil); errors.As(err, &e) && e.Hint == "" {
		if e.Hint = bindHint(e.Addr, e.Err); errors.Is(err, addrInUse) {
			e.Hint = "another socket has the port; choose another source port"
		}
	}
	return got, err
}
