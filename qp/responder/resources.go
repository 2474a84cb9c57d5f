package responder

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
)

type resourceKind uint8

const (
	resourceFree resourceKind = iota
	resourceRead
	resourceAtomic
	resourceAtomicWrite
	resourceFlush
)

// pending says whether a response of a resource waits to be sent.
type pending uint8

const (
	pendingNone   pending = iota
	pendingFirst          // the answer to the request itself
	pendingReplay         // the answer to a duplicate
)

// resource is what the responder keeps of a READ, an atomic, an ATOMIC WRITE or
// a FLUSH to answer it again (IBTA 9.7.5.1.6). A READ owns the PSNs of all its
// responses.
type resource struct {
	va      uint64
	value   uint64 // atomics: what the memory held before; FLUSH: its FETH, see flushValue
	first   rocev2.PSN
	psns    uint32
	rkey    uint32
	length  uint32
	srqn    uint32 // XRC: of the shared receive queue that the request named
	opcode  rocev2.Opcode
	kind    resourceKind
	pending pending
}

// resources is the ring of the last READs and atomics. Its size is
// max_dest_rd_atomic rounded up to a power of two, for a Linux requester rounds
// its own depth up. It takes memory with the first of them.
//
// Beside it is room for as many answers to duplicates which have no place in
// the ring any more. Responses name both by index, those beside the ring from
// besideRing on.
type resources struct {
	ring   []resource
	beside []resource
	depth  int32
	next   uint32
	pushed bool       // a READ or atomic lost its place in the ring
	behind rocev2.PSN // if pushed: what follows the last such PSN
}

const besideRing = ib.MaxRdAtomic

// PSNs come again after 2^24, so what is kept by PSN is forgotten before. That
// is seen to when the expected PSN passes a multiple of ageStep, so that a
// packet costs nothing.
const (
	ageStep = 1 << 20
	// ageLimit is the distance that something may keep to the expected PSN.
	// Together with ageStep it is less than 2^24.
	ageLimit = 1<<24 - 2*ageStep
	// maxUnanswered is how many PSNs may lie between the first one that was
	// not answered and the expected one: more may not be in flight (IBTA
	// 9.7.2).
	maxUnanswered = 1 << 23
)

// crossesAge reports whether age must be called before the expected PSN moves
// on by n.
func crossesAge(psn rocev2.PSN, n uint32) bool { return (psn^psn.Add(int(n)))/ageStep != 0 }

// resize sets the depth and keeps the latest entries. Entries that wait in the
// response queue are referred to by index, so the caller must not shrink the
// ring while there are any.
func (r *resources) resize(depth int) {
	r.depth = int32(queue.RingSize(depth))
	if len(r.ring) == 0 || int(r.depth) == len(r.ring) {
		return
	}
	old := *r
	r.ring, r.beside, r.next = make([]resource, r.depth), nil, 0
	keep := min(int(r.depth), len(old.ring))
	for i := len(old.ring); i > keep; i-- {
		r.push(old.slot(old.next - uint32(i)))
	}
	for i := keep; i > 0; i-- {
		*r.slot(r.next) = *old.slot(old.next - uint32(i))
		r.next++
	}
}

func (r *resources) slot(i uint32) *resource { return &r.ring[i&uint32(len(r.ring)-1)] }

// oldest is the slot that the next request will take.
func (r *resources) oldest() (*resource, uint8) {
	if len(r.ring) == 0 {
		r.ring = make([]resource, r.depth)
	}
	i := r.next & uint32(len(r.ring)-1)
	return &r.ring[i], uint8(i)
}

// at returns the resource of a response.
func (r *resources) at(i uint8) *resource {
	if i >= besideRing {
		return &r.beside[i-besideRing]
	}
	return &r.ring[i]
}

// push notes that a resource loses its place in the ring.
func (r *resources) push(e *resource) {
	if e.kind != resourceFree {
		r.pushed, r.behind = true, e.first.Add(int(e.psns))
	}
}

// wasPushed reports whether psn up to psn+n-1, which lie before the expected
// one, may belong to a READ or atomic that lost its place.
func (r *resources) wasPushed(psn rocev2.PSN, n uint32, expected rocev2.PSN) bool {
	return r.pushed && expected.Ahead(psn) >= expected.Ahead(r.behind)+n
}

