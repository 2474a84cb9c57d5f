package engine

import (
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/transport"
)

// How many bytes the packets take that all queue pairs of an engine keep after
// gaps together: what some peers with the usual window have in flight, or twice
// the own window if that is more, up to a bound.
const (
	reorderBytes     = 12 << 20
	mostReorderBytes = 512 << 20
)

// newReorder makes the memory for packets after gaps. What peers have in
// flight is not known, so our own bounds stand for theirs.
func newReorder(c *Config) *qp.Pool {
	w := c.nativeWindow()
	return qp.MakePool(qp.PoolConfig{Limit: max(reorderBytes, 2*min(w.MaxBytes, mostReorderBytes/2)), Reach: max(w.MaxPSNs, qp.MaxReorder), Lengths: c.Phantom})
}

// fromPeerPort reports whether d comes from the port of the peer. A native peer
// sends from one port only, which the first packet with the right PSN shows;
// any process of the peer's host can send from another. Other peers may use
// several.
func (q *QP) fromPeerPort(d *transport.RxPacket) bool {
	return q.peerPort == 0 || q.peerPort == d.SrcPort
}

// verifyPort learns the port of the peer from the first packet with the right
// PSN, which a forger guesses once in millions of attempts. A native peer sends
// from there from now on. Another peer that uses the well-known port, as Linux
// never does, gets the wide window and nothing else: any sender can choose that
// port.
func (q *QP) verifyPort(c *Config, d *transport.RxPacket) {
	q.portVerified = true
	switch {
	case q.native:
		q.peerPort = d.SrcPort
	case d.SrcPort == c.Port:
		q.widen(c)
	}
}

// widen opens the window as for a native peer.
func (q *QP) widen(c *Config) {
	q.wide = true
	q.core.SetWindow(c.nativeWindow())
}
