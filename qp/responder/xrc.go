package responder

import (
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
)

// target is what an XRC target has beyond a responder of RC. It has no receives
// and no protection domain of its own. Each request names a shared receive
// queue of the target's domain (IBTA A14): that has the receive, and the memory
// that the request reaches is that of its protection domain, Conn.PD meanwhile.
type target struct {
	domain queue.XRCDomain
	srqn   uint32 // that the message under way, or the last one, has named
}

// noReceives is where a target has receives from before a request has named a
// shared receive queue.
type noReceives struct{}

func (noReceives) Next(*queue.Recv) bool { return false }

// selectSRQ has the request executed with the shared receive queue that it
// names. It returns false if the domain has no such queue, or the message named
// another one before. The queue is looked up for each message, and again when a
// receive is needed: it may have been destroyed.
func (r *Responder) selectSRQ(p *rocev2.Packet, info *rocev2.OpcodeInfo) bool {
	n := p.XRCETH.SRQN
	if n != r.xrc.srqn && (!info.First || r.receives.Held) {
		return false
	}
	if !info.First && !info.WithImm {
		return true
	}
	source, pd := r.xrc.domain.SRQ(n)
	if source == nil {
		return false
	}
	r.xrc.srqn, r.c.PD = n, pd
	r.receives.From(source)
	return true
}

// forgetSRQ forgets what requests have named.
func (r *Responder) forgetSRQ() {
	if r.xrc != nil {
		r.xrc.srqn, r.c.PD = 0, nil
		r.receives.From(noReceives{})
	}
}

// current returns the number of the shared receive queue that the message under
// way names; 0 where it names none.
func (t *target) current() uint32 {
	if t == nil {
		return 0
	}
	return t.srqn
}

// namedBy returns the number of the shared receive queue that a request names;
// 0 where it names none.
func (t *target) namedBy(p *rocev2.Packet) uint32 {
	if t == nil {
		return 0
	}
	return p.XRCETH.SRQN
}

// domainOf returns the domain of the memory that a request may reach which has
// named a shared receive queue, or none. It is nil, which no memory is of, if
// that queue has gone.
func (r *answerer) domainOf(srqn uint32) *memreg.PD {
	if r.xrc == nil {
		return r.c.PD
	}
	_, pd := r.xrc.domain.SRQ(srqn)
	return pd
}
