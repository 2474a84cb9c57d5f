package qp

import "github.com/gosoftroce/rocev2/rocev2"

type resourceKind uint8

const (
	resourceFree resourceKind = iota
	resourceRead
	resourceAtomic
)

// pending says whether a response of a resource waits to be sent.
type pending uint8

const (
	pendingNone   pending = iota
	pendingFirst          // the answer to the request itself
	pendingReplay         // the answer to a duplicate
)

// resource is what the responder keeps of a READ or an atomic to answer it again (IBTA 9.7.5.1.6). A READ owns the PSNs
// of all its responses.
type resource struct {
	va      uint64
	value   uint64 // atomics: what the memory held before
	first   rocev2.PSN
	psns    uint32
	rkey    uint32
	length  uint32
	opcode  rocev2.Opcode
	kind    resourceKind
	pending pending
}

// resources is the ring of the last READs and atomics. Its size is max_dest_rd_atomic rounded up to a power of two, for
// a Linux requester rounds its own depth up. It takes memory with the first of them.
type resources struct {
	ring  []resource
	depth int
	next  uint32
}

// resize sets the depth and keeps the latest entries. Entries that wait in the response queue are referred to by index,
// so the caller must not shrink the ring while there are any.
func (r *resources) resize(depth int) {
	r.depth = ringSize(depth)
	if len(r.ring) == 0 || r.depth == len(r.ring) {
		return
	}
	old := *r
	*r = resources{ring: make([]resource, r.depth), depth: r.depth}
	keep := min(r.depth, len(old.ring))
	for i := keep; i > 0; i-- {
		*r.slot(r.next) = *old.slot(old.next - uint32(i))
		r.next++
	}
}

func (r *resources) slot(i uint32) *resource { return &r.ring[i&uint32(len(r.ring)-1)] }

// oldest is the slot that the next request will take.
func (r *resources) oldest() (*resource, uint32) {
	if len(r.ring) == 0 {
		r.ring = make([]resource, r.depth)
	}
	i := r.next & uint32(len(r.ring)-1)
	return &r.ring[i], i
}

// find returns the resource that owns a PSN, and its index.
func (r *resources) find(psn rocev2.PSN) (*resource, uint32) {
	for i := range r.ring {
		if e := &r.ring[i]; e.kind != resourceFree && ahead(psn, e.first) < e.psns {
			return e, uint32(i)
		}
	}
	return nil, 0
}

// ackLimit lowers an acknowledgement of the PSNs from..upTo to what comes before the first READ or atomic among them: an
// acknowledgement must not pass a response that the peer may have lost.
func (r *resources) ackLimit(from, upTo rocev2.PSN) rocev2.PSN {
	for i := range r.ring {
		e := &r.ring[i]
		if e.kind != resourceFree && e.first.After(from) && !e.first.After(upTo) {
			upTo = e.first.Add(-1)
		}
	}
	return upTo
}
