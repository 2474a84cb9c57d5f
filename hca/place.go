package hca

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// placer says for the link of a shard where payloads belong. The link asks
// during Recv, under intake.mu. What it has placed is handled before that is
// given up.
//
// From Place to Placed the shard is locked: the link receives the payloads and
// looks at them meanwhile. So nothing that gives memory back to the program,
// such as Modify to ERR, comes in between. That system call takes the place of
// a copy that would be made under the lock otherwise. Deregistration does not
// take the lock: the pin holds it up.
type placer struct {
	s    *locked
	view memreg.View
}

var _ transport.Placer = (*placer)(nil)

// Place implements transport.Placer.
func (p *placer) Place(src netip.AddrPort, h *[rocev2.BTHLen]byte, size, n int) (b []byte) {
	p.s.mu.Lock() // nothing is changed that unlock would have to look at
	if !p.s.closed && !p.s.domains.several.Load() {
		p.view, b = p.s.eng.Place(src, h, size, n)
	}
	if len(b) == 0 {
		p.s.mu.Unlock()
	}
	return b
}

// Placed implements transport.Placer.
func (p *placer) Placed() {
	p.view.Release()
	p.view = memreg.View{}
	p.s.mu.Unlock()
}

// domains counts the queue pairs of each protection domain. What a network has
// coalesced with the packets of one queue pair may be for another one, and
// lies in the wrong place for a moment. So nothing is placed while the queue
// pairs are not all of one domain: programs of different contexts see nothing
// of each other. The management queue pair does not count. Its packets are
// shorter than any that are placed.
type domains struct {
	mu      sync.Mutex
	users   map[*memreg.PD]int
	several atomic.Bool
}

// add counts q, or with n = -1 no longer.
func (d *domains) add(q *qp.QP, n int) {
	if q.Type() == ib.GSI {
		return
	}
	pd := qp.Domain(q)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.users == nil {
		d.users = map[*memreg.PD]int{}
	}
	if d.users[pd] += n; d.users[pd] == 0 {
		delete(d.users, pd)
	}
	d.several.Store(len(d.users) > 1)
}
