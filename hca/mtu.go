package hca

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// linkMTU returns how many bytes an IP packet to peer may have, an invalid peer
// being any. The system is asked each time.
func (d *Device) linkMTU(peer netip.Addr) int {
	return transport.ReadLinkMTU(d.shards[0].link, peer)
}

// PathMTU returns the largest path MTU that the way to peer carries as far as it
// is known here: the interface of the device and the one that packets leave by.
func (d *Device) PathMTU(peer netip.Addr) rocev2.MTU { return rocev2.LargestMTU(d.linkMTU(peer)) }

func (d *Device) checkPathMTU(m rocev2.MTU, peer netip.Addr) error {
	link := d.linkMTU(peer)
	most := rocev2.LargestMTU(link)
	switch {
	case m <= most:
		return nil
	case peer.IsValid() && link < d.linkMTU(netip.Addr{}):
		return fmt.Errorf("path MTU %d is more than the way from %v to %v carries: the MTU of %d there leaves room for %d; both sides need the same path MTU",
			m.Bytes(), d.addr, peer, link, most.Bytes())
	}
	return fmt.Errorf("path MTU %d is more than the link of %v carries: its MTU of %d leaves room for %d",
		m.Bytes(), d.addr, link, most.Bytes())
}

// narrowed is a way that has become too narrow for a packet.
type narrowed struct {
	peer netip.Addr
	mtu  rocev2.MTU // what it carries now
}

// narrowed finds out whether a batch could not be sent for the length of its
// packets. The caller owns tx and does not hold mu: the system is asked.
func (s *shard) narrowed(err error) (n narrowed) {
	var failed *transport.SendError
	if !errors.Is(err, transport.ErrTooLong) || !errors.As(err, &failed) || failed.Index >= s.tx.Len() {
		return n
	}
	_, path := s.tx.Packet(failed.Index)
	return narrowed{peer: path.Dst, mtu: rocev2.LargestMTU(transport.ReadLinkMTU(s.link, path.Dst))}
}

// tellNarrowed raises an event, once, for every queue pair whose packets do not
// fit any more. They go on trying: the MTU may come back before they give up.
func (s *shard) tellNarrowed(n narrowed) {
	if !n.peer.IsValid() {
		return
	}
	s.qps.each(func(q *QP) {
		if q.path != nil && q.path.Dst == n.peer && !q.mtuTold && q.core.Attr().PathMTU > n.mtu {
			q.mtuTold = true
			q.raise(ib.EventPathMTU)
		}
	})
}
