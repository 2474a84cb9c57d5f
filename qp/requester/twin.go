package requester

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// The peer answers in order. So the request for a long READ, when it is lost,
// holds up the answers to all behind it for a round trip, and then they come in
// one burst, for which no queue on the way has room. It is one small packet for
// many large ones. So while the path loses packets it goes twice. The second,
// the twin, does not ask for an acknowledgement: a native peer that has the
// first drops it (package responder, isTwin). On the wire it is a request that
// was sent again.

// twinPSNs is how many packets the answer has at the least for which the
// request goes twice.
const twinPSNs = 8

// twins are the requests that go twice.
type twins struct {
	psn   rocev2.PSN // of the one that is to be sent once more
	due   bool       // there is one
	off   bool       // the peer answers both
	anew  bool       // since the last twin an answer that has come began anew
	sent  uint8      // twins, of the last twinTrial
	twice uint8      // of these, behind how many that was so
}

// twinTrial is after how many twins it is seen whether the peer answers them,
// too, as a native peer of an older version does.
const twinTrial = 16

// note counts a twin that is sent.
func (t *twins) note() {
	t.due, t.anew = false, false
	if t.sent++; t.sent == twinTrial {
		t.off = t.off || t.twice >= twinTrial/2
		t.sent, t.twice = 0, 0
	}
}

// answered takes note that an answer which has come begins anew. It counts once
// for a twin: all that is in flight may be asked for again after a silence.
func (t *twins) answered() {
	if !t.anew {
		t.anew = true
		t.twice++
	}
}

// noteTwin has a request that was just sent for the first time sent once more,
// if that pays.
func (r *sender) noteTwin(rq *request) {
	if rq.psns >= twinPSNs && rq.w.Is(ib.OpReads) && r.rtt.noise > 0 && r.sel != nil && r.sel.wantsTwins() {
		r.sel.twins.psn, r.sel.twins.due = r.nxt, true
	}
}

// wantsTwins reports whether requests go twice where packets are lost. A twin
// that comes first would have the peer answer both.
func (s *selective) wantsTwins() bool { return !s.twins.off && !s.path.Seen() && !s.back.Seen() }

// pollTwin writes the twin; 0 if there is none.
func (r *sender) pollTwin(buf []byte) int {
	t := &r.sel.twins
	t.note()
	cur, ok := r.requestOf(t.psn)
	if !ok || r.nxt != r.max || t.psn.Before(r.una) {
		return 0
	}
	at, nxt := r.cur, r.nxt
	r.cur, r.nxt = cur, t.psn
	var rq request
	r.requestAt(&rq, r.queue.At(cur))
	r.askedAgain(&rq, t.psn)
	n, _ := r.buildRequest(&rq, buf) // it reads no memory
	r.cur, r.nxt = at, nxt
	const ackReq = 8 // the byte of the BTH with AckReq as its upper bit
	buf[ackReq] &^= 0x80
	r.c.Stats.Retransmits++
	return n
}
