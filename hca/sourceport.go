package hca

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// AutoSourcePort as the SrcPort of an address vector has the device choose: the
// port that Linux derives from the flow label, or without one from the two
// queue pair numbers. Both ends choose the same. If that port is taken, or if
// the link has as many open as it can, another one serves.
const AutoSourcePort = 1

// withSourcePort opens the source port that a asks for. It returns a with the
// port that was chosen.
func (q *QP) withSourcePort(a *ib.Attr, mask ib.AttrMask) (*ib.Attr, error) {
	port := a.AV.SrcPort
	auto, own := port == AutoSourcePort, port == 0
	if mask&ib.AttrAV == 0 || port < ib.MinSrcPort && !auto && !own {
		return a, nil // nothing to open, or refused with the other attributes
	}
	peer := a.DestQPN
	if mask&ib.AttrDestQPN == 0 && (auto || a.AV.Slots > 1) {
		peer = q.Attr().DestQPN
	}
	switch {
	case auto:
		port = flowPort(a.AV.FlowLabel, q.QPN(), peer)
	case own:
		if port = q.slotPort(&a.AV, peer); port == 0 {
			return a, nil
		}
		auto = true
	}
	port, err := transport.OpenSourcePort(q.shard.link, port, !auto)
	if own && err != nil {
		return a, nil // what comes to another socket of the peer is handed over there
	}
	if err != nil {
		return nil, err
	}
	b := *a
	if b.AV.SrcPort = port; port == q.shard.link.Capabilities().Port {
		b.AV.SrcPort = 0 // there is no other
	}
	return &b, nil
}

// flowPort folds a flow label of 20 bits into the 14 bits that the source port
// has for entropy. Without a label the product of the queue pair numbers, the
// same seen from both ends, takes its place.
func flowPort(label uint32, a, b rocev2.QPN) uint16 {
	const labelMask = 1<<20 - 1
	if label &= labelMask; label == 0 {
		v := uint64(a) * uint64(b)
		v ^= v>>20 ^ v>>40
		label = uint32(v) & labelMask
	}
	return uint16(label&0x3fff^label>>14) | ib.MinSrcPort
}
