package fabric

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

var _ transport.GroupJoiner = (*Port)(nil)

// JoinGroup has the port receive what is sent to a multicast group. The switch
// knows it at once.
func (p *Port) JoinGroup(group netip.Addr) error {
	return p.changeGroup("join", group, func(g netip.Addr) error {
		if p.groups[g] != nil {
			return transport.ErrGroupJoined
		}
		if p.groups == nil {
			p.groups = make(map[netip.Addr]*transport.Verifier)
		}
		p.groups[g] = transport.NewVerifier(netip.AddrPortFrom(g, rocev2.UDPPort))
		p.sw.groups[g] = append(p.sw.groups[g], p)
		return nil
	})
}

// LeaveGroup ends what JoinGroup has begun. What is under way to the port is
// lost.
func (p *Port) LeaveGroup(group netip.Addr) error {
	return p.changeGroup("leave", group, func(g netip.Addr) error {
		if p.groups[g] == nil {
			return transport.ErrGroupNotJoined
		}
		p.leave(g)
		return nil
	})
}

// changeGroup calls f with the lock held.
func (p *Port) changeGroup(op string, group netip.Addr, f func(netip.Addr) error) error {
	group, err := transport.CheckGroup(p.addr, group)
	p.sw.mu.Lock()
	defer p.sw.mu.Unlock()
	if p.closed {
		return transport.ErrClosed
	}
	if err == nil {
		err = f(group)
	}
	if err != nil {
		return fmt.Errorf("fabric: port %v: %s group %v: %w", p.addr, op, group, err)
	}
	return nil
}

// leave takes the port out of a group that it has joined. The caller holds the
// lock.
func (p *Port) leave(group netip.Addr) {
	delete(p.groups, group)
	isPort := func(q *Port) bool { return q == p }
	if rest := slices.DeleteFunc(p.sw.groups[group], isPort); len(rest) > 0 {
		p.sw.groups[group] = rest
	} else {
		delete(p.sw.groups, group)
	}
}
