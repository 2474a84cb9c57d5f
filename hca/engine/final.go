package engine

import "github.com/gosoftroce/rocev2/transport"

// The rule for acknowledgements: what a queue pair has executed, of which its
// program may have been told, is acknowledged whatever the program does with
// the queue pair next. Otherwise the peer would retry, and fail, what was done
// (IBTA 9.7.6.1.3). So the packets that say it are made when the queue pair
// goes, do not depend on it any more, and come first in the next batch.

// finalPacket is the last packet of a queue pair, or the one before: an
// acknowledgement or a NAK. Or it is a congestion notification that goes in a
// class of its own.
type finalPacket struct {
	data  [32]byte
	n     int
	path  *transport.Path
	local bool
	class uint8

	receipt *receipt // that it repeats, see receipts.go; nil: none
}

// takeFinal makes the final packets of q. All else that it has to send is
// dropped.
func (e *Engine) takeFinal(q *QP) {
	if q.path == nil {
		return
	}
	p := finalPacket{path: q.path, local: q.local, class: q.class}
	e.receipts.keep(q)
	for p.n = q.core.PollFinal(p.data[:]); p.n > 0; p.n = q.core.PollFinal(p.data[:]) {
		e.finals = append(e.finals, p)
	}
}

// FinalPackets returns how many packets of queue pairs that have gone wait for
// the next batch.
func (e *Engine) FinalPackets() int { return len(e.finals) }

// putFinal puts the final packets of some classes into the batch, as many as
// fit.
func (e *Engine) putFinal(out *transport.TxBatch, classes Classes) {
	if len(e.finals) == 0 {
		return
	}
	e.loop.q = nil
	left := e.finals[:0]
	for i := range e.finals {
		p := e.finals[i]
		if !classes.Has(p.class) || !putOne(e, out, &p) {
			left = append(left, p)
		} else if p.receipt != nil {
			p.receipt.queued = false
		}
	}
	clear(e.finals[len(left):])
	e.finals = left
}

// putOne puts a final packet into the batch. It reports false if that is full.
func putOne(e *Engine, out *transport.TxBatch, p *finalPacket) bool {
	if p.local {
		room := e.loop.Room()
		if room == nil {
			return false
		}
		e.loop.Commit(copy(room, p.data[:p.n]), nil)
		return true
	}
	room := out.Room()
	if room == nil {
		return false
	}
	out.Commit(copy(room, p.data[:p.n]), p.path)
	return true
}
