package adapter

import "github.com/gosoftroce/rocev2/transport"

// recordLen is how much of a packet a record has: the longest header
// (rocev2.MaxHeaderLen) and some more.
const recordLen = 56

// record is a packet under way, 64 bytes. Of one without bytes behind its
// header it is all there is.
type record struct {
	body         uint32 // of bodies, the whole packet; 0: there is none. Of a free record: the next one
	n            uint16 // BTH to pad
	trafficClass uint8
	hopLimit     uint8
	data         [recordLen]byte
}

// records are the records of all packets under way, by handle. They lie in
// pieces, so that they never move.
type records struct {
	pieces [][]record
	free   uint32 // handle + 1 of one that is free; 0: none is
	used   int

	bodies     [][]byte
	freeBodies []uint32
}

const (
	pieceBits = 10
	pieceLen  = 1 << pieceBits
)

func (r *records) at(handle uint32) *record {
	return &r.pieces[handle>>pieceBits][handle&(pieceLen-1)]
}

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
	piece := make([]record, pieceLen)
	first := uint32(len(r.pieces)) << pieceBits
	for i := range piece {
		piece[i].body = first + uint32(i) + 2
	}
	piece[pieceLen-1].body = 0
	r.pieces = append(r.pieces, piece)
	r.free = first + 1
}

// release gives a record back, and its body.
func (r *records) release(handle uint32) {
	k := r.at(handle)
	if k.body != 0 {
		r.freeBodies = append(r.freeBodies, k.body)
	}
	k.body = r.free
	r.free = handle + 1
	r.used--
}

// keep stores a whole packet with a record.
func (r *records) keep(k *record, data []byte) {
	if n := len(r.freeBodies); n > 0 {
		k.body = r.freeBodies[n-1]
		r.freeBodies = r.freeBodies[:n-1]
	} else {
		r.bodies = append(r.bodies, nil)
		k.body = uint32(len(r.bodies))
	}
	b := &r.bodies[k.body-1]
	*b = append((*b)[:0], data...)
}

// whole returns what keep has stored; nil if there is none.
func (r *records) whole(k *record) []byte {
	if k.body == 0 {
		return nil
	}
	return r.bodies[k.body-1]
}

// set fills a record with the packet of a batch.
func (k *record) set(data []byte, p *transport.Path) {
	k.n, k.trafficClass, k.hopLimit = uint16(len(data)), p.TrafficClass, p.HopLimit
	clear(k.data[copy(k.data[:], data):])
}
