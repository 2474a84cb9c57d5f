package tap

import (
	"cmp"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/transport"
)

// Switch wraps a link whose packets can be recorded at any time, into a Ring.
// While nothing is recorded it costs one load a batch. It is a transport.Link.
type Switch struct {
	transport.Wrapper
	local netip.AddrPort
	ring  atomic.Pointer[Ring]
}

var _ transport.Link = (*Switch)(nil)

// NewSwitch wraps inner, which belongs to it from now on.
func NewSwitch(inner transport.Link) *Switch {
	return &Switch{
		Wrapper: transport.Wrapper{Link: inner},
		local:   netip.AddrPortFrom(inner.Addr().WithZone(""), inner.Capabilities().Port),
	}
}

// Record records into r from now on, and into no other ring any more. nil ends
// the recording. Several links may record into one ring.
func (s *Switch) Record(r *Ring) { s.ring.Store(r) }

// Send records and transmits b.
func (s *Switch) Send(b *transport.TxBatch) error {
	if r := s.ring.Load(); r != nil {
		b.SealAll(s.local, s.Link.Capabilities().SegmentOffload) // see Link.Send
		r.sent(time.Now(), s.local, b)
	}
	return s.Link.Send(b)
}

// Recv receives and records what came.
func (s *Switch) Recv(b *transport.RxBatch) (int, error) {
	n, err := s.Link.Recv(b)
	if n > 0 {
		if r := s.ring.Load(); r != nil {
			r.received(time.Now(), s.local, b)
		}
	}
	return n, err
}

// headerOf returns the headers of packet i of a batch that is sent from local.
func headerOf(b *transport.TxBatch, i int, local netip.AddrPort) (h header, data []byte) {
	data, id := b.Sealed(i)
	_, p := b.Packet(i)
	return header{
		src: netip.AddrPortFrom(local.Addr(), cmp.Or(p.SrcPort, local.Port())), dst: netip.AddrPortFrom(p.Dst, p.Port(local.Port())),
		id: id, class: p.TrafficClass, hops: p.HopLimit, label: p.FlowLabel,
	}, data
}

// headerFrom returns the headers of a packet that came to local.
func headerFrom(p *transport.RxPacket, local netip.AddrPort) header {
	return header{
		src: netip.AddrPortFrom(p.Src, p.SrcPort), dst: netip.AddrPortFrom(p.Dst, local.Port()),
		id: p.IPID, class: p.TrafficClass, hops: p.HopLimit, label: p.FlowLabel,
		seal: p.ICRC == transport.ICRCAbsent,
	}
}
