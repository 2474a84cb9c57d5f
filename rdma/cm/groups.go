package cm

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/gosoftroce/rocev2/verbs"
)

// groups are the multicast groups that an ID has joined for its queue pair.
type groups []netip.Addr

// join joins a group on the device of m, if there is a queue pair.
func (gs *groups) join(m *manager, q *verbs.QP, group netip.Addr) error {
	switch {
	case m == nil:
		return errors.New("the ID is bound to no device, or to several")
	case slices.Contains(*gs, group):
		return errors.New("the ID has joined it already")
	case !group.IsMulticast() || group.Is4() != m.dev.Addr().Unmap().Is4():
		return verbs.ErrNotGroup
	case q == nil:
		return nil
	}
	if err := q.Attach(group); err != nil {
		return err
	}
	*gs = append(*gs, group)
	return nil
}

// leave leaves a group.
func (gs *groups) leave(q *verbs.QP, group netip.Addr) error {
	i := slices.Index(*gs, group)
	if i < 0 {
		return fmt.Errorf("cm: leave %v: %w", group, verbs.ErrNotAttached)
	}
	*gs = slices.Delete(*gs, i, i+1)
	return q.Detach(group)
}

// leaveAll leaves what was joined.
func (gs *groups) leaveAll(q *verbs.QP) {
	for _, group := range *gs {
		_ = q.Detach(group) // the queue pair is being closed
	}
	*gs = nil
}
