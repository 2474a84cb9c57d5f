package attack

import (
	"errors"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/verbs"
)

// xrcQueue makes a shared receive queue of an XRC domain, with receives.
func (t *Trial) xrcQueue(x *verbs.XRCD, cq *verbs.CQ, mr *verbs.MR) *verbs.SRQ {
	s, err := t.lab.victim.pd.CreateSRQ(verbs.SRQConfig{XRCD: x, CQ: cq, MaxWR: 4, MaxSGE: 1})
	check(err)
	for i := range 4 {
		check(s.PostRecv(verbs.RecvWR{ID: uint64(s.Number())<<8 | uint64(i), SGList: []verbs.SGE{mr.Slice(0, slotSize)}}))
	}
	return s
}

// A peer that names a shared receive queue of another XRC domain, or of none,
// reached it. Here its request is refused, and only queues of the domain are
// reached, those that are closed excepted.
func TestXRCReachesItsDomainOnly(t *testing.T) {
	bugClass(t, func(t *Trial) {
		dev, pd := t.lab.victim.dev, t.lab.victim.pd
		h := t.lab.hostile(false)
		own, err := dev.OpenXRCD()
		check(err)
		other, err := dev.OpenXRCD()
		check(err)
		cq, err := dev.CreateCQ(64)
		check(err)
		mr, err := pd.AllocMemory(4096, verbs.LocalWrite)
		check(err)
		mine, foreign, closed := t.xrcQueue(own, cq, mr), t.xrcQueue(other, cq, mr), t.xrcQueue(own, cq, mr)
		gone := closed.Number()
		check(closed.Close())
		plain, err := pd.CreateSRQ(verbs.SRQConfig{})
		check(err)
		for _, c := range []struct {
			what   string
			number uint32
			good   bool
		}{
			{"its own", mine.Number(), true}, {"of another domain", foreign.Number(), false}, {"closed", gone, false},
			{"0", 0, false}, {"of no domain", plain.Number(), mine.Number() == plain.Number()}, {"guessed", mine.Number() ^ 1, false},
		} {
			q, err := pd.CreateQP(verbs.QPConfig{Type: verbs.XRCTarget, XRCD: own})
			check(err)
			check(q.Connect(t.lab.ctx, verbs.Endpoint{Addr: h.link.Addr(), QPN: 0x77, PSN: 7}, verbs.WithMTU(verbs.MTU1024)))
			check(h.send(encode(rocev2.XRCSendOnly, q.QPN(), q.Query().RQPSN, func(p *rocev2.Packet) {
				p.XRCETH.SRQN, p.Payload = c.number, forged
			})))
			t.lab.fence()
			var wc [4]verbs.WC
			n := cq.Poll(wc[:])
			t.must((n == 1) == c.good && (q.State() == verbs.StateRTS) == c.good, "a queue that is %s: %d messages, state %v", c.what, n, q.State())
			t.must(!c.good || wc[0].ID>>8 == uint64(c.number), "a queue that is %s: %+v", c.what, wc[0])
			t.must(errors.Is(own.Close(), verbs.ErrInUse), "a domain with queues was closed")
			check(q.Close())
		}
		t.must(foreign.Query().Posted == 4, "%d receives of 4 are left in another domain", foreign.Query().Posted)
		check(mine.Close())
		check(own.Close())
	})
}
