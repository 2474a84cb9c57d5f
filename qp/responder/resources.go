package responder

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
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
	beside *[]resource // nil until the first needs it
	after  rocev2.PSN  // if pushed: what follows the last such PSN
	pushed bool        // a READ or atomic lost its place in the ring
	depth  uint8
	next   uint8
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
	r.depth = uint8(queue.RingSize(depth))
	if len(r.ring) == 0 || int(r.depth) == len(r.ring) {
		return
	}
	old := *r
	r.ring, r.beside, r.next = make([]resource, r.depth), nil, 0
	keep := min(int(r.depth), len(old.ring))
	for i := len(old.ring); i > keep; i-- {
		r.push(old.slot(old.next - uint8(i)))
	}
	for i := keep; i > 0; i-- {
		*r.slot(r.next) = *old.slot(old.next - uint8(i))
		r.next++
	}
}

func (r *resources) slot(i uint8) *resource { return &r.ring[int(i)&(len(r.ring)-1)] }

// oldest is the slot that the next request will take.
func (r *resources) oldest() (*resource, uint8) {
	if len(r.ring) == 0 {
		r.ring = make([]resource, r.depth)
	}
	i := int(r.next) & (len(r.ring) - 1)
	return &r.ring[i], uint8(i)
}

// at returns the resource of a response.
func (r *resources) at(i uint8) *resource {
	if i >= besideRing {
		return &(*r.beside)[i-besideRing]
	}
	return &r.ring[i]
}

// push records that a resource loses its place in the ring.
func (r *resources) push(e *resource) {
	if e.kind != resourceFree {
		r.pushed, r.after = true, e.first.Add(int(e.psns))
	}
}

// wasPushed reports whether psn up to psn+n-1, which lie before the expected
// one, may belong to a READ or atomic that lost its place.
func (r *resources) wasPushed(psn rocev2.PSN, n uint32, expected rocev2.PSN) bool {
	return r.pushed && expected.Ahead(psn) >= expected.Ahead(r.after)+n
}

// besides returns those beside the ring.
func (r *resources) besides() []resource {
	if r.beside == nil {
		return nil
	}
	return *r.beside
}

// each calls f for all, with their indices.
func (r *resources) each(f func(e *resource, index uint8)) {
	for i := range r.ring {
		f(&r.ring[i], uint8(i))
	}
	for i, list := 0, r.besides(); i < len(list); i++ {
		f(&list[i], uint8(besideRing+i))
	}
}

// find returns the resource that owns a PSN, and its index.
func (r *resources) find(psn rocev2.PSN) (*resource, uint8) {
	for i := range r.ring {
		if e := &r.ring[i]; e.kind != resourceFree && psn.Ahead(e.first) < e.psns {
			return e, uint8(i)
		}
	}
	for i, list := 0, r.besides(); i < len(list); i++ {
		if e := &list[i]; e.pending != pendingNone && psn.Ahead(e.first) < e.psns {
			return e, uint8(besideRing + i)
		}
	}
	return nil, 0
}

// addBeside gives a resource a place beside the ring as long as its answer
// waits. False means that there is no room.
func (r *resources) addBeside(e resource) (uint8, bool) {
	if r.beside == nil {
		list := make([]resource, r.depth)
		r.beside = &list
	}
	for i := range *r.beside {
		if to := &(*r.beside)[i]; to.pending == pendingNone {
			e.pending = pendingReplay
			*to = e
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

// keep notes what a request says that was executed.
func (e *resource) keep(c *conn.Conn, p *rocev2.Packet, op rocev2.Operation, value uint64) {
	e.srqn, e.opcode, e.value = named(c, p), p.BTH.Opcode, value
	switch op {
	case rocev2.OpReadRequest:
		e.kind = resourceRead
	case rocev2.OpFlush:
		e.kind, e.value = resourceFlush, uint64(p.FETH.Level)<<8|uint64(p.FETH.Type)
	case rocev2.OpAtomicWrite:
		e.kind = resourceAtomicWrite
		return
	default:
		e.kind = resourceAtomic
		return
	}
	e.va, e.rkey, e.length = p.RETH.VA, p.RETH.RKey, p.RETH.Length
}

func (e *resource) flushType() rocev2.FlushType   { return rocev2.FlushType(e.value) }
func (e *resource) flushLevel() rocev2.FlushLevel { return rocev2.FlushLevel(e.value >> 8) }

// answer returns the kind of the answer to what is executed now.
func (e *resource) answer() responseKind {
	if e.kind == resourceFlush && e.flushType()&rocev2.FlushPersistent != 0 {
		return responseFlush
	}
	return e.replay()
}

// replay returns the kind of the answer to what was executed before. A FLUSH
// was done when its answer was sent, so there is nothing to do any more.
func (e *resource) replay() responseKind {
	switch e.kind {
	case resourceRead:
		return responseRead
	case resourceAtomic:
		return responseAtomic
	}
	return responseEmpty
}
