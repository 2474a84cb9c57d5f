package transport

import (
	"errors"
	"fmt"
	"net/netip"
)

// GroupJoiner is a Link that can receive what is sent to multicast groups. A
// link that wraps another one passes the calls on, as Wrapper does.
type GroupJoiner interface {
	// JoinGroup has the link receive what is sent to group, a multicast
	// address of its own IP version. A zone is ignored: the link's own
	// counts. The Dst of such packets is the group. Datagrams that the
	// link itself sends to a group that it has joined come back to it. A
	// group is joined once: the next call fails with ErrGroupJoined. The
	// call may run beside every other method. Close leaves all groups.
	JoinGroup(group netip.Addr) error

	// LeaveGroup ends what JoinGroup has begun. What has arrived before,
	// and was not received, is lost. It fails with ErrGroupNotJoined if the
	// link has not joined the group. The call may run beside every other
	// method.
	LeaveGroup(group netip.Addr) error
}

// Errors of JoinGroup and LeaveGroup. They come wrapped.
var (
	ErrGroupJoined    = errors.New("the link has joined the group already")
	ErrGroupNotJoined = errors.New("the link has not joined the group")
	ErrManyGroups     = errors.New("the link has joined as many groups as it can")
	ErrNotGroup       = errors.New("not a multicast address of the link's IP version")
)

// JoinGroup asks l to join a group. It fails with errors.ErrUnsupported for a
// link that cannot.
func JoinGroup(l Link, group netip.Addr) error {
	if j, ok := l.(GroupJoiner); ok {
		return j.JoinGroup(group)
	}
	return noGroups(l, "join", group)
}

// LeaveGroup asks l to leave a group. It fails with errors.ErrUnsupported for a
// link that cannot join any.
func LeaveGroup(l Link, group netip.Addr) error {
	if j, ok := l.(GroupJoiner); ok {
		return j.LeaveGroup(group)
	}
	return noGroups(l, "leave", group)
}

func noGroups(l Link, op string, group netip.Addr) error {
	return fmt.Errorf("transport: %s %v: the link of %v receives no multicast: %w", op, group, l.Addr(), errors.ErrUnsupported)
}

// CheckGroup returns the address under which a link of the address local knows
// a group: plain IPv4 or IPv6, without a zone. It fails with ErrNotGroup.
func CheckGroup(local, group netip.Addr) (netip.Addr, error) {
	g := group.Unmap().WithZone("")
	if !g.IsMulticast() || g.Is4() != local.Unmap().Is4() {
		return g, fmt.Errorf("group %v on %v: %w", group, local, ErrNotGroup)
	}
	return g, nil
}
