package attack

import (
	"crypto/rand"
	"crypto/tls"
	"errors"

	"github.com/gosoftroce/rocev2/rdma/secure"
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

var errNoTCP = errors.New("the hosts of secured devices agree on keys by TCP, which a simulated network does not have: run the attack on sockets")

// guard has the devices of the lab secured, by a secret that nothing else has.
func (l *lab) guard() {
	if l.net.virtual {
		check(errNoTCP)
	}
	l.guarded = keyConfig()
}

// keyConfig returns a configuration for hosts that agree on keys.
func keyConfig() *tls.Config {
	secret := make([]byte, 32)
	rand.Read(secret)
	c, err := secure.PSK(secret)
	check(err)
	return c
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

// refusedClear is how many packets a host has refused for they were in clear.
func (l *lab) refusedClear(h *host) uint64 {
	if c, guarded := h.dev.GuardCounters(); guarded {
		return c.Clear
	}
	return h.dev.Stats().Drops["wrong_security"]
}

// refused is how many sealed packets a host has refused.
func (l *lab) refused(h *host) uint64 {
	if c, guarded := h.dev.GuardCounters(); guarded {
		return c.Unknown + c.Peer + c.Astray + c.Format + c.Replays + c.Stale + c.Forged
	}
	c := h.dev.SealCounters()
	return c.Unknown + c.Peer + c.Format + c.Replays + c.Stale + c.Forged + c.Ended
}

// refusedAtAll is how many packets a secured device has refused, those among
// them that seem to be sealed by queue pairs.
func (l *lab) refusedAtAll(h *host) uint64 {
	return l.refused(h) + l.refusedClear(h) + h.dev.Stats().Drops["wrong_security"]
}

// wrongPeer is how many sealed packets came from another address than the
// peer's.
func (l *lab) wrongPeer(h *host) uint64 {
	if c, guarded := h.dev.GuardCounters(); guarded {
		return c.Peer
	}
	return h.dev.SealCounters().Peer
}

// Secured returns the attacks on secured connections: those of attackers that
// forge, who know more here, and those of one that has the cable. What it
// cannot prevent is named: packets that it drops and delays.
func Secured() []Attack {
	return sealed("a secured connection", func(a *Attack) { a.Name, a.secured = "secured-"+a.Name, true })
}

// Guarded returns the same attacks on secured devices, and those on how hosts
// agree on keys. They need sockets, so goodput is not judged.
func Guarded() []Attack {
	on := func(a *Attack) { a.Name, a.guarded, a.Goodput = "guarded-"+a.Name, true, 0 }
	list := sealed("a secured device", on)
	for _, a := range keyAttacks {
		on(&a)
		list = append(list, a)
	}
	return list
}

// sealed returns the attacks on what is sealed.
func sealed(what string, mark func(*Attack)) (list []Attack) {
	for _, a := range offPath {
		if a.Name == "cnp-own-kind" { // of the peer itself
			continue
		}
		run := a.run
		a.What += ", to " + what
		a.Must = "no answer, no effect on the connection"
		a.run = func(t *Trial) {
			run(t)
			t.must(t.result.Answers == 0, "packets in clear to %s were answered with %d", what, t.result.Answers)
			if t.lab.guarded != nil {
				t.refusedClear(t.result.Sent/4 + 1) // the link drops those that are too short for any packet
			}
		}
		mark(&a)
		list = append(list, a)
	}
	for _, a := range cableAttacks {
		mark(&a)
		list = append(list, a)
	}
	return list
}
