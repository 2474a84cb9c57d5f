package tcp

import (
	"encoding/binary"
	"errors"
)

// Flags of a segment (RFC 9293 3.1, RFC 3168 6.1).
const (
	fin = 1 << iota
	syn
	_ // RST
	psh
	ack
	_ // URG
	ece
	cwr
)

// Options (RFC 9293 3.2, RFC 7323 2.2, RFC 2018).
const (
	optEnd     = 0
	optNop     = 1
	optMSS     = 2
	optScale   = 3
	optAllowed = 4
	optSACK    = 5
)

// HeaderLen is the length of a header without options, and mostHeader that of
// one with four blocks of SACK, which are the most that a segment has.
const (
	HeaderLen  = 20
	mostHeader = HeaderLen + 2 + 2 + 4*8
	mostBlocks = 4
)

// segment is a header. Its numbers are those of the wire.
type segment struct {
	srcPort, dstPort uint16
	seq, ack         uint32
	flags            uint8
	window           uint16

	mss    uint16 // of a SYN: 0, there is none
	scale  uint8  // of a SYN
	blocks [mostBlocks]block
	n      int // of blocks
}

// block is one of selective acknowledgement: from begin up to, not with, end.
type block struct{ begin, end uint32 }

var be = binary.BigEndian

// append appends a header. Its checksum is 0: it covers the addresses, which
// are not known here.
func (s *segment) append(b []byte) []byte {
	start := len(b)
	b = be.AppendUint16(b, s.srcPort)
	b = be.AppendUint16(b, s.dstPort)
	b = be.AppendUint32(b, s.seq)
	b = be.AppendUint32(b, s.ack)
	b = append(b, 0, s.flags)
	b = be.AppendUint16(b, s.window)
	b = append(b, 0, 0, 0, 0)
	if s.flags&syn != 0 {
		b = append(b, optMSS, 4)
		b = be.AppendUint16(b, s.mss)
		b = append(b, optNop, optNop, optAllowed, 2, optNop, optScale, 3, s.scale)
	}
	if s.n > 0 {
		b = append(b, optNop, optNop, optSACK, byte(2+8*s.n))
		for _, k := range s.blocks[:s.n] {
			b = be.AppendUint32(b, k.begin)
			b = be.AppendUint32(b, k.end)
		}
	}
	b[start+12] = byte((len(b) - start) / 4 << 4)
	return b
}

var errHeader = errors.New("tcp: no header of TCP")

// parse reads a header, and returns how long it is.
func (s *segment) parse(b []byte) (int, error) {
	if len(b) < HeaderLen {
		return 0, errHeader
	}
	n := int(b[12]>>4) * 4
	if n < HeaderLen || n > len(b) {
		return 0, errHeader
	}
	*s = segment{srcPort: be.Uint16(b), dstPort: be.Uint16(b[2:]), seq: be.Uint32(b[4:]), ack: be.Uint32(b[8:]), flags: b[13], window: be.Uint16(b[14:])}
	for opts := b[HeaderLen:n]; len(opts) > 0 && opts[0] != optEnd; {
		if opts[0] == optNop {
			opts = opts[1:]
			continue
		}
		if len(opts) < 2 || opts[1] < 2 || int(opts[1]) > len(opts) {
			return 0, errHeader
		}
		s.option(opts[0], opts[2:opts[1]])
		opts = opts[opts[1]:]
	}
	return n, nil
}

// option reads an option. One of another length is none.
func (s *segment) option(kind byte, b []byte) {
	switch {
	case kind == optMSS && len(b) == 2:
		s.mss = be.Uint16(b)
	case kind == optScale && len(b) == 1:
		s.scale = b[0]
	case kind == optSACK && len(b)%8 == 0:
		for s.n = 0; len(b) > 0 && s.n < mostBlocks; s.n++ {
			s.blocks[s.n] = block{be.Uint32(b), be.Uint32(b[4:])}
			b = b[8:]
		}
	}
}

// unwrap returns the position in a stream that a number of the wire stands for:
// the one that is nearest to another.
func unwrap(wire uint32, first uint32, near int64) int64 {
	return near + int64(int32(wire-first-uint32(near)))
}
