package shm

import (
	"sync/atomic"
	"unsafe"
)

// The memory of two links has two rings, one for each direction. A ring has a
// page of words that the consumer writes, the descriptors, and the data:
//
//	| head | armed | descriptors, 64 bytes each | data |
//
// A descriptor stands for a run of packets. Its first word says whether it is
// full: it has the number of the lap then, so the consumer looks at one word,
// and finds a short packet in the same cache line.
const (
	version = 3 // of all that follows, and of the messages

	// descCount descriptors, and dataLen bytes of data, are more than queue
	// pairs of a reliable service have in flight to one peer, in packets of
	// any size (engine.Config.Window).
	descCount = 8192
	descLen   = 64

	dataLen = 4 << 20

	controlLen = 4096
	headAt     = 0   // how many descriptors were given back
	armedAt    = 128 // not 0: the consumer sleeps, or is about to

	ringLen   = controlLen + descCount*descLen + dataLen
	memoryLen = 2 * ringLen
)

// Words of a descriptor.
const (
	wordState   = 0 // the lap, counted from 1; 0 in fresh memory
	wordLength  = 1 // bytes of the run, room for the ICRCs included
	wordPlace   = 2 // where the run lies in the data
	wordSegment = 3 // bytes of each packet but the last; flags in the upper half
	wordPath    = 4 // source port, traffic class, hop limit
	wordLabel   = 5 // flow label
	inlineAt    = 24
	inlineLen   = descLen - inlineAt
)

// Flags of a descriptor.
const (
	flagInline   = 1 << iota // one packet, which lies in the descriptor, without its ICRC
	flagDamaged              // the ICRCs are wrong
	flagAfterUDP             // packets went by UDP before: they come first
	flagsKnown   = 1<<iota - 1
)

// half is one direction of the memory.
type half struct{ mem []byte }

func halves(mem []byte) (a, b half) {
	return half{mem[:ringLen:ringLen]}, half{mem[ringLen : 2*ringLen : 2*ringLen]}
}

// word returns a word of the control page or of a descriptor.
func (h half) word(at int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&h.mem[at])) }

func (h half) head() *atomic.Uint32  { return h.word(headAt) }
func (h half) armed() *atomic.Uint32 { return h.word(armedAt) }

// desc returns the descriptor that has a number.
func (h half) desc(n uint32) *[descLen]byte {
	at := controlLen + int(n%descCount)*descLen
	return (*[descLen]byte)(h.mem[at : at+descLen])
}

// state returns the first word of a descriptor.
func (h half) state(n uint32) *atomic.Uint32 {
	return h.word(controlLen + int(n%descCount)*descLen)
}

// lap is what the first word of descriptor n has when it is full.
func lap(n uint32) uint32 { return n/descCount + 1 }

// data returns the bytes that runs lie in.
func (h half) data() []byte { return h.mem[controlLen+descCount*descLen:] }

// put writes word i of a descriptor that the consumer does not look at yet.
func put(d *[descLen]byte, i int, v uint32) { *(*uint32)(unsafe.Pointer(&d[4*i])) = v }

// get reads word i of a descriptor. It may change at any time: a caller reads
// it once.
func get(d *[descLen]byte, i int) uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&d[4*i])).Load()
}
