package qptest

import (
	"bytes"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
)

// touched follows every input to the QP of this side.
func (s *side) touched() {
	if s.ep.closed {
		return
	}
	s.noticeErr()
	s.collect()
	s.pollEvents()
}

// drained follows every Poll that had nothing to send. Then work that is
// not done must have a timer, or it would wait for ever; and a timer without
// work would wake an idle machine.
func (s *side) drained() {
	s.touched()
	t, armed := s.ep.Deadline()
	if armed && t <= s.w.now && !s.w.hasArrivals() {
		return // due: the event is on its way
	}
	waiting := false
	for _, o := range s.ops[s.next:] {
		waiting = waiting || o.signaled
	}
	switch {
	case s.ep.State() == ib.StateRTS && waiting && !armed:
		s.w.fail("%s: request %d of %d is not done, nothing is to send and no timer runs", s.name, s.next, len(s.ops))
	case s.ep.State() == ib.StateErr && armed:
		s.w.fail("%s: a timer runs in ERR", s.name)
	case s.ep.State() == ib.StateErr && s.ep.Halves().Held() > 0:
		s.w.fail("%s: packets are held in ERR", s.name)
	case s.next == len(s.ops) && armed && s.ep.Halves().Held() == 0 && s.ep.Ready().Owes != qp.OwesAnswers:
		s.w.fail("%s: all %d requests are done and a timer runs", s.name, len(s.ops))
	}
}

func (w *world) hasArrivals() bool {
	at, ok := w.heap.Min()
	return ok && at <= w.now
}

// noticeErr checks that a QP that went to ERR had a reason to.
func (s *side) noticeErr() {
	if s.ep.State() != ib.StateErr || s.broken != "" {
		return
	}
	switch {
	case s.w.p.forge:
		s.broken = "forged packets"
	case s.peer.faulted && s.w.p.fault.breaksResponder():
		s.broken = "request of the peer: " + s.w.p.fault.String()
	case s.faulted && s.w.p.fault.breaksSelf():
		s.broken = "own fault: " + s.w.p.fault.String()
	default:
		return // a completion must say why: collect
	}
}

// collect looks at all new completions.
func (s *side) collect() {
	for _, wc := range s.ep.sendCQ.drain() {
		s.w.tracef("%s done %d %v %v", s.name, wc.ID, wc.Status, wc.Opcode)
		s.sendDone(&wc)
	}
	for _, wc := range s.ep.recvCQ.drain() {
		s.w.tracef("%s received %d %v %v n=%d", s.name, wc.ID, wc.Status, wc.Opcode, wc.ByteLen)
		s.recvDone(&wc)
	}
	if s.ep.State() == ib.StateErr && s.broken == "" {
		s.w.fail("%s is in ERR and nothing says why", s.name)
	}
}

func (s *side) sendDone(wc *ib.WC) {
	w := s.w
	id := int(wc.ID)
	if id < s.next || id >= len(s.ops) {
		w.fail("%s: completion of request %d; %d is next, %d are posted", s.name, id, s.next, len(s.ops))
	}
	if wc.QPN != s.ep.qpn {
		w.fail("%s: completion of request %d names QP %v", s.name, id, wc.QPN)
	}
	for s.next < id {
		if o := s.ops[s.next]; o.signaled || s.failed {
			w.fail("%s: request %d completes before %d", s.name, id, s.next)
		}
		s.succeed(s.next)
	}
	o := s.ops[id]
	if wc.Status == ib.StatusSuccess {
		switch {
		case s.failed:
			w.fail("%s: request %d succeeds after an error", s.name, id)
		case !o.signaled:
			w.fail("%s: request %d succeeds with a completion and was not signaled", s.name, id)
		case wc.Opcode != kindWCs[o.kind] || int(wc.ByteLen) != o.n:
			w.fail("%s: request %d completes as %v of %d bytes, not %v of %d", s.name, id, wc.Opcode, wc.ByteLen, kindWCs[o.kind], o.n)
		}
		s.succeed(id)
		return
	}
	s.checkStatus(id, wc.Status)
	s.finish(o)
	s.next++
}

