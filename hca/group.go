package hca

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/transport"
)

// ErrNotAttached is returned where a queue pair is detached from a multicast
// group that it is not attached to.
var ErrNotAttached = errors.New("the queue pair is not attached to the group")

// ErrNotUD is returned where a queue pair of another type than UD is attached
// to a multicast group.
var ErrNotUD = errors.New("only UD queue pairs can be attached to multicast groups")

// groups are the multicast groups of a device. It has joined those that a queue
// pair is attached to.
type groups struct {
	dev *Device

	// mu serialises changes. It is held while the link joins and leaves,
	// which are system calls. So it is taken outside of the shards' locks.
	mu     sync.Mutex
	byAddr map[netip.Addr]*group
}

// group is one that the device has joined.
type group struct {
	home    *shard         // whose link has joined: what is sent to the group arrives there, once
	members int            // queue pairs that are attached
	shards  map[*shard]int // of these, how many each shard has
}

// Attach has q, which is of UD, receive the datagrams that are sent to a
// multicast group (IBTA 10.5.2). The device joins the group with its first
// queue pair. Attaching again changes nothing.
func (q *QP) Attach(addr netip.Addr) error {
	d := q.owner.dev
	addr, err := transport.CheckGroup(d.own.Addr, addr)
	switch {
	case err != nil:
		return err
	case q.typ != ib.UD:
		return fmt.Errorf("%w; this one is of %v", ErrNotUD, q.typ)
	}
	d.groups.mu.Lock()
	defer d.groups.mu.Unlock()
	if slices.Contains(q.groups, addr) {
		return nil
	}
	if err := q.owner.reserve(kindAttach); err != nil {
		return err
	}
	g := d.groups.byAddr[addr]
	if g == nil {
		g, err = d.groups.join(addr, q.shard)
	}
	if err == nil {
		if err = q.attach(addr); err != nil && g.members == 0 {
			err = errors.Join(err, d.groups.leave(addr, g))
		}
	}
	if err != nil {
		q.owner.unreserve(kindAttach)
		return err
	}
	q.groups = append(q.groups, addr)
	d.groups.adjust(addr, g, q.shard, 1)
	return nil
}

// attach has the engine of the shard know q as a member, when everything else
// is done.
func (q *QP) attach(addr netip.Addr) error {
	q.shard.lock()
	defer q.shard.unlock()
	if q.closed {
		return ErrClosed
	}
	q.shard.eng.Attach(q.core, addr)
	return nil
}

// Detach ends what Attach has begun. The device leaves the group with its last
// queue pair. It fails with ErrNotAttached.
func (q *QP) Detach(addr netip.Addr) error {
	d := q.owner.dev
	addr, err := transport.CheckGroup(d.own.Addr, addr)
	if err != nil {
		return err
	}
	d.groups.mu.Lock()
	defer d.groups.mu.Unlock()
	i := slices.Index(q.groups, addr)
	if i < 0 {
		return fmt.Errorf("group %v: %w", addr, ErrNotAttached)
	}
	q.groups = slices.Delete(q.groups, i, i+1)
	return q.detach(addr)
}

// detach takes q out of a group that it was in. The caller holds groups.mu.
func (q *QP) detach(addr netip.Addr) error {
	d, s := q.owner.dev, q.shard
	s.lock()
	s.eng.Detach(q.core, addr)
	s.unlock()
	q.owner.unreserve(kindAttach)
	g := d.groups.byAddr[addr]
	d.groups.adjust(addr, g, s, -1)
	if g.members > 0 {
		return nil
	}
	return d.groups.leave(addr, g)
}

// detachAll takes q, which is closed, out of its groups.
func (q *QP) detachAll() {
	if q.typ != ib.UD {
		return
	}
	d := q.owner.dev
	d.groups.mu.Lock()
	defer d.groups.mu.Unlock()
	for _, addr := range q.groups {
		// The link's error from leaving no longer matters.
		_ = q.detach(addr)
	}
	q.groups = nil
}

// join has the link of a shard join a group. The caller holds groups.mu.
func (gs *groups) join(addr netip.Addr, home *shard) (*group, error) {
	if len(gs.byAddr) == ib.MaxGroup {
		return nil, fmt.Errorf("%w: at most %d multicast groups in one device", ErrNoResources, ib.MaxGroup)
	}
	err := transport.JoinGroup(home.link, addr)
	switch {
	case errors.Is(err, transport.ErrClosed):
		return nil, ErrClosed
	case errors.Is(err, transport.ErrManyGroups):
		return nil, fmt.Errorf("%w: %w", ErrNoResources, err)
	case err != nil:
		return nil, err
	}
	g := &group{home: home, shards: map[*shard]int{}}
	if gs.byAddr == nil {
		gs.byAddr = map[netip.Addr]*group{}
	}
	gs.byAddr[addr] = g
	return g, nil
}

// leave has the link leave a group. The caller holds groups.mu.
func (gs *groups) leave(addr netip.Addr, g *group) error {
	delete(gs.byAddr, addr)
	err := transport.LeaveGroup(g.home.link, addr)
	if errors.Is(err, transport.ErrClosed) {
		return nil // it has left all
	}
	return err
}

// adjust counts n more queue pairs of a shard in a group, and tells the shards
// if the group has come to that one, or has gone. The caller holds groups.mu.
func (gs *groups) adjust(addr netip.Addr, g *group, s *shard, n int) {
	g.members += n
	before := g.shards[s]
	if g.shards[s] = before + n; g.shards[s] == 0 {
		delete(g.shards, s)
	}
	if len(gs.dev.shards) == 1 || before > 0 && g.shards[s] > 0 {
		return
	}
	routes := map[netip.Addr][]*forwarded{}
	if old := gs.dev.groupRoutes.Load(); old != nil {
		routes = maps.Clone(*old)
	}
	delete(routes, addr)
	for t := range g.shards {
		routes[addr] = append(routes[addr], &t.forwarded)
	}
	gs.dev.groupRoutes.Store(&routes)
}