// find returns the resource that owns a PSN, and its index.
func (r *resources) find(psn rocev2.PSN) (*resource, uint8) {
	for i := range r.ring {
		if e := &r.ring[i]; e.kind != resourceFree && psn.Ahead(e.first) < e.psns {
			return e, uint8(i)
		}
	}
	for i := range r.beside {
		if e := &r.beside[i]; e.pending != pendingNone && psn.Ahead(e.first) < e.psns {
			return e, uint8(besideRing + i)
		}
	}
	return nil, 0
}

// addBeside gives a resource a place beside the ring as long as its answer
// waits. False means that there is no room.
func (r *resources) addBeside(e resource) (uint8, bool) {
	if len(r.beside) == 0 {
		r.beside = make([]resource, r.depth)
	}
	for i := range r.beside {
		if r.beside[i].pending == pendingNone {
			e.pending = pendingReplay
			r.beside[i] = e
			return uint8(besideRing + i), true
		}
	}
	return 0, false
}

// ackLimit lowers an acknowledgement of the PSNs from..upTo to what comes
// before the first READ or atomic among them: an acknowledgement must not pass
// a response that the peer may have lost.
func (r *resources) ackLimit(from, upTo rocev2.PSN) rocev2.PSN {
	n := upTo.Ahead(from)
	for i := range r.ring {
		if e := &r.ring[i]; e.kind != resourceFree && e.first.Ahead(from)-1 < n {
			n = e.first.Ahead(from) - 1
		}
	}
	return from.Add(int(n))
}

// age forgets what is too old to be asked for when the expected PSN moves on by
// n. It returns false if that may not be yet: an answer waits which would be
// too old to be told from a new one.
func (r *answerer) age(n uint32) bool {
	for i := range r.res.ring {
		if e := &r.res.ring[i]; e.kind != resourceFree && e.pending == pendingFirst && r.epsn.Ahead(e.first)+n > maxUnanswered {
			return false
		}
	}
	forget := func(e *resource, index int) {
		if e.kind != resourceFree && r.epsn.Ahead(e.first)+n > ageLimit {
			if e.pending != pendingNone {
				r.out.cancel(uint8(index))
			}
			*e = resource{}
		}
	}
	for i := range r.res.ring {
		forget(&r.res.ring[i], i)
	}
	for i := range r.res.beside {
		forget(&r.res.beside[i], besideRing+i)
	}
	r.addresses = nil
	r.res.pushed = r.res.pushed && r.epsn.Ahead(r.res.behind)+n <= ageLimit
	r.acked = r.acked && r.epsn.Ahead(r.lastAck)+n <= ageLimit
	return true
}

// reserve puts a READ or an atomic that was accepted into the ring, where it
// takes the place of the oldest one, and moves on behind it. A READ takes a PSN
// for each packet of its response (IBTA 9.7.3).
func (r *answerer) reserve(n resource) (index uint8) {
	e, index := r.reservePlace(n.psns)
	n.pending, n.first = e.pending, e.first
	*e = n
	return index
}

// reservePlace is reserve for what is filled in place, other than its state and
// its PSNs.
func (r *answerer) reservePlace(psns uint32) (e *resource, index uint8) {
	e, index = r.res.oldest()
	r.res.push(e)
	if e.pending == pendingReplay {
		// A late duplicate asks for this, or a peer that has more
		// outstanding than agreed.
		if to, ok := r.res.addBeside(*e); ok {
			r.out.move(index, to)
		} else {
			r.out.cancel(index)
		}
	}
	e.pending, e.first, e.psns = pendingFirst, r.epsn, psns
	r.res.next++
	r.msn = r.msn.Next()
	r.epsn = r.epsn.Add(int(psns))
	return e, index
}

// busy reports whether a READ or an atomic of so many PSNs must wait for
// earlier answers to be sent: the peer has more outstanding than agreed, or
// than PSNs can tell apart.
func (r *answerer) busy(psns uint32) bool {
	e, _ := r.res.oldest()
	return e.pending == pendingFirst || crossesAge(r.epsn, psns) && !r.age(psns)
}