// checkStatus judges an unsuccessful completion.
func (s *side) checkStatus(id int, st ib.Status) {
	w, o := s.w, s.ops[id]
	if s.ep.State() != ib.StateErr {
		w.fail("%s: request %d fails with %v in state %v", s.name, id, st, s.ep.State())
	}
	if s.failed || st == ib.StatusWRFlushErr {
		if st != ib.StatusWRFlushErr {
			w.fail("%s: request %d fails with %v after another error", s.name, id, st)
		}
		if s.broken == "" {
			w.fail("%s: request %d is flushed without a cause", s.name, id)
		}
		s.failed = true
		w.tally.flushed++
		return
	}
	s.failed = true
	w.tally.failed++
	if !s.mayFail(o, st) {
		w.fail("%s: request %d (%v, fault %v) fails with %v", s.name, id, kindOpcodes[o.kind], o.fault, st)
	}
	if s.broken == "" {
		s.broken = "completion with " + st.String()
	}
}

// mayFail reports whether a status is a right end of a request.
func (s *side) mayFail(o *op, st ib.Status) bool {
	w, p := s.w, s.peer
	switch {
	case w.p.forge:
		return true
	case o.fault != faultNone && st == o.fault.status():
		return true
	case st == ib.StatusRetryExcErr:
		return w.p.foul || s.ep.on.dead || p.ep.closed || p.broken != "" || p.ep.State() == ib.StateErr
	case st == ib.StatusRNRRetryExcErr:
		return w.p.rnrRetry < 7
	case st == ib.StatusRemInvReqErr && w.beyondDepth() && (o.kind.atomic() || o.kind == kindAtomicWrite):
		return true // the answer was lost, and what is kept of it
	case st == ib.StatusRemInvReqErr:
		return w.p.fault == faultRecvTooSmall && p.faulted && o.kind.sends()
	case st == ib.StatusRemOpErr: // it waited for its answer when another request was refused
		refused := s.faulted && w.p.fault.breaksResponder() ||
			p.faulted && (w.p.fault == faultRecvTooSmall || w.p.fault == faultDeregister)
		return refused && o.kind.answered()
	case st == ib.StatusRemAccessErr:
		return w.p.fault == faultDeregister && p.faulted && !o.kind.sends() && (o.n > 0 || o.kind == kindFlush)
	}
	return false
}

// succeed checks what request id did and counts it as done.
func (s *side) succeed(id int) {
	w, o, p := s.w, s.ops[id], s.peer
	s.next++
	o.ok = true
	w.tally.completed++
	if w.p.forge {
		s.finish(o)
		return
	}
	if o.fault != faultNone {
		w.fail("%s: request %d succeeds in spite of %v", s.name, id, o.fault)
	}
	got := gather(s.backing, s.local, o.local)
	switch {
	case o.kind.receives():
		if !o.received {
			w.fail("%s: request %d is done before its receiver knows", s.name, id)
		}
	case o.remote < 0:
		s.sharedAdd(id, nativeLoad(got))
	case o.kind.atomic():
		if v := nativeLoad(got); v != o.want {
			w.fail("%s: atomic %d returns %#x, not %#x: executed twice or not in order", s.name, id, v, o.want)
		}
	case o.kind == kindFlush:
		s.checkFlushed(id)
	case o.kind == kindRead:
		for i, b := range got {
			if j := o.remote + i; p.writer[j] < int32(id) && b != p.model[j] {
				w.fail("%s: READ %d has byte %d of %d wrong", s.name, id, i, o.n)
			}
		}
	}
	if o.kind.writes() {
		s.checkWritten(id)
	}
	s.finish(o)
}

func (s *side) sharedAdd(id int, original uint64) {
	wd := &s.w.words[nodeIndex(s.w, s.peer.ep.on)]
	if wd.seen == nil {
		wd.seen = map[uint64]bool{}
	}
	if wd.seen[original] || original >= uint64(wd.posted) {
		s.w.fail("%s: FETCH_ADD %d returns %d, seen before or more than the %d posted", s.name, id, original, wd.posted)
	}
	wd.seen[original] = true
	wd.completed++
}

// checkWritten checks that the peer's memory has the data of WRITE id, except
// where a later request may have written over it.
func (s *side) checkWritten(id int) {
	o, p := s.ops[id], s.peer
	mem := p.at(p.target)
	for i, b := range o.data {
		if j := o.remote + i; p.writer[j] == int32(id) && mem[j] != b {
			s.w.fail("%s: WRITE %d has byte %d of %d wrong", s.name, id, i, o.n)
		}
	}
}

