package rping

import (
	"encoding/binary"
	"fmt"

	"github.com/gosoftroce/rocev2/verbs"
)

// buffer is what the client tells the server of its memory, in 16 bytes,
// big-endian.
//
//	0: address (64 bits), 8: rkey (32 bits), 12: bytes (32 bits)
type buffer struct {
	addr uint64
	rkey verbs.Key
	size uint32
}

const messageLen = 16

func (b buffer) append(p []byte) []byte {
	p = binary.BigEndian.AppendUint64(p, b.addr)
	p = binary.BigEndian.AppendUint32(p, uint32(b.rkey))
	return binary.BigEndian.AppendUint32(p, b.size)
}

// parseBuffer reads the 16 bytes of p.
func parseBuffer(p []byte) buffer {
	return buffer{
		addr: binary.BigEndian.Uint64(p), rkey: verbs.Key(binary.BigEndian.Uint32(p[8:])), size: binary.BigEndian.Uint32(p[12:]),
	}
}

// remote returns the memory as work requests name it.
func (b buffer) remote() verbs.RemoteAddr {
	return verbs.RemoteMemory{Addr: b.addr, Length: uint64(b.size), RKey: b.rkey}.At(0)
}

// The letters of a ping go round from first to last.
const (
	first = 'A'
	last  = 'z'
)

// fill writes the data of a ping: its number, then letters, each ping beginning
// one letter later, and a NUL. The server sends back what comes before the
// first NUL, so there is none in the middle.
func fill(p []byte, ping int) {
	n := copy(p, fmt.Sprintf("rdma-ping-%d: ", ping))
	letter := byte(first + ping%(last-first+1))
	for i := n; i < len(p)-1; i++ {
		p[i] = letter
		if letter++; letter > last {
			letter = first
		}
	}
	p[len(p)-1] = 0
}

// text returns what comes before the first NUL.
func text(p []byte) []byte {
	for i, c := range p {
		if c == 0 {
			return p[:i]
		}
	}
	return p
}
