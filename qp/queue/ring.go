package queue

import (
	"encoding/binary"
	"math/bits"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// RingSize returns the power of two that holds n entries, and 0 for 0.
func RingSize(n int) int {
	if n == 0 {
		return 0
	}
	return 1 << bits.Len(uint(n-1))
}

// Flags of a send request.
const (
	Signaled uint8 = 1 << iota
	Solicited
	Fence
	Inline
	Split   // a WRITE that goes as messages of one packet each, or a READ as several of two
	Long    // a READ that goes as requests that are longer than others
	Resumed // a READ that was asked for again from the middle, or a FLUSH that was sent again
)

// Send is a send request in its slot. Push fills what the program has said. The
// requester sets PSNs and position when it sends the first packet.
//
// It is 64 bytes, as a cache line.
type Send struct {
	ID         uint64
	Remote     uint64
	Pos        uint64 // where its first byte is in the stream of bytes in flight
	Length     uint32
	RKey       uint32
	Arg        uint32 // immediate data, the key to invalidate, or how many bytes a FLUSH is about
	PSNs       uint32 // PSNs that it takes
	First      rocev2.PSN
	SSN        rocev2.PSN // number of the (last) message that it is
	SRQN       uint32     // XRC: of the peer
	Vendor     uint16
	Opcode     ib.Opcode
	Kind       ib.OpcodeFlags // what Opcode is
	Flags      uint8
	NumSGE     uint8
	Status     ib.Status // an error that waits for the requests before it
	FlushType  rocev2.FlushType
	FlushLevel rocev2.FlushLevel
}

// Operands are what atomics have beside the fields of Send.
type Operands struct {
	CompareAdd uint64
	Swap       uint64 // or the 8 bytes of an inline ATOMIC WRITE, as memory has them
}

// A ring gets slots at the first post: one for requests, some for receives, of
// which there are more than one at a time. It then has at least fewSlots, and
// doubles until it has all: many queue pairs never have more than a few
// requests outstanding, and an idle one takes no memory for what it might do,
// except for a probe of its peer from time to time.
const (
	firstRequests = 1
	fewSlots      = 4
)

// moreSlots returns how many slots a ring has next that has n, or at first when
// it has none, and needs one more for depth entries.
func moreSlots(n, first, depth int) int {
	if n > 0 {
		first = max(2*n, fewSlots)
	}
	return min(first, RingSize(depth))
}

// SendRing is the ring of send requests with their scatter lists and inline
// data. Indices run freely: the caller moves Head on when a request completes.
// It grows as requests are posted, so pointers into it hold until the next
// Push.
type SendRing struct {
	Head uint32 // oldest request that has not completed
	Tail uint32 // next slot to post to

	requests []Send
	sges     []ib.SGE // for all slots, or for none yet
	extra    *extra   // what few requests have; nil: none has had any yet
	mask     uint32   // slots that there are - 1
	depth    uint32
	sge      uint32 // entries per slot
	bytes    uint32 // inline bytes per slot
}

// Init makes a ring for depth requests of sge entries or inline bytes each.
func (s *SendRing) Init(depth, sge, inline int) {
	*s = SendRing{mask: ^uint32(0), depth: uint32(depth), sge: uint32(sge), bytes: uint32(inline)}
}

// grow gives the ring more slots. What is in it keeps its indices.
func (s *SendRing) grow() {
	old := *s
	n := moreSlots(len(old.requests), firstRequests, int(s.depth))
	s.requests, s.sges, s.extra = make([]Send, n), nil, nil
	s.mask = uint32(n - 1)
	if old.sges != nil {
		s.makeLists()
	}
	if x := old.extra; x != nil {
		s.makeExtra(x.operands != nil, x.inline != nil)
	}
	for i := s.Head; i != s.Tail; i++ {
		w := s.At(i)
		*w = *old.At(i)
		if w.NumSGE > 0 {
			copy(s.List(i, w), old.List(i, w))
		}
		if x := old.extra; x != nil {
			copy(s.extra.of(i, s), x.of(i, &old))
			if x.operands != nil {
				*s.Operands(i) = *old.Operands(i)
			}
		}
	}
}

// makeLists makes room for scatter lists.
func (s *SendRing) makeLists() { s.sges = make([]ib.SGE, len(s.requests)*int(s.sge)) }

// extra is room for what few requests have, each for all slots, or for none
// yet.
type extra struct {
	operands []Operands
	inline   []byte // which takes more than all the rest
}

// makeExtra makes room for operands, inline data, or both, where there is none.
func (s *SendRing) makeExtra(operands, inline bool) {
	if s.extra == nil {
		s.extra = new(extra)
	}
	if operands && s.extra.operands == nil {
		s.extra.operands = make([]Operands, len(s.requests))
	}
	if inline && s.extra.inline == nil {
		s.extra.inline = make([]byte, len(s.requests)*int(s.bytes))
	}
}

// of returns the inline data of slot i of s, nil if there is no room for any.
func (x *extra) of(i uint32, s *SendRing) []byte {
	if x.inline == nil {
		return nil
	}
	at := (i & s.mask) * s.bytes
	return x.inline[at : at+s.bytes]
}

// Len returns the number of requests that have not completed.
func (s *SendRing) Len() int { return int(s.Tail - s.Head) }

// Full reports whether there is no room for another request.
func (s *SendRing) Full() bool { return s.Tail-s.Head >= s.depth }

// Room returns how many more requests there is room for.
func (s *SendRing) Room() int { return int(s.depth - (s.Tail - s.Head)) }

// MaxSGE returns how many scatter/gather entries a request may have.
func (s *SendRing) MaxSGE() int { return int(s.sge) }

// MaxInline returns how many bytes of inline data a request may have.
func (s *SendRing) MaxInline() int { return int(s.bytes) }

// Clear drops all requests.
func (s *SendRing) Clear() { s.Head, s.Tail = 0, 0 }

// At returns the request with an index.
func (s *SendRing) At(i uint32) *Send { return &s.requests[i&s.mask] }

// List returns the scatter list of request i, which is w.
func (s *SendRing) List(i uint32, w *Send) []ib.SGE {
	if s.sges == nil {
		return nil // no request has had any
	}
	at := (i & s.mask) * s.sge
	return s.sges[at : at+uint32(w.NumSGE)]
}

// Operands returns those of request i, which has some.
func (s *SendRing) Operands(i uint32) *Operands { return &s.extra.operands[i&s.mask] }

// setOperands gives request i operands.
func (s *SendRing) setOperands(i uint32, o Operands) {
	s.makeExtra(true, false)
	*s.Operands(i) = o
}

// Data returns the inline data of request i.
func (s *SendRing) Data(i uint32) []byte {
	return s.extra.of(i, s)
}

// Push adds a request of length bytes; the caller has checked it and the room.
func (s *SendRing) Push(wr *ib.SendWR, length uint32, signaled bool) {
	if s.Len() == len(s.requests) {
		s.grow()
	}
	i := s.Tail
	w := s.At(i)
	*w = Send{} // and then in place: to copy what was just written in parts stalls
	w.ID, w.Opcode, w.Kind, w.Length = wr.ID, wr.Opcode, wr.Opcode.Flags(), length
	w.Remote, w.RKey = wr.Remote.Addr, uint32(wr.Remote.RKey)
	w.Arg, w.SRQN = wr.Imm, wr.RemoteSRQN
	switch wr.Opcode {
	case ib.OpSendInv, ib.OpLocalInv, ib.OpReadInv:
		w.Arg = uint32(wr.InvalidateKey)
	case ib.OpFlush:
		w.Arg, w.FlushType, w.FlushLevel = wr.Length, wr.FlushType, wr.FlushLevel
	}
	if signaled {
		w.Flags |= Signaled
	}
	if wr.Solicited && w.Kind&ib.OpConsumesRecv != 0 {
		w.Flags |= Solicited
	}
	if wr.Fence {
		w.Flags |= Fence
	}
	if w.Kind&ib.OpAtomic != 0 {
		s.setOperands(i, Operands{CompareAdd: wr.CompareAdd, Swap: wr.Swap})
	}
	if w.Kind&ib.OpLocal != 0 {
		s.setLocal(i, w, wr)
	} else if wr.Inline != nil {
		w.Flags |= Inline
		if wr.Opcode == ib.OpAtomicWrite {
			s.setOperands(i, Operands{Swap: binary.NativeEndian.Uint64(wr.Inline)})
		} else {
			s.makeExtra(false, true)
			copy(s.Data(i), wr.Inline)
		}
	} else {
		w.NumSGE = uint8(len(wr.SGList))
		if s.sges == nil && w.NumSGE > 0 {
			s.makeLists()
		}
		copy(s.List(i, w), wr.SGList)
	}
	s.Tail++
}