// finish takes over what a READ or atomic left in local memory and frees it.
func (s *side) finish(o *op) {
	if o.kind == kindRead || o.kind.atomic() || s.w.p.forge {
		spread(s.shadow, s.local, o.local, gather(s.backing, s.local, o.local))
	}
	for _, sl := range o.local {
		release(&s.localFree, sl)
	}
}

func (s *side) recvDone(wc *ib.WC) {
	w := s.w
	id := int(wc.ID)
	if next := s.nextRecv(id); id != next || id >= len(s.recvs) {
		w.fail("%s: completion of receive %d; %d is next, %d are posted", s.name, id, next, len(s.recvs))
	}
	r := s.recvs[id]
	s.recvPos++
	r.done = true
	got := gather(s.backing, s.recv, r.slots)
	had := gather(s.shadow, s.recv, r.slots)
	used := r.n
	switch {
	case w.p.forge:
	case wc.Status == ib.StatusSuccess:
		used = s.received(id, r, wc, got)
	case s.ep.State() != ib.StateErr:
		w.fail("%s: receive %d fails with %v in state %v", s.name, id, wc.Status, s.ep.State())
	case wc.Status == ib.StatusLocLenErr:
		if o, _ := s.nextMessage(); w.p.fault != faultRecvTooSmall || o == nil || o.n <= r.n {
			w.fail("%s: receive %d of %d bytes fails with %v", s.name, id, r.n, wc.Status)
		}
		s.broken = "message too long for a receive"
	case wc.Status != ib.StatusWRFlushErr:
		// The message that this receive was for broke a rule half way.
		if s.broken == "" {
			w.fail("%s: receive %d fails with %v", s.name, id, wc.Status)
		}
	case s.xrc != nil:
		s.flushedXRC(id)
	case id > 0 && s.recvs[id-1].n < 0:
		used = 0 // only the first one that is flushed may have been in use
	}
	if wc.Status != ib.StatusSuccess {
		r.n = -1
	}
	if !bytes.Equal(got[used:], had[used:]) {
		w.fail("%s: receive %d changed bytes after the %d it received", s.name, id, used)
	}
	spread(s.shadow, s.recv, r.slots, got)
	for _, sl := range r.slots {
		release(&s.recvFree, sl)
	}
}

// nextMessage is the peer's next request that completes a receive here.
func (s *side) nextMessage() (*op, int) {
	for k := s.sendPos; k < len(s.peer.ops); k++ {
		if o := s.peer.ops[k]; o.kind.receives() {
			return o, k
		}
	}
	return nil, 0
}

// received checks a message against what the peer sent; it returns how many
// bytes of the buffer it used.
func (s *side) received(id int, r *recvOp, wc *ib.WC, got []byte) int {
	w := s.w
	o, k := s.nextMessage()
	if o == nil || o.fault != faultNone {
		w.fail("%s: receive %d completes and nothing was sent for it", s.name, id)
	}
	s.sendPos = k + 1
	o.received = true
	opcode := ib.WCRecv
	if o.kind == kindWriteImm {
		opcode = ib.WCRecvWriteImm
	}
	if wc.Opcode != opcode || int(wc.ByteLen) != o.n || wc.QPN != s.ep.qpn || wc.SrcQPN != s.peer.ep.qpn {
		w.fail("%s: receive %d completes as %+v for request %d of %d bytes", s.name, id, *wc, k, o.n)
	}
	if wc.Solicited != o.solicited {
		w.fail("%s: receive %d has solicited=%v for request %d", s.name, id, wc.Solicited, k)
	}
	if imm := o.kind == kindSendImm || o.kind == kindWriteImm; wc.WithImm != imm || imm && wc.Imm != o.imm {
		w.fail("%s: receive %d has immediate %v %#x for request %d with %#x", s.name, id, wc.WithImm, wc.Imm, k, o.imm)
	}
	if inv := o.kind == kindSendInv; wc.WithInv != inv || inv && wc.InvalidatedKey != o.inv {
		w.fail("%s: receive %d has invalidated %v %#x for request %d with %#x", s.name, id, wc.WithInv, wc.InvalidatedKey, k, o.inv)
	}
	s.receivedXRC(id, r, o)
	if o.kind == kindSendInv {
		s.ended--
	}
	if s.ended != 0 {
		w.fail("%s: a key is invalidated twice or without its message", s.name)
	}
	// Writes before a message are visible when the message is.
	for j := k; j >= 0 && j > k-8; j-- {
		if s.peer.ops[j].kind.writes() && s.peer.ops[j].fault == faultNone {
			s.peer.checkWritten(j)
		}
	}
	if o.kind == kindWriteImm {
		return 0
	}
	if o.n > r.n || !bytes.Equal(got[:o.n], o.data) {
		w.fail("%s: receive %d does not have the %d bytes of request %d", s.name, id, o.n, k)
	}
	return o.n
}

