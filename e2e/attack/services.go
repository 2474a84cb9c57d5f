package attack

import (
	"bytes"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/verbs"
)

const (
	labQKey  = 0x1badcafe
	madLen   = 256
	madSlot  = verbs.GRHLen + madLen
	slotFill = 0x5a

	serviceReceives = 8
)

// service makes a queue pair of a service at the victim, whose peer is the
// hostile host if it has one. It has serviceReceives
// receives of size bytes.
func (l *lab) service(h *hostile, typ verbs.QPType, size int) *end {
	e := l.end(l.victim, endConfig{})
	check(e.qp.Close())
	var err error
	e.qp, err = l.victim.pd.CreateQP(verbs.QPConfig{Type: typ, SendCQ: e.scq, RecvCQ: e.rcq})
	check(err)
	check(e.qp.Init())
	for i := range e.mr.Bytes() {
		e.mr.Bytes()[i] = slotFill
	}
	const room = 2 // times the receive: what is written past its end is seen
	for i := range serviceReceives {
		check(e.qp.PostRecv(verbs.RecvWR{ID: uint64(i), SGList: []verbs.SGE{e.mr.Slice(i*room*size, size)}}))
	}
	switch typ {
	case verbs.UD, verbs.GSI:
		check(e.qp.Activate(labQKey))
	default:
		check(e.qp.Connect(l.ctx, verbs.Endpoint{Addr: h.link.Addr(), QPN: 0x77, PSN: 7}, verbs.WithMTU(verbs.MTU1024)))
	}
	return e
}

// targets are queue pairs of the services that there are.
func (l *lab) targets(h *hostile) (list []*end) {
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD, verbs.GSI} {
		list = append(list, l.service(h, typ, madSlot))
	}
	return list
}

// services are attacks on queue pairs that do not acknowledge.
var services = []Attack{
	{
		Name: "ud-wrong-qkey",
		What: "anybody sends datagrams to a UD queue pair with random Q_Keys",
		Must: "no answer, no effect: not one receive is used",
		run: func(t *Trial) {
			t.shootAt(t.lab.service(nil, verbs.UD, madSlot), 0, func(e *end) []byte { return datagramTo(e, 64, labQKey^(1+t.random.Uint32N(1<<31))) })
		},
	}, {
		Name: "ud-flood",
		What: "anybody who knows the Q_Key sends more datagrams to a UD queue pair than it has receives",
		Must: "no answer, the queue pair goes on, others too",
		run: func(t *Trial) {
			t.shootAt(t.lab.service(nil, verbs.UD, madSlot), serviceReceives, func(e *end) []byte { return datagramTo(e, 64, labQKey) })
		},
	}, {
		Name: "gsi-flood",
		What: "anybody sends management datagrams, most of them too long, to queue pair 1",
		Must: "no answer, the queue pair goes on, others too",
		run: func(t *Trial) {
			t.shootAt(t.lab.service(nil, verbs.GSI, madSlot), serviceReceives, func(e *end) []byte {
				return datagramTo(e, []int{madLen, madLen + 4, 1024, 4096}[t.result.Sent%4], gsiKey)
			})
		},
	}, {
		Name: "uc-forged",
		What: "forged as the peer's: parts of messages over UC with random PSNs, and WRITEs with random keys",
		Must: "no answer, no memory changes, the queue pair goes on",
		run: func(t *Trial) {
			t.shootAt(t.lab.service(t.lab.hostile(true), verbs.UC, madSlot), 0, t.random.ucForged)
		},
	},
}

// shootAt is shoot at a queue pair of the victim that never answers. As many
// receives are used as are said.
func (t *Trial) shootAt(e *end, receives uint64, packet func(*end) []byte) {
	src := t.lab.ghost
	if to := e.qp.Query().AV.DGID; to.IsValid() {
		src = to
	}
	before := bytes.Clone(e.mr.Bytes())
	t.shoot(silent, func(t *Trial, _ *conn, _ int) { t.lab.forge(src, rocev2.UDPPort, packet(e)) })
	s := e.qp.Stats()
	t.must(s.RxPackets > 0, "nothing has arrived")
	t.must(e.qp.State() == verbs.StateRTS, "the queue pair is in state %v", e.qp.State())
	t.must(s.RecvDone == receives, "%d receives are used, not %d", s.RecvDone, receives)
	t.must(receives > 0 || bytes.Equal(before, e.mr.Bytes()), "memory has changed")
}
