package responder

import (
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/conn"
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

// named returns the number of the shared receive queue that a request names; 0
// where it names none.
func named(c *conn.Conn, p *rocev2.Packet) uint32 {
	if !c.XRC() {
		return 0
	}
	return p.XRCETH.SRQN
}

// selectSRQ has the request executed with the shared receive queue that it
// names. It returns false if the domain has no such queue, or the message named
// another one before. The queue is looked up for each message, and again when a
// receive is needed: it may have been destroyed.
func (x *executor) selectSRQ(p *rocev2.Packet, info *rocev2.OpcodeInfo) bool {
	n := p.XRCETH.SRQN
	if n != x.xrc.srqn && (!info.First || x.receives.Held) {
		return false
	}
	if !info.First && !info.WithImm {
		return true
	}
	source, pd := x.xrc.domain.SRQ(n)
	if source == nil {
		return false
	}
	x.xrc.srqn, x.c.PD = n, pd
	x.receives.From(source)
	return true
}

// forgetSRQ forgets what requests have named.
func (x *executor) forgetSRQ() {
	if x.xrc != nil {
		x.xrc.srqn, x.c.PD = 0, nil
		x.receives.From(noReceives{})
	}
}

// domain returns the domain of the memory that a request may reach which has
// named a shared receive queue, or none. It is nil, which no memory is of, if
// that queue has gone.
func (x *executor) domain(srqn uint32) *memreg.PD {
	if x.xrc == nil {
		return x.c.PD
	}
	_, pd := x.xrc.domain.SRQ(srqn)
	return pd
}
