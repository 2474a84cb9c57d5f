//go:build !linux || portable

package udp

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/transport"
)

// groups are the multicast groups of a link, each with a socket of its own.
type groups struct {
	recvBuffer int
	iface      int // index of the interface on which the link takes part; 0 = there is none

	// Under mu it is replaced, never changed. So Recv and Wait read it
	// without the lock.
	list atomic.Pointer[[]*member]

	mu     sync.Mutex
	joined map[netip.Addr]*member
	closed bool
}

// member receives what is sent to one group.
type member struct {
	*ipSocket
	addr     netip.Addr
	verifier *transport.Verifier
}

func (g *groups) init(recvBuffer, iface int) {
	g.recvBuffer, g.iface, g.joined = recvBuffer, iface, map[netip.Addr]*member{}
	g.list.Store(&[]*member{})
}

// members returns the sockets of the groups.
func (g *groups) members() []*member { return *g.list.Load() }

// changed notes what was joined or left. The caller holds mu.
func (g *groups) changed() {
	list := slices.Collect(maps.Values(g.joined))
	g.list.Store(&list)
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
	m, err := l.openMember(at)
	if err != nil {
		e := &OpenError{Addr: at, Op: "join group", Err: err}
		if errors.Is(err, manyFiles) {
			e.Hint = filesHint
		}
		return e
	}
	g.joined[at.Addr()] = m
	g.changed()
	l.Wake() // Wait watches it from now on
	return nil
}

// openMember makes a socket that is a member of a group.
func (l *Link) openMember(at netip.AddrPort) (*member, error) {
	g := &l.groups
	ifi, err := net.InterfaceByIndex(g.iface)
	if err != nil {
		return nil, err
	}
	s, err := openGroupSocket(at, l.local.Addr(), ifi)
	if err != nil {
		return nil, err
	}
	s.setBuffers(min(g.recvBuffer, groupRecvBuffer), 0)
	if err := l.waiting.add(s); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &member{ipSocket: s, addr: at.Addr(), verifier: transport.NewVerifier(at)}, nil
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
		delete(g.joined, addr)
		g.changed()
		l.Wake() // Wait must not watch what is closed
		return m.Close()
	}
	return leaveError(group, err)
}

var _ transport.GroupJoiner = (*Link)(nil)

// close leaves all groups.
func (g *groups) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	var errs []error
	for _, m := range g.joined {
		errs = append(errs, m.Close())
	}
	clear(g.joined)
	g.changed()
	return errors.Join(errs...)
}
