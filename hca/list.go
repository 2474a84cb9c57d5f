package hca

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// QPNs returns the numbers of all open queue pairs, in ascending order. It
// holds the lock of a shard for some 10 ns for each.
func (d *Device) QPNs() []rocev2.QPN {
	var list []rocev2.QPN
	for _, s := range d.shards {
		s.lock()
		list = s.eng.AppendQPNs(list)
		s.unlock()
	}
	slices.Sort(list)
	return list
}

// Flow returns how sending stands.
func (q *QP) Flow() qp.Flow {
	q.shard.lock()
	defer q.shard.unlock()
	return qp.FlowOf(q.core.Core())
}

// Later has f called when the lock of a shard is given up, on the goroutine
// that held it. It may be called with any lock held. A goroutine that holds no
// shard's lock calls f itself instead.
func (d *Device) Later(f func()) { d.handlers.add(later(f)) }

// Limits returns what the device offers: in strict mode no more than an adapter
// of the profile, and of queue pairs fewer where it has a part of a port that
// other processes share.
func (d *Device) Limits() ib.Limits { return d.limits }

// PortSlots returns how many sockets the port of a device consists of: those of
// its shards, or of the owner from which it leases some.
func PortSlots(d *Device) uint16 { return uint16(d.slots) }

// Groups returns the multicast groups that queue pairs of the device are
// attached to, in order, and how many there are in each.
func (d *Device) Groups() ([]netip.Addr, []int) {
	d.groups.mu.Lock()
	defer d.groups.mu.Unlock()
	addrs := slices.SortedFunc(maps.Keys(d.groups.byAddr), netip.Addr.Compare)
	members := make([]int, len(addrs))
	for i, a := range addrs {
		members[i] = d.groups.byAddr[a].members
	}
	return addrs, members
}

// Port is the UDP port of a device, which it may share with devices of other
// processes.
type Port struct{ link transport.Link }

// Port returns the port of the device.
func (d *Device) Port() Port { return Port{d.shards[0].link} }

// Lease returns the part of the port that the device has, and false if it has
// all of it.
func (p Port) Lease() (transport.Lease, bool) { return transport.LeaseOf(p.link) }

// ReserveService has management datagrams that ask for a service come to the
// device: see transport.Leased.
func (p Port) ReserveService(id, mask uint64) error {
	return transport.ReserveService(p.link, id, mask)
}

// ReleaseService takes back what ReserveService has done.
func (p Port) ReleaseService(id, mask uint64) { transport.ReleaseService(p.link, id, mask) }
