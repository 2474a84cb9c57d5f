package adapter

import (
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// recordLen is how much of a packet a record has: the longest header
// (rocev2.MaxHeaderLen) and some more.
const recordLen = 56

// The compiler refuses a longer header.
const _ = uint(recordLen - rocev2.MaxHeaderLen)

// record is a packet under way, 64 bytes. It is all there is of a packet
// without bytes after its header.
type record struct {
	body         uint32 // of bodies, what does not fit in here; 0: there is none. Of a free record: the next one
	n            uint16 // BTH to pad
	trafficClass uint8
	entropy      uint8 // in the lower bits of the source port, with Config.PerPacket
	data         [recordLen]byte
}

// records are those of packets that a part's hosts have sent, by handle. They
// never move, and neither do their bodies: other parts read them meanwhile.
type records struct {
	all  pieces[record]
	part uint32 // in the upper bits of handles
	free uint32 // handle + 1 of one that is free; 0: none is
	used int    // less those of other parts that this one has released

	bodies     pieces[body]
	freeBodies []uint32
}

// body is what some packets have beside their record.
type body struct {
	data []byte   // the whole packet; empty: it is in the record
	hops []cc.Hop // of an acknowledgement, those of the newest packet of data
}

// A handle has the part above the index.
const (
	handleBits = 26
	indexMask  = 1<<handleBits - 1
)

const (
	pieceBits = 10
	groupBits = (handleBits - pieceBits) / 2
	pieceLen  = 1 << pieceBits
)

// pieces is a list that grows by pieces.
type pieces[T any] struct {
	groups [1 << groupBits]*[1 << groupBits]*[pieceLen]T
	n      uint32
}

func (p *pieces[T]) at(i uint32) *T {
	return &p.groups[i>>(groupBits+pieceBits)&(1<<groupBits-1)][i>>pieceBits&(1<<groupBits-1)][i&(pieceLen-1)]
}

// grow adds a piece, and returns the index of its first element.
func (p *pieces[T]) grow() uint32 {
	i := p.n
	if i == 1<<handleBits {
		panic("adapter: too many packets are under way")
	}
	g := &p.groups[i>>(groupBits+pieceBits)]
	if *g == nil {
		*g = new([1 << groupBits]*[pieceLen]T)
	}
	(*g)[i>>pieceBits&(1<<groupBits-1)] = new([pieceLen]T)
	p.n += pieceLen
	return i
}

func (r *records) at(handle uint32) *record { return r.all.at(handle & indexMask) }

// take returns a record that is free.
func (r *records) take() (uint32, *record) {
	if r.free == 0 {
		r.grow()
	}
	handle := r.free - 1
	k := r.at(handle)
	r.free, k.body = k.body, 0
	r.used++
	return handle, k
}

func (r *records) grow() {
	first := r.all.grow()
	for i := range uint32(pieceLen - 1) {
		r.all.at(first + i).body = (r.part<<handleBits | first + i + 1) + 1
	}
	r.free = (r.part<<handleBits | first) + 1
}

// put makes a record free, and its body.
func (r *records) put(handle uint32) {
	k := r.at(handle)
	if k.body != 0 {
		r.freeBodies = append(r.freeBodies, k.body)
	}
	k.body = r.free
	r.free = handle + 1
}

// bodyOf returns the body of a record, an empty one if it had none.
func (r *records) bodyOf(k *record) *body {
	if k.body != 0 {
		return r.bodies.at(k.body - 1)
	}
	if len(r.freeBodies) == 0 {
		first := r.bodies.grow()
		for i := range uint32(pieceLen) {
			r.freeBodies = append(r.freeBodies, first+pieceLen-i)
		}
	}
	last := len(r.freeBodies) - 1
	k.body = r.freeBodies[last]
	r.freeBodies = r.freeBodies[:last]
	b := r.bodies.at(k.body - 1)
	b.data, b.hops = b.data[:0], b.hops[:0]
	return b
}

// keep stores a whole packet with a record.
func (r *records) keep(k *record, data []byte) {
	b := r.bodyOf(k)
	b.data = append(b.data[:0], data...)
}

// whole returns what keep has stored; nil if there is none.
func (r *records) whole(k *record) []byte {
	if k.body == 0 || len(r.bodies.at(k.body-1).data) == 0 {
		return nil
	}
	return r.bodies.at(k.body - 1).data
}

// set fills a record with the packet of a batch.
func (k *record) set(data []byte, p *transport.Path) {
	k.n, k.trafficClass, k.entropy = uint16(len(data)), p.TrafficClass, 0
	clear(k.data[copy(k.data[:], data):])
}
