package attack

import (
	"bytes"
	"crypto/rand"
	"net/netip"
	"slices"
	"sync"

	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// secure has both ends seal their packets, with keys that nothing else has.
func (c *conn) secure() {
	a, err := c.a.qp.Sealing()
	check(err)
	b, err := c.b.qp.Sealing()
	check(err)
	intoA, intoB := association(c.a), association(c.b)
	check(a.Accept(intoA))
	check(b.Accept(intoB))
	check(a.Seal(intoB))
	check(b.Seal(intoA))
}

// association returns one for packets to an end. Its SPI is the number of the
// queue pair.
func association(to *end) verbs.Association {
	v := verbs.SealGCM128
	if to.qp.QPN()&2 != 0 {
		v = verbs.SealGCM256
	}
	key := make([]byte, v.KeyLen())
	rand.Read(key)
	return verbs.Association{SPI: uint32(to.qp.QPN()), Version: v, Key: key}
}

// tapped is the cable of a host, in the hands of an attacker: it has all that
// comes, before anything is opened, and lets through what it likes.
type tapped struct {
	mu    sync.Mutex
	taken [][]byte                      // the latest packets that have come sealed
	count int                           // of all of them
	pass  func(n int, data []byte) bool // called with mu held; nil: all
}

// mostTaken is how many packets an attacker keeps.
const mostTaken = 1 << 14

// tap puts a link into the hands of an attacker, if connections are secured.
func (l *lab) tap(link transport.Link) transport.Link {
	if !l.secured {
		return link
	}
	if l.tapped == nil {
		l.tapped = map[netip.Addr]*tapped{}
	}
	addr := link.Addr().Unmap()
	if l.tapped[addr] == nil {
		l.tapped[addr] = &tapped{}
	}
	return &tapLink{transport.Wrapper{Link: link}, l.tapped[addr]}
}

// tapLink is a link of a host, which may have several.
type tapLink struct {
	transport.Wrapper
	tapped *tapped
}

// Recv takes down what comes sealed, and drops what is not to pass.
func (l *tapLink) Recv(b *transport.RxBatch) (int, error) {
	n, err := l.Link.Recv(b)
	if err != nil || b.Len() == 0 {
		return n, err
	}
	t := l.tapped
	t.mu.Lock()
	defer t.mu.Unlock()
	b.Filter(func(p *transport.RxPacket) bool {
		if !transport.IsSealed(p.Data) {
			return true
		}
		t.count++
		if t.pass != nil && !t.pass(t.count, p.Data) {
			return false
		}
		if len(t.taken) < mostTaken {
			t.taken = append(t.taken, bytes.Clone(p.Data))
		}
		return true
	})
	return b.Len(), nil
}

// take returns what has come sealed to a host since the last call.
func (l *lab) take(h *host) [][]byte {
	t := l.tapped[h.addr]
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.taken
	t.taken = nil
	return all
}

// passes sets what may pass to a host: packet n of all that are sealed, from 1.
// nil lets all pass.
func (l *lab) passes(h *host, pass func(n int, data []byte) bool) {
	t := l.tapped[h.addr]
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass, t.count = pass, 0
}

// Secured returns the attacks on secured connections: those of attackers that
// forge, who know more here, and those of one that has the cable. What it
// cannot prevent is named: packets that it drops and delays.
func Secured() []Attack {
	var list []Attack
	for _, a := range offPath {
		if a.Name == "cnp-own-kind" { // of the peer itself
			continue
		}
		run := a.run
		list = append(list, Attack{
			Name: "secured-" + a.Name, What: a.What + ", to a secured connection",
			Must: "no answer, no effect on the connection", Goodput: a.Goodput, secured: true,
			run: func(t *Trial) {
				run(t)
				t.must(t.result.Answers == 0, "packets in clear to a secured connection were answered with %d", t.result.Answers)
			},
		})
	}
	return slices.Concat(list, cableAttacks)
}