// invalidate is what the QP asks for when a SEND with invalidate has arrived:
// once for each, in order.
func (s *side) invalidate(key ib.Key) ib.Fault {
	for _, wc := range s.ep.recvCQ.drain() { // messages before it, which one packet has completed
		s.recvDone(&wc)
	}
	o, k := s.nextMessage()
	if !s.w.p.forge && (o == nil || o.kind != kindSendInv || o.inv != key) {
		s.w.fail("%s: key %v is invalidated, and request %d of the peer does not ask for it", s.name, key, k)
	}
	s.ended++
	return ib.FaultNone
}

// checkGuards checks that bytes outside the regions are as they were.
func (w *world) checkGuards() {
	for _, pair := range w.pairs {
		for _, s := range pair {
			end := 0
			for _, sp := range []span{s.local, s.recv, s.target, s.readonly, s.shared, {len(s.backing), 0}} {
				if !bytes.Equal(s.backing[end:sp.off], s.shadow[end:sp.off]) {
					w.fail("%s: bytes outside of any region have changed", s.name)
				}
				end = sp.off + sp.n
			}
			if !bytes.Equal(s.at(s.readonly), s.shadow[s.readonly.off:][:s.readonly.n]) {
				w.fail("%s: a region that may not be written has changed", s.name)
			}
		}
	}
}

// checkEnd checks this side after the last event.
func (s *side) checkEnd() {
	w := s.w
	if s.ep.closed {
		return
	}
	s.touched()
	if s.next != len(s.ops) && (s.ep.State() == ib.StateErr || s.ops[len(s.ops)-1].signaled) {
		w.fail("%s: the world stands still in %v and requests %d to %d are not done", s.name, s.ep.State(), s.next, len(s.ops)-1)
	}
	if s.ep.State() == ib.StateErr && s.recvPos != len(s.recvs) && s.xrc == nil {
		w.fail("%s: receives %d to %d were not flushed", s.name, s.recvPos, len(s.recvs)-1)
	}
	if s.budget > 0 {
		w.fail("%s: the world ended with %d requests not posted", s.name, s.budget)
	}
	if w.p.forge {
		return
	}
	if i := s.inHand(); i < len(s.recvs) { // may hold the beginning of a message that never ended
		r := s.recvs[i]
		spread(s.shadow, s.recv, r.slots, gather(s.backing, s.recv, r.slots))
	}
	for _, sp := range []span{s.local, s.recv} {
		if !bytes.Equal(s.at(sp), s.shadow[sp.off:][:sp.n]) {
			w.fail("%s: local memory is not as the model has it", s.name)
		}
	}
	// What the peer's successful requests wrote stands, unless a failed one
	// may have written over it.
	for i, b := range s.at(s.target) {
		last := int(s.writer[i])
		if b != s.model[i] && (last < 0 || s.peer.ops[last].ok) {
			w.fail("%s: byte %d of the target is not as the model has it", s.name, i)
		}
	}
}

// checkWords checks the shared counters.
func (w *world) checkWords() {
	for i := range w.words {
		wd, s := &w.words[i], w.pairs[0][i]
		v := int(nativeLoad(s.at(s.shared)))
		if v < wd.completed || v > wd.posted || w.p.fault == faultNone && !w.p.foul && !w.beyondDepth() && v != wd.posted {
			w.fail("the counter of %c is %d after %d FETCH_ADDs, %d of them completed", 'a'+i, v, wd.posted, wd.completed)
		}
	}
}
