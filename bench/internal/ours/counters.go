package ours

import (
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/pair"
)

// begin starts the accounting of costs.
func (s *side) begin() {
	c := pair.CostsNow()
	s.before.Store(&c)
}

// beginAfterWarm does so when the peer begins to measure, about.
func (s *side) beginAfterWarm() {
	s.begin()
	time.AfterFunc(s.cfg.Warm, s.begin)
}

// costs adds what was spent since before: CPU time and heap objects.
func (s *side) costs(r *pair.Result) { s.before.Load().AddTo(r) }

// mishaps adds what went wrong on this side since the device was opened. With
// faults being injected, losses and what repairs them are no errors. Nor are
// the losses of an unreliable service, which the sample tells of, nor is a
// packet sent again for nothing, because the peer was not scheduled for a
// while.
func (s *side) mishaps(r *pair.Result) {
	fatal, maybe := r.Errors, r.Errors
	if s.cfg.Loss > 0 || s.cfg.Path || !s.cfg.reliable() {
		maybe = r.Counts
	}
	add := func(m map[string]uint64, name string, n uint64) {
		if n > 0 {
			m[name] += n
		}
	}
	for _, q := range s.qps {
		st := q.Stats()
		add(maybe, "retransmissions", st.Retransmits-st.SpuriousRetransmits)
		add(r.Counts, "spurious retransmissions", st.SpuriousRetransmits)
		add(maybe, "ack timeouts", st.Timeouts)
		add(r.Counts, "read replays", st.ReadReplays) // of what was sent again
		add(fatal, "completion overflows", st.CQOverflows)
		add(r.Counts, "probes", st.Probes)
		add(r.Counts, "restarts", st.Restarts)
		add(r.Counts, "RNR waits", st.RNRWaits)
		add(r.Counts, "window cuts", st.WindowCuts)
		add(r.Counts, "congestion notifications", st.CNPsReceived)
		add(r.Counts, "credit stalls", st.CreditStalls)
	}
	st := s.dev.Stats()
	for reason, n := range st.Drops {
		if reason == "duplicate" || reason == "stale" { // an error where it was sent again, if it was needed
			add(r.Counts, "dropped: "+reason, n)
			continue
		}
		add(maybe, "dropped: "+reason, n)
	}
	add(fatal, "bad ICRC", st.Link.RxBadICRC)
	add(fatal, "malformed", st.Link.RxMalformed)
	add(fatal, "send errors", st.Link.TxErrors)
	add(fatal, "asynchronous events dropped", st.EventsDropped)
	add(maybe, "receive buffer overflows", st.Link.RxOverflow)
	if s.cfg.Seal != Clear {
		s.sealMishaps(r)
	}
	if s.link != nil {
		tx, _ := s.link.Counts()
		add(r.Counts, "packets", tx.Packets)
		add(r.Counts, "packets lost on purpose", tx.Dropped)
	}
}

// newResult returns an empty result.
func newResult() pair.Result {
	return pair.Result{Values: map[string]float64{}, Counts: map[string]uint64{}, Errors: map[string]uint64{}}
}
