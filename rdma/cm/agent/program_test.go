package agent

import (
	"bytes"
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// later has the program do something with an ID after a while, if it is still
// known and in the same phase.
func (h *host) later(id ID, k *known, d time.Duration, f func()) {
	life, phase := h.life, k.phase
	if h.w.hurry && d < time.Second {
		d = 0
	}
	h.w.at(d, func() {
		if h.agent != nil && h.life == life && h.known[id] == k && k.phase == phase {
			f()
		}
	})
}

func (h *host) release(id ID) {
	h.w.log("%v releases %s", h.addr, h.known[id].data)
	h.forget(id)
	h.agent.Release(h.w.now, id)
}

// forget ends what the program knows of an ID.
func (h *host) forget(id ID) {
	k := h.known[id]
	if k.active {
		k.attempt.answered = true
	} else {
		k.attempt.given = true
	}
	delete(h.known, id)
}

func (h *host) must(err error) {
	if err != nil {
		h.w.fail("%v: %v", h.addr, err)
	}
}

// expect checks that private data is what the message of the attempt had.
func (h *host) expect(k *known, message string, private []byte) {
	want := make([]byte, len(private))
	copy(want, message+" "+k.data)
	if !bytes.Equal(private, want) || len(private) == 0 {
		h.w.fail("%v: the private data of %s in %s is %q", h.addr, message, k.data, bytes.TrimRight(private, "\x00"))
	}
}

// event has the program act on what its agent says.
func (h *host) event(e *Event) {
	w := h.w
	k := h.known[e.ID]
	if k == nil {
		if k = h.asked(e); k == nil {
			w.fail("%v: %v for an ID that the program does not know", h.addr, e.Kind)
			return
		}
	}
	w.log("%v: %v %s %v", h.addr, e.Kind, k.data, e.Reason)
	if k.active && (k.phase == StateREQSent || k.phase == StateSIDRSent) {
		if took := w.now.Sub(k.attempt.started); took > longest {
			w.fail("%s took %v", k.data, took)
		}
		k.attempt.answered = true
	}
	switch e.Kind {
	case EventRequest:
		h.expect(k, "REQ", e.Request.Private)
		h.later(e.ID, k, w.upTo(2*time.Second), func() { h.decide(e.ID, k) })
	case EventReply:
		h.expect(k, "REP", e.Reply.Private)
		k.phase = StateREPReceived
		h.later(e.ID, k, w.upTo(500*time.Millisecond), func() { h.ready(e.ID, k) })
	case EventEstablished:
		h.expect(k, "RTU", e.Private)
		if !k.attempt.ready {
			w.fail("%s is established before its active side was ready", k.data)
		}
		k.attempt.met = true
		k.phase = StateEstablished
		w.tally.Established++
		h.end(e.ID, k)
	case EventDisconnectRequested:
		k.phase = StateDREQReceived
		h.later(e.ID, k, w.upTo(2*time.Second), func() { h.agree(e.ID, k) })
	case EventDisconnected:
		h.disconnected(e, k)
	case EventSIDRRequest:
		h.expect(k, "REQ", e.SIDRRequest.Private)
		h.later(e.ID, k, w.upTo(2*time.Second), func() { h.answer(e.ID, k) })
	default:
		h.final(e, k)
	}
}

// asked makes known what a peer asks for.
func (h *host) asked(e *Event) *known {
	var private []byte
	phase := StateREQReceived
	switch e.Kind {
	case EventRequest:
		private = e.Request.Private
	case EventSIDRRequest:
		private = e.SIDRRequest.Private
		phase = StateSIDRReceived
	default:
		return nil
	}
	var n int
	if _, err := fmt.Sscanf(string(private), "REQ call %d", &n); err != nil || n >= len(h.w.attempts) {
		return nil
	}
	k := &known{attempt: h.w.attempts[n], data: fmt.Sprintf("call %d", n), phase: phase}
	h.known[e.ID] = k
	if h.w.rng.IntN(2) == 0 {
		h.agent.Take(e.ID)
	}
	return k
}

func (h *host) decide(id ID, k *known) {
	w := h.w
	switch n := w.rng.IntN(20); {
	case n == 0:
		h.must(h.agent.Reject(w.now, id, mad.ReasonConsumer, nil, []byte("REJ "+k.data)))
		h.forget(id)
	case n == 1:
		h.release(id)
	case n == 2: // the program forgets to answer
		k.attempt.given = true
	default:
		h.must(h.agent.Accept(w.now, id, &mad.REP{LocalQPN: h.qpn(), Private: []byte("REP " + k.data)}))
		k.phase = StateREPSent
	}
}

func (h *host) ready(id ID, k *known) {
	w := h.w
	switch n := w.rng.IntN(20); {
	case n == 0:
		h.must(h.agent.Reject(w.now, id, mad.ReasonConsumer, nil, []byte("REJ "+k.data)))
		h.forget(id)
	case n == 1:
		h.release(id)
	default:
		k.attempt.ready = true
		h.must(h.agent.Ready(w.now, id, []byte("RTU "+k.data)))
		k.phase = StateEstablished
		h.end(id, k)
	}
}

// end has a program disconnect some time after the connection was made.
func (h *host) end(id ID, k *known) {
	w := h.w
	h.later(id, k, time.Second+w.upTo(20*time.Second), func() {
		if w.rng.IntN(4) == 0 {
			h.release(id)
			return
		}
		h.must(h.agent.Disconnect(w.now, id, []byte("DREQ "+k.data)))
		k.phase = StateDREQSent
		if w.rng.IntN(4) == 0 {
			h.later(id, k, w.upTo(time.Second), func() { h.release(id) })
		}
	})
}

func (h *host) agree(id ID, k *known) {
	w := h.w
	switch w.rng.IntN(4) {
	case 0:
		h.release(id)
	case 1:
		h.must(h.agent.Disconnect(w.now, id, []byte("DREP "+k.data)))
	default:
		h.must(h.agent.Confirm(w.now, id, []byte("DREP "+k.data)))
	}
}

func (h *host) disconnected(e *Event, k *known) {
	w := h.w
	w.tally.Disconnected++
	if e.TimedOut {
		w.tally.Timeouts++
	}
	k.phase = StateTimewait
	if len(bytes.TrimRight(e.Private, "\x00")) == 0 {
		return // a REJ, or a DREP of one that had nothing to say or has forgotten
	}
	name, _, _ := bytes.Cut(e.Private, []byte(" "))
	h.expect(k, string(name), e.Private)
}

func (h *host) answer(id ID, k *known) {
	w := h.w
	if w.rng.IntN(10) == 0 {
		h.release(id)
		return
	}
	h.must(h.agent.Answer(w.now, id, &mad.SIDRREP{QPN: 7, Private: []byte("REP " + k.data)}))
	h.forget(id)
}

func (h *host) final(e *Event, k *known) {
	w := h.w
	switch e.Kind {
	case EventRejected:
		w.tally.Rejected++
		if e.Reason == mad.ReasonStale {
			w.tally.Stale++
		}
		if e.Reason == mad.ReasonConsumer && len(bytes.TrimRight(e.Private, "\x00")) > 0 {
			h.expect(k, "REJ", e.Private)
		}
	case EventUnreachable:
		w.tally.Unreachable++
	case EventSIDRReply:
		w.tally.Resolved++
		if e.SIDRReply.Status == mad.SIDRSuccess {
			h.expect(k, "REP", e.SIDRReply.Private)
		}
	}
	if !e.Kind.Final() {
		w.fail("%v: %v is not final", h.addr, e.Kind)
	}
	h.forget(e.ID)
}
