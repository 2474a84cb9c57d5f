package rdma

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// hello is what each side says of itself in the private data of the
// connection. The package documentation describes it.
type hello struct {
	regions bool   // this side exports memory
	secured bool   // a handshake follows, see secure.go
	credits uint16 // messages that the other side may send at first
	size    uint32 // largest message that this side takes, in bytes
	user    []byte // the program's own private data
}

var helloMagic = [4]byte{'R', 'M', 'S', 'G'}

const (
	helloVersion = 1
	helloLen     = 16

	helloRegions = 1 << 0
	helloSecured = 1 << 1

	// What CM leaves for the program (IBTA 12.6): the REQ has room for 56
	// bytes after the IP header of RDMA CM, the REP for 196, the REJ for
	// 148.
	maxRequestData = 56 - helloLen
	maxReplyData   = 196 - helloLen
	maxRejectData  = 148
)

func (h *hello) encode() []byte {
	b := make([]byte, helloLen, helloLen+len(h.user))
	copy(b, helloMagic[:])
	b[4] = helloVersion
	if h.regions {
		b[5] |= helloRegions
	}
	if h.secured {
		b[5] |= helloSecured
	}
	binary.BigEndian.PutUint16(b[6:], h.credits)
	binary.BigEndian.PutUint32(b[8:], h.size)
	b[12] = uint8(len(h.user))
	return append(b, h.user...)
}

// parseHello reads private data. It reports whether the peer speaks this
// protocol; if not, all of the data is the program's. The error says what is
// wrong with data of a peer that does.
func parseHello(b []byte) (h hello, ok bool, err error) {
	if len(b) < helloLen || !bytes.Equal(b[:4], helloMagic[:]) {
		return hello{user: b}, false, nil
	}
	h = hello{
		regions: b[5]&helloRegions != 0,
		secured: b[5]&helloSecured != 0,
		credits: binary.BigEndian.Uint16(b[6:]),
		size:    binary.BigEndian.Uint32(b[8:]),
	}
	n := int(b[12])
	switch {
	case b[4] != helloVersion:
		return h, true, protocolError("private data of version %d; this side speaks %d", b[4], helloVersion)
	case n > len(b)-helloLen:
		return h, true, protocolError("private data says %d bytes and has %d", n, len(b)-helloLen)
	case h.size == 0 || h.credits == 0:
		return h, true, protocolError("the peer takes no messages: size %d, credits %d", h.size, h.credits)
	}
	h.user = b[helloLen : helloLen+n]
	return h, true, nil
}

// kind says what a SEND is. It is in the immediate data: 4 bits of kind, 12
// reserved, 16 bits of credits that the message gives back.
type kind uint8

const (
	kindMessage kind = iota // one message
	kindPacked              // several small messages, each after its length (be16)
	kindCredit              // only credits
	kindRequest             // of the directory
	kindReply               // of the directory
	kindEnd                 // no more messages of a Stream follow
	kinds
)

func immOf(k kind, credits int) uint32 { return uint32(k)<<28 | uint32(credits) }

func parseImm(imm uint32) (k kind, credits int) { return kind(imm >> 28), int(imm & 0xffff) }

// packHeader is how many bytes come before each message of a packed SEND.
const packHeader = 2

// nextPacked returns the first of packed messages, and what follows.
func nextPacked(b []byte) (m, rest []byte, err error) {
	if len(b) < packHeader {
		return nil, nil, protocolError("%d bytes at the end of packed messages", len(b))
	}
	n := int(binary.BigEndian.Uint16(b))
	if b = b[packHeader:]; n > len(b) {
		return nil, nil, protocolError("a packed message of %d bytes, of which %d are there", n, len(b))
	}
	return b[:n], b[n:], nil
}

// The directory: a request asks for one region by its name, or for a part of
// the list of them.
//
//	request: 0 op   1 0   2-3 tag   4.. name
//	reply:   0 op   1 status   2-3 tag   4-5 entries   6 more   8.. entries
//	entry:   0-7 wire address   8-15 size   16-19 rkey   20 rights
//	         21 length of the name   24.. name
type dirOp uint8

const (
	dirLookup dirOp = 1 // the region of that name
	dirList   dirOp = 2 // the regions after that name, in order
)

