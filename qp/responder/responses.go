package responder

import (
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
)

type responseKind uint8

const (
	responseCanceled responseKind = iota // its place is taken, nothing is sent
	responseAck
	responseNAK    // any NAK, and receiver not ready
	responseRead   // one packet or more
	responseAtomic // the stored value of a resource
	responseEmpty  // of an empty READ: for an ATOMIC WRITE or a FLUSH
	responseFlush  // the same, when the bytes are on stable storage
)

// response is an answer that waits to be sent.
type response struct {
	kind     responseKind
	syndrome rocev2.Syndrome // NAKs
	res      uint8           // index of the resource
	part     bool            // READ: another answer of the same resource waits after this one; FLUSH: it is being done
	psn      rocev2.PSN      // of the (next) packet
	start    rocev2.PSN      // READ: where the FIRST is
	msn      rocev2.PSN
	left     uint32 // READ: packets
	end      uint32 // READ: offset after the last byte, from the start of the resource; FLUSH: the fault that it met
}

// responses is the bounded queue of answers, in the order of the requests.
// Acknowledgements that have not been sent merge into the latest, but never
// across the answer to a READ or an atomic. It takes memory as it is needed:
// most connections never have more than a few answers waiting.
type responses struct {
	ring       []response
	head, tail uint32
	limit      uint16 // of entries
}

// firstResponses is how many entries there are when the first is needed.
const firstResponses = 2

// resize allows for the answers to depth READs and atomics with an
// acknowledgement before each. Waiting answers are kept.
func (r *responses) resize(depth int) { r.limit = max(r.limit, uint16(queue.RingSize(2*depth+4))) }

// full reports whether there is no room for another answer.
func (r *responses) full() bool {
	n := len(r.ring)
	if int(r.tail-r.head) < n {
		return false
	}
	if n >= int(r.limit) {
		return true
	}
	n = max(2*n, firstResponses)
	ring := make([]response, n)
	for i := r.head; i != r.tail; i++ {
		ring[i&uint32(n-1)] = *r.at(i)
	}
	r.ring = ring
	return false
}

func (r *responses) at(i uint32) *response { return &r.ring[i&uint32(len(r.ring)-1)] }

func (r *responses) empty() bool { return r.head == r.tail }

func (r *responses) clear() { r.head = r.tail }

// add adds an answer, to be filled in place: to copy what was just written in
// parts stalls. The caller has made sure of the room.
func (r *responses) add() *response {
	r.full() // takes memory if need be
	e := r.at(r.tail)
	*e = response{}
	r.tail++
	return e
}

// push is add with what the answer is.
func (r *responses) push(e response) { *r.add() = e }

// insert adds the answer to a duplicate in PSN order: the peer drops what has a
// later PSN until it has this one. MSNs must not go back, so those of the
// answers after it are brought up to its own, which is the current one.
func (r *responses) insert(e response) {
	r.full() // takes memory if need be
	i := r.tail
	for ; i != r.head && r.at(i-1).psn.After(e.psn); i-- {
		*r.at(i) = *r.at(i - 1)
		r.at(i).msn = e.msn
	}
	*r.at(i) = e
	r.tail++
}

// ack adds an acknowledgement up to psn, and returns how many unsent ones it
// replaces: one may stand for several requests (IBTA 9.7.5.1). A sequence NAK
// right before it is obsolete: what it asks for has arrived.
func (r *responses) ack(psn, msn rocev2.PSN) (merged int) {
	for !r.empty() {
		e := r.at(r.tail - 1)
		if e.kind == responseAck {
			merged++
			if e.psn.After(psn) {
				psn = e.psn
			}
		} else if e.kind != responseNAK || e.syndrome != rocev2.NAKSequence || e.psn.After(psn) {
			break
		}
		r.tail--
	}
	e := r.add()
	e.kind, e.psn, e.msn = responseAck, psn, msn
	return merged
}

// nak adds a NAK, unless the same one waits already.
func (r *responses) nak(s rocev2.Syndrome, psn, msn rocev2.PSN) bool {
	if !r.empty() {
		if e := r.at(r.tail - 1); e.kind == responseNAK && e.syndrome == s && e.psn == psn {
			return false
		}
	}
	if r.full() {
		return false
	}
	r.push(response{kind: responseNAK, syndrome: s, psn: psn, msn: msn})
	return true
}

// cancel takes the unsent answers of a resource away.
func (r *responses) cancel(res uint8) {
	for i := r.head; i != r.tail; i++ {
		if e := r.at(i); e.kind >= responseRead && e.res == res {
			e.kind = responseCanceled
		}
	}
}

// move has the unsent answers of a resource refer to another one.
func (r *responses) move(from, to uint8) {
	for i := r.head; i != r.tail; i++ {
		if e := r.at(i); e.kind >= responseRead && e.res == from {
			e.res = to
		}
	}
}

// dropReads drops the answers from the first one on that has data of a READ, or
// is to a FLUSH that is not done. It returns that if there is one. What is left
// is small.
func (r *responses) dropReads() (first response, dropped bool) {
	for i := r.head; i != r.tail; i++ {
		if e := r.at(i); e.kind == responseRead || e.kind == responseFlush {
			r.tail = i
			return *e, true
		}
	}
	return response{}, false
}

// nakDuplicate adds a NAK for a duplicate in its turn, unless another one
// waits.
func (r *responses) nakDuplicate(s rocev2.Syndrome, psn, msn rocev2.PSN) {
	for i := r.head; i != r.tail; i++ {
		if e := r.at(i); e.kind == responseNAK && e.syndrome.IsNAK() && e.syndrome != rocev2.NAKSequence {
			return
		}
	}
	r.insert(response{kind: responseNAK, syndrome: s, psn: psn, msn: msn})
}

// rewind moves a READ's answer back to psn, and brings MSNs up as insert does.
func (r *responses) rewind(e *response, psn, msn rocev2.PSN) {
	e.psn, e.start = psn, psn
	for i := r.tail; ; i-- {
		r.at(i - 1).msn = msn
		if r.at(i-1) == e {
			return
		}
	}
}

// onlyNAK reports whether nothing waits but a sequence NAK for what is expected
// now.
func (r *responses) onlyNAK(expected, msn rocev2.PSN) bool {
	for i := r.head; i != r.tail; i++ {
		if e := r.at(i); e.kind != responseNAK || e.syndrome != rocev2.NAKSequence || e.psn != expected || e.msn != msn {
			return false
		}
	}
	return true
}
