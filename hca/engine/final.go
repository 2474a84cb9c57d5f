package engine

import (
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/transport"
)

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

// finals are the packets that wait for the next batch without a queue pair, and
// the acknowledgements that are kept to be repeated.
type finals struct {
	*shared
	packets  []finalPacket
	receipts receipts
}

// take makes the final packets of q. All else that it has to send is
// dropped.
func (f *finals) take(q *QP) {
	if q.path == nil {
		return
	}
	p := finalPacket{path: q.path, local: q.local, class: q.class}
	f.receipts.keep(q)
	for p.n = q.core.Halves().PollFinal(p.data[:]); p.n > 0; p.n = q.core.Halves().PollFinal(p.data[:]) {
		f.packets = append(f.packets, p)
	}
}

// put puts the packets of some classes into the batch, as many as
// fit.
func (f *finals) put(out *transport.TxBatch, classes Classes) {
	f.loop.q = nil
	left := f.packets[:0]
	for i := range f.packets {
		p := f.packets[i]
		if !classes.Has(p.class) || !f.putOne(out, &p) {
			left = append(left, p)
		} else if p.receipt != nil {
			p.receipt.queued = false
		}
	}
	clear(f.packets[len(left):])
	f.packets = left
}

// putOne puts a final packet into the batch. It reports false if that is full.
func (f *finals) putOne(out *transport.TxBatch, p *finalPacket) bool {
	if p.local {
		room := f.loop.Room()
		if room == nil {
			return false
		}
		f.loop.spi = p.path.SPI
		f.loop.Commit(copy(room, p.data[:p.n]), nil, qp.OrdinaryPacket)
		return true
	}
	room := out.Room()
	if room == nil {
		return false
	}
	out.Commit(copy(room, p.data[:p.n]), p.path)
	return true
}
