package responder

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Responder is the receiving half: its parts, and the order in which a request
// passes them. See the package's documentation.
type Responder struct {
	exec    executor
	answers answers
	out     transmitter
	gap     gap
	dropped addresses // of FLUSHes and ATOMIC WRITEs
}

// Init makes a responder of c, which is in RESET.
func (r *Responder) Init(c *conn.Conn, config Config) {
	*r = Responder{answers: answers{c: c}, gap: gap{c: c}, out: transmitter{answers: &r.answers, exec: &r.exec}}
	r.exec.init(c, &config)
}

// Resize takes another max_dest_rd_atomic. No answer may wait.
func (r *Responder) Resize(depth int) { r.answers.resize(depth) }

// ReadyToReceive expects PSN first, on the way to RTR.
func (r *Responder) ReadyToReceive(first rocev2.PSN) { r.answers.begin(first) }

// ExpectedPSN returns the PSN that is expected next.
func (r *Responder) ExpectedPSN() rocev2.PSN { return r.answers.epsn }

// Post queues a receive, see conn.Receives.
func (r *Responder) Post(wr *ib.RecvWR) error { return r.exec.receives.Post(wr) }

// Drain flushes some of what a source of its own has in ERR, see conn.Receives.
func (r *Responder) Drain() (more bool) { return r.exec.receives.Drain() }

// Held returns the number of requests that are kept after a gap.
func (r *Responder) Held() int { return r.gap.reorder.Len() }

// DiscardHeld discards the requests that are kept after a gap.
func (r *Responder) DiscardHeld() { r.gap.discard() }

// Owes returns what waits to be sent.
func (r *Responder) Owes() conn.Owed {
	q := &r.answers.queue
	switch n := q.tail - q.head; {
	case r.gap.tell:
		return conn.OwesAnswers
	case n == 0:
		return conn.OwesNothing
	case n > 1 || q.at(q.head).kind != responseAck:
		return conn.OwesAnswers
	case r.exec.starves(r.answers.msn):
		return conn.OwesAckNow
	}
	return conn.OwesAck
}

// Waiting reports whether an answer waits that is not a selective
// acknowledgement.
func (r *Responder) Waiting() bool { return !r.answers.queue.empty() }

// Yields reports whether the answers to READs wait for requests to have their
// turn at the rate of both. Resume ends that.
func (r *Responder) Yields() bool { return r.out.yields }

// Resume has the answers to READs go on.
func (r *Responder) Resume() { r.out.resume() }

// Poll writes answers until out takes no more or none waits, and returns what
// is left. With delay a lone acknowledgement that may wait does. A selective
// acknowledgement comes before the sequence NAK for the same gap, and after all
// other answers: they are older, and so are their MSNs.
func (r *Responder) Poll(now clock.Time, delay bool, out *conn.Output) (left conn.Owed) {
	for {
		if r.gap.tell && r.answers.onlyAsks() {
			told, ok := r.gap.poll(out, r.answers.epsn, r.answers.msn)
			if !ok {
				return conn.OwesAnswers
			}
			if told {
				r.out.acknowledged()
			}
		}
		left = r.Owes()
		if left == conn.OwesNothing || left == conn.OwesAck && delay {
			return left
		}
		buf := out.Room()
		if buf == nil {
			return left
		}
		wrote, f := r.out.next(now, buf, out)
		if f != ib.FaultNone {
			r.refuse(r.out.first(), refuseFault(f))
		} else if !wrote {
			return r.Owes()
		}
	}
}

// Fetch returns the next memory that must be fetched, each once.
func (r *Responder) Fetch() (conn.Fetch, bool) {
	if f, ok := r.exec.fetch.Poll(conn.NeedMessage); ok {
		return f, true
	}
	f, ok := r.out.fetch.Poll(conn.NeedMessage)
	f.Ticket = r.out.ticket
	return f, ok
}

// Fetched has what waited for a fetch go on. It may come late.
func (r *Responder) Fetched(need conn.Need) {
	switch {
	case need == conn.NeedAnswer:
		r.out.fetched()
	case r.exec.fetched(r.answers.epsn) && r.gap.nak.sent:
		r.gap.repeats(r.answers.epsn)
		r.answers.nak(rocev2.NAKSequence, false)
	}
}

// Persisted takes the end of the FLUSH that Fetch has returned. It may come
// late.
func (r *Responder) Persisted(f *conn.Fetch) { r.out.persisted(f) }

// HandleTimeout does what is due at now.
func (r *Responder) HandleTimeout(now clock.Time) {
	r.gap.expire(now)
	r.out.handleTimeout(now)
}

// Deadline returns when HandleTimeout wants to be called, and whether at all.
func (r *Responder) Deadline() (clock.Time, bool) {
	var at clock.Time
	armed := r.gap.holds()
	if armed {
		at = r.gap.deadline()
	}
	if r.out.paced { // until the rate lets answers to READs go on
		if next := r.exec.c.Resumes(); !armed || next < at {
			return next, true
		}
	}
	return at, armed
}

// Reset drops everything but the memory of the ring.
func (r *Responder) Reset() {
	r.exec.reset()
	r.answers = answers{c: r.answers.c}
	r.out.stop()
	r.gap.discard()
	r.gap = gap{c: r.gap.c}
	r.dropped.forget()
}

// Flush ends all work, on the way to ERR: every receive completes with
// WR_FLUSH_ERR, in order (IBTA 10.3.1). Of the answers that wait only the
// acknowledgement of what was executed is left, unless the peer must be told
// why the connection ends.
func (r *Responder) Flush(why conn.End) {
	r.gap.discard()
	r.out.stop()
	switch why {
	case conn.EndOverflow:
		r.answers.end(r.answers.epsn, rocev2.NAKRemoteOperational, false)
	case conn.EndLocal:
		r.answers.finish()
	}
	r.exec.flush()
}

// PollFinal writes what the peer must be told before the queue pair is taken
// away: the acknowledgement of what was executed, whether it was asked for or
// not, and the NAK that ended the connection. It returns the length of the next
// such packet, 0 if there is none, and drops all other answers.
func (r *Responder) PollFinal(buf []byte) int {
	return r.out.final(buf)
}

// Receipt writes the acknowledgement of all that was executed, for a peer that
// asks again when the queue pair has gone, and returns its length. It may
// answer the SENDs and WRITEs from first on. It is 0 where the last that was
// executed was none, or where the answer to a READ or an atomic before it was
// not sent.
func (r *Responder) Receipt(buf []byte) (n int, first rocev2.PSN) {
	return r.out.receipt(buf)
}
