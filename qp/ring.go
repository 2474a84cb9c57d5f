package qp

import (
	"math/bits"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// ahead is the distance from q forward to p, 0 to 2^24-1. Unlike Sub it does not take the shorter way: it is for PSNs
// that are known not to lie behind q.
func ahead(p, q rocev2.PSN) uint32 { return uint32(p.Sub(q)) & uint32(rocev2.PSNMask) }

// ringSize returns the power of two that holds n entries, and 0 for 0.
func ringSize(n int) int {
	if n == 0 {
		return 0
	}
	return 1 << bits.Len(uint(n-1))
}

// Flags of a send WQE.
const (
	flagSignaled uint8 = 1 << iota
	flagSolicited
	flagFence
	flagInline
	flagResumed // a READ that was asked for again from the middle
)

// sendWQE is a send request in its slot. PSNs and position are set when its first packet is sent.
type sendWQE struct {
	id         uint64
	remote     uint64
	compareAdd uint64
	swap       uint64
	pos        uint64 // where its first byte is in the stream that the window counts
	length     uint32
	rkey       uint32
	arg        uint32 // immediate data or the key to invalidate
	psns       uint32 // PSNs that it takes
	first      rocev2.PSN
	ssn        rocev2.PSN // number of the (last) message that it is
	vendor     uint32
	opcode     ib.Opcode
	flags      uint8
	nsge       uint8
	status     ib.Status // an error that waits for the requests before it
}

// answered reports whether the request has a response of its own: no acknowledgement of a later one completes it.
func (w *sendWQE) answered() bool { return w.opcode.Is(ib.OpAnswered) }

func (w *sendWQE) consumesRecv() bool { return w.opcode.Is(ib.OpConsumesRecv) }

// end is the position behind the request.
func (w *sendWQE) end() uint64 { return w.pos + uint64(w.length) + uint64(w.psns)*PacketOverhead }

// sendQueue is the ring of send requests with their scatter lists and inline data. Indices run freely.
type sendQueue struct {
	wqes   []sendWQE
	sges   []ib.SGE
	inline []byte
	mask   uint32
	depth  uint32
	sge    uint32 // entries per slot
	bytes  uint32 // inline bytes per slot
	tail   uint32 // next slot to post to
}

func (s *sendQueue) init(depth, sge, inline int) {
	n := ringSize(depth)
	*s = sendQueue{
		wqes: make([]sendWQE, n), sges: make([]ib.SGE, n*sge), inline: make([]byte, n*inline),
		mask: uint32(n - 1), depth: uint32(depth), sge: uint32(sge), bytes: uint32(inline),
	}
}

func (s *sendQueue) at(i uint32) *sendWQE { return &s.wqes[i&s.mask] }

func (s *sendQueue) list(i uint32, w *sendWQE) []ib.SGE {
	at := (i & s.mask) * s.sge
	return s.sges[at : at+uint32(w.nsge)]
}

func (s *sendQueue) data(i uint32) []byte {
	at := (i & s.mask) * s.bytes
	return s.inline[at : at+s.bytes]
}

// recvQueue is the ring of receives.
type recvQueue struct {
	ids        []uint64
	lens       []uint8
	sges       []ib.SGE
	mask       uint32
	depth      uint32
	sge        uint32
	head, tail uint32
}

func (r *recvQueue) init(depth, sge int) {
	n := ringSize(depth)
	*r = recvQueue{
		ids: make([]uint64, n), lens: make([]uint8, n), sges: make([]ib.SGE, n*sge),
		mask: uint32(n - 1), depth: uint32(depth), sge: uint32(sge),
	}
}

func (r *recvQueue) len() int { return int(r.tail - r.head) }

func (r *recvQueue) clear() { r.head = r.tail }

// push adds a receive; the caller has checked the entries' number. It returns false if the queue is full.
func (r *recvQueue) push(wr *ib.RecvWR) bool {
	if r.tail-r.head >= r.depth {
		return false
	}
	i := r.tail & r.mask
	r.ids[i] = wr.ID
	r.lens[i] = uint8(copy(r.sges[i*r.sge:], wr.SGList))
	r.tail++
	return true
}

// NextRecv makes the queue a RecvSource.
func (r *recvQueue) NextRecv(w *RecvWQE) bool {
	if r.head == r.tail {
		return false
	}
	i := r.head & r.mask
	w.ID = r.ids[i]
	w.SGList = append(w.SGList[:0], r.sges[i*r.sge:i*r.sge+uint32(r.lens[i])]...)
	r.head++
	return true
}
