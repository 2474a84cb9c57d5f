//go:build !linux || portable

package udp

import (
	"errors"
	"net"
	"net/netip"
	"sync"

	"github.com/gosoftroce/rocev2/transport"
)

// groups are the multicast groups of a link, each with a socket of its own.
type groups struct {
	recvBuffer int
	iface      int // index of the interface on which the link takes part; 0 = there is none

	mu     sync.Mutex
	joined map[netip.Addr]*member
	closed bool
}

// member receives what is sent to one group.
type member struct {
	*ipSocket
	addr     netip.Addr
	verifier *transport.Verifier
	left     chan struct{} // closed when the group is left
}

// JoinGroup has the link receive what is sent to group on the interface that
// has the link's address, and the network bring it there (IGMP, MLD). It fails
// with an *OpenError, when MaxGroups are joined for one.
func (l *Link) JoinGroup(group netip.Addr) error {
	at, err := l.checkGroup(group)
	if err != nil {
		return err
	}
	g := &l.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return transport.ErrClosed
	}
	if err := mayJoin(at, g.joined[at.Addr()] != nil, len(g.joined), g.iface); err != nil {
		return err
	}
	m, err := g.open(at)
	if err != nil {
		return &OpenError{Addr: at, Op: "join group", Err: err}
	}
	g.joined[at.Addr()] = m
	l.readers.Go(func() { l.readLoop(m.ipSocket, m) })
	return nil
}

// open makes a socket that is a member of a group.
func (g *groups) open(at netip.AddrPort) (*member, error) {
	ifi, err := net.InterfaceByIndex(g.iface)
	if err != nil {
		return nil, errNoInterface
	}
	c, err := listenGroup(at, uint32(g.iface))
	if err != nil {
		return nil, err
	}
	s, err := newIPSocket(c, at.Addr().Is4())
	if err == nil {
		err = s.ip.JoinGroup(ifi, &net.UDPAddr{IP: at.Addr().AsSlice()})
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	// A refusal leaves the system's default.
	_ = c.SetReadBuffer(min(g.recvBuffer, groupRecvBuffer))
	return &member{ipSocket: s, addr: at.Addr(), verifier: transport.NewVerifier(at), left: make(chan struct{})}, nil
}

// LeaveGroup ends what JoinGroup has begun.
func (l *Link) LeaveGroup(group netip.Addr) error {
	addr, err := transport.CheckGroup(l.addr, group)
	g := &l.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	switch m := g.joined[addr]; {
	case g.closed:
		return transport.ErrClosed
	case err == nil && m == nil:
		err = transport.ErrGroupNotJoined
	case err == nil:
		return g.remove(m)
	}
	return leaveError(group, err)
}

var _ transport.GroupJoiner = (*Link)(nil)

func (g *groups) remove(m *member) error {
	delete(g.joined, m.addr)
	close(m.left)
	return m.Close()
}

// close leaves all groups.
func (g *groups) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	var errs []error
	for _, m := range g.joined {
		errs = append(errs, g.remove(m))
	}
	return errors.Join(errs...)
}

// isLeft reports whether the group of m, if it is one, was left.
func (m *member) isLeft() bool {
	if m == nil {
		return false
	}
	select {
	case <-m.left:
		return true
	default:
		return false
	}
}

// gone is closed when the group of m is left; nil if it is the link's own
// socket.
func (m *member) gone() <-chan struct{} {
	if m == nil {
		return nil
	}
	return m.left
}
