//go:build linux

package uverbs

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// Doorbells says which doorbells a program may leave out. A program that posts
// its requests one by one rings for each of them, and each would leave in a
// datagram of its own, by a system call of its own. So while requests of a
// queue pair are in flight, small ones that follow wait in the ring, as with
// Nagle's algorithm (RFC 896): until there are many, until the program polls,
// waits or writes a command, or until what was in flight has completed. The
// last comes whatever the program does, if only by the end of the queue pair.
//
// Programs read and write it without a call: it is struct rocev2_doorbells of
// programs/preload/adapter.h.
type Doorbells struct {
	// A bit for each word: a doorbell of it was left out.
	rung atomic.Uint64

	// The number of a queue pair plus 1, in the upper half, and how many
	// doorbells of it may still be left out. The word of a queue pair is
	// that of its number modulo doorbellWords, while no other uses it.
	words [doorbellWords]atomic.Uint64
}

const doorbellWords = 64

// doorbellMemory has those of all clients. It stays where it is for as long as
// the process lives: a thread may ring while another closes the file.
var doorbellMemory struct {
	sync.Mutex
	all, free []*Doorbells
}

func newDoorbells() *Doorbells {
	m := &doorbellMemory
	m.Lock()
	defer m.Unlock()
	if n := len(m.free); n > 0 {
		d := m.free[n-1]
		m.free = m.free[:n-1]
		*d = Doorbells{} // a thread may have been late
		return d
	}
	d := new(Doorbells)
	m.all = append(m.all, d)
	return d
}

// release gives the memory back. All queue pairs are closed.
func (d *Doorbells) release() {
	doorbellMemory.Lock()
	defer doorbellMemory.Unlock()
	doorbellMemory.free = append(doorbellMemory.free, d)
}

// LeaveOut reports whether the doorbell of a queue pair, in whose ring there is
// a new request, is left out. It is what the program's side does.
func (d *Doorbells) LeaveOut(qp uint32) bool {
	i := qp % doorbellWords
	for {
		w := d.words[i].Load()
		if w>>32 != uint64(qp)+1 || uint32(w) == 0 {
			return false
		}
		if d.words[i].CompareAndSwap(w, w-1) {
			d.rung.Or(1 << i)
			return true
		}
	}
}

// take yields the numbers of queue pairs of which doorbells were left out, and
// maybe others.
func (d *Doorbells) take(yield func(qp uint32) bool) {
	if d.rung.Load() == 0 {
		return
	}
	for rung := d.rung.Swap(0); rung != 0; rung &= rung - 1 {
		of := d.words[bits.TrailingZeros64(rung)].Load() >> 32
		if of > 0 && !yield(uint32(of-1)) {
			return
		}
	}
}

const (
	// mostGathered is how many requests wait for each other, and
	// gatheredBytes how long they are together. It is about a third of what
	// programs have between two signaled requests (perftest: 100), so that
	// the peer takes some while the program posts the next.
	mostGathered  = 36
	gatheredBytes = 256 << 10

	// Requests wait while gatherAfter are in flight. After manyGathered of
	// them have waited for each other, or as many long ones as may, one in
	// flight is enough: the program posts much. Then fewer may come
	// gatherRetries times before one is no longer enough.
	gatherAfter   = 4
	manyGathered  = 8
	gatherRetries = 16
)

// doorbell is that of a send queue, which guards it. The zero value is never
// left out.
type doorbell struct {
	of      *Doorbells
	qp      uint32 // its number
	offered uint32 // how many may be left out since
	eager   int    // how many times few may come before one in flight is not enough
}

// least returns how many requests must be in flight.
func (d *doorbell) least() uint64 {
	if d.eager > 0 {
		return 1
	}
	return gatherAfter
}

// offer has the doorbell be left out the given number of times, until revoke,
// unless another queue pair has the word.
func (d *doorbell) offer(times uint32) {
	d.offered = times
	d.of.words[d.qp%doorbellWords].CompareAndSwap(0, (uint64(d.qp)+1)<<32|uint64(times))
}

// revoke ends what offer has begun. All requests whose doorbell was left out
// are in the ring.
func (d *doorbell) revoke() {
	if d.of == nil {
		return
	}
	word := &d.of.words[d.qp%doorbellWords]
	for w := word.Load(); w>>32 == uint64(d.qp)+1; w = word.Load() {
		if !word.CompareAndSwap(w, 0) {
			continue
		}
		if left := d.offered - uint32(w); left >= min(manyGathered, d.offered) {
			d.eager = gatherRetries
		} else if left > 0 && d.eager > 0 {
			d.eager--
		}
	}
}
