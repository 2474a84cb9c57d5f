package verbs

import (
	"fmt"
	"net/netip"
)

// Attach has the queue pair, which is of UD, receive the datagrams that are
// sent to a multicast group: an address of 224.0.0.0/4 or ff00::/8, of the
// device's IP version. Its zone means nothing, for the device takes part on its
// own interface. The state does not matter: datagrams come in RTR, RTS, SQD and
// SQE, to a queue pair with their Q_Key and receives.
//
// Each queue pair that is attached gets a copy of a datagram, the one that has
// sent it included, if it is attached. With the first one the device joins the
// group, which the network sees (IGMP, MLD), and with the last one it leaves.
// Attaching again changes nothing. Close detaches.
//
// To send to a group no queue pair needs to be attached: the AddressHandle of a
// datagram has the group as DGID, and its RemoteQPN is MulticastQPN. The
// datagram goes as far as AddressVector.HopLimit says (0 = 64 routers), and
// leaves by the device's interface. Config.Loopback does not matter: it passes
// through the link, which brings one copy back.
//
// The error wraps ErrNotUD, ErrNotGroup, ErrNoResources where a limit of the
// device, the context or the link is reached, errors.ErrUnsupported where the
// link has no multicast (systems other than Linux), an *OpenError where the
// system refuses to join, or ErrClosed. Linux refuses IPv6 groups on lo.
func (q *QP) Attach(group netip.Addr) error {
	if err := q.core.Attach(group); err != nil {
		return fmt.Errorf("verbs: attach queue pair %v to %v: %w", q.QPN(), group, err)
	}
	return nil
}

// Detach ends what Attach has begun. Datagrams that are under way may be lost.
// The error wraps ErrNotAttached or ErrNotGroup. After any other error the
// queue pair is detached all the same.
func (q *QP) Detach(group netip.Addr) error {
	if err := q.core.Detach(group); err != nil {
		return fmt.Errorf("verbs: detach queue pair %v from %v: %w", q.QPN(), group, err)
	}
	return nil
}

// Group is a multicast group that queue pairs of a device are attached to.
type Group struct {
	Addr netip.Addr // without a zone
	QPs  int        // that are attached
}

// Groups returns the multicast groups that the device has joined, by address.
func (d *Device) Groups() []Group {
	addrs, members := d.core.Groups()
	groups := make([]Group, len(addrs))
	for i := range groups {
		groups[i] = Group{addrs[i], members[i]}
	}
	return groups
}