type dirStatus uint8

const (
	dirOK      dirStatus = 0
	dirUnknown dirStatus = 1 // there is no region of that name
	dirRefused dirStatus = 2 // this client may not have it
	dirBad     dirStatus = 3 // the request is not understood
)

// Rights of an entry.
const (
	rightRead uint8 = 1 << iota
	rightWrite
	rightAtomic
	rightPersist
)

const (
	dirRequestHeader = 4
	dirReplyHeader   = 8
	dirEntryHeader   = 24
	maxName          = 255

	// dirReplyMax bounds a reply, so that it fits into a message of every
	// peer with a message size of so much.
	dirReplyMax = 4096
	// minMessage is the least that a side may choose to take. One entry of
	// the directory needs 287 bytes.
	minMessage = 512
)

type dirRequest struct {
	op   dirOp
	tag  uint16
	name string
}

func (r *dirRequest) encode() []byte {
	b := []byte{byte(r.op), 0}
	b = binary.BigEndian.AppendUint16(b, r.tag)
	return append(b, r.name...)
}

func parseDirRequest(b []byte) (r dirRequest, err error) {
	if len(b) < dirRequestHeader || len(b) > dirRequestHeader+maxName {
		return r, protocolError("a request to the directory of %d bytes", len(b))
	}
	return dirRequest{dirOp(b[0]), binary.BigEndian.Uint16(b[2:]), string(b[dirRequestHeader:])}, nil
}

type dirEntry struct {
	addr, size uint64
	rkey       uint32
	rights     uint8
	name       string
}

func (e *dirEntry) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, e.addr)
	b = binary.BigEndian.AppendUint64(b, e.size)
	b = binary.BigEndian.AppendUint32(b, e.rkey)
	b = append(b, e.rights, uint8(len(e.name)), 0, 0)
	return append(b, e.name...)
}

type dirReply struct {
	op      dirOp
	status  dirStatus
	tag     uint16
	more    bool // the list goes on after the last entry
	entries []dirEntry
}

// encode writes the reply, with as many entries as room says.
func (r *dirReply) encode(room int) []byte {
	b := []byte{byte(r.op), byte(r.status)}
	b = binary.BigEndian.AppendUint16(b, r.tag)
	b = append(b, 0, 0, 0, 0)
	n := 0
	for i := range r.entries {
		if len(b)+dirEntryHeader+len(r.entries[i].name) > room {
			r.more = true
			break
		}
		b = r.entries[i].appendTo(b)
		n++
	}
	binary.BigEndian.PutUint16(b[4:], uint16(n))
	if r.more {
		b[6] = 1
	}
	return b
}

var errShortReply = errors.New("it ends in the middle of an entry")

func parseDirReply(b []byte) (r dirReply, err error) {
	if len(b) < dirReplyHeader {
		return r, protocolError("a reply of the directory of %d bytes", len(b))
	}
	r = dirReply{op: dirOp(b[0]), status: dirStatus(b[1]), tag: binary.BigEndian.Uint16(b[2:]), more: b[6] != 0}
	n := int(binary.BigEndian.Uint16(b[4:]))
	b = b[dirReplyHeader:]
	for range n {
		if len(b) < dirEntryHeader || len(b) < dirEntryHeader+int(b[21]) {
			return r, protocolError("a reply of the directory: %w", errShortReply)
		}
		end := dirEntryHeader + int(b[21])
		e := dirEntry{
			addr: binary.BigEndian.Uint64(b), size: binary.BigEndian.Uint64(b[8:]),
			rkey: binary.BigEndian.Uint32(b[16:]), rights: b[20],
			name: string(b[dirEntryHeader:end]),
		}
		if err := e.check(); err != nil {
			return r, err
		}
		r.entries = append(r.entries, e)
		b = b[end:]
	}
	return r, nil
}

// check finds what no memory can be, and names that a program could not show.
func (e *dirEntry) check() error {
	if e.size > math.MaxInt64 || e.addr > math.MaxUint64-e.size {
		return protocolError("a region of %d bytes at %#x", e.size, e.addr)
	}
	if err := checkName(e.name); err != nil {
		return protocolError("a reply of the directory: %w", err)
	}
	return nil
}

func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrProtocol, fmt.Errorf(format, args...))
}
