package rsocket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Sizes of the protocol, in bytes.
const (
	BlockLen = 40 // the connection block
	SlotLen  = 16 // a slot for a target
)

// Version is that of the protocol, the only one there is.
const Version = 1

// Slots is how many slots for targets a side has.
const Slots = 2

// SlotsLen is the length of all slots, in bytes.
const SlotsLen = Slots * SlotLen

// ErrBlock is wrapped by the errors of [ParseBlock].
var ErrBlock = errors.New("rsockets connection block")

// Memory is a piece of memory that the other side may write to.
type Memory struct {
	Addr   uint64
	Key    uint32
	Length uint32 // bytes
}

// wraps reports whether the memory reaches beyond the address space.
func (m Memory) wraps() bool { return m.Length > 0 && m.Addr > math.MaxUint64-uint64(m.Length-1) }

// Features are abilities that this software tells of in a byte that rsockets
// has reserved, sends as 0 and does not look at.
type Features uint8

// FeatureDrains: the side still reads what has come when the other side says
// that it is gone. Rsockets of librdmacm throws that away.
const FeatureDrains Features = 1

// Block is what the two sides tell each other in the private data of REQ and
// REP.
//
//	0: version   1: flags   2-3: credits   4: features   5-6: reserved
//	7: I/O map size   8-23: slots   24-39: ring
//
// Address, key and length are in network byte order.
type Block struct {
	BigEndian bool     // byte order in which the side reads its slots
	IOMap     bool     // it knows the messages of riomap
	Features  Features // of this software
	IOMapSize uint8    // code of how many regions it lets the peer map; 0: none
	Credits   uint16   // DATA messages that it can take
	Slots     Memory   // Length is in slots, and not in bytes
	Ring      Memory   // the part of the ring that may be written to at first
}

const (
	flagBigEndian = 1 << iota
	flagIOMap
)

// AppendTo appends the 40 bytes of the block.
func (b *Block) AppendTo(p []byte) []byte {
	var flags byte
	if b.BigEndian {
		flags |= flagBigEndian
	}
	if b.IOMap {
		flags |= flagIOMap
	}
	p = append(p, Version, flags)
	p = binary.BigEndian.AppendUint16(p, b.Credits)
	p = append(p, byte(b.Features), 0, 0, b.IOMapSize)
	for _, m := range [...]Memory{b.Slots, b.Ring} {
		p = appendMemory(p, binary.BigEndian, m)
	}
	return p
}

func appendMemory(p []byte, order binary.AppendByteOrder, m Memory) []byte {
	p = order.AppendUint64(p, m.Addr)
	p = order.AppendUint32(p, m.Key)
	return order.AppendUint32(p, m.Length)
}

func parseMemory(p []byte, order binary.ByteOrder) Memory {
	return Memory{Addr: order.Uint64(p), Key: order.Uint32(p[8:]), Length: order.Uint32(p[12:])}
}

// ParseBlock reads the block at the beginning of private data. What follows it
// is ignored: the connection manager pads private data. The error wraps
// [ErrBlock], and says what is wrong: the peer speaks another protocol, or
// something that no side can work with.
func ParseBlock(p []byte) (Block, error) {
	if len(p) < BlockLen {
		return Block{}, fmt.Errorf("%w: %d bytes of private data, it has %d", ErrBlock, len(p), BlockLen)
	}
	if p[0] != Version {
		return Block{}, fmt.Errorf("%w: version %d, there is only version %d: the peer speaks another protocol than rsockets", ErrBlock, p[0], Version)
	}
	b := Block{
		BigEndian: p[1]&flagBigEndian != 0,
		IOMap:     p[1]&flagIOMap != 0,
		Credits:   binary.BigEndian.Uint16(p[2:]),
		Features:  Features(p[4]),
		IOMapSize: p[7],
		Slots:     parseMemory(p[8:], binary.BigEndian),
		Ring:      parseMemory(p[24:], binary.BigEndian),
	}
	return b, b.check()
}

func (b *Block) check() error {
	slots := b.Slots
	switch {
	case b.Credits == 0:
		return fmt.Errorf("%w: the peer takes no message (0 credits)", ErrBlock)
	case slots.Length < Slots || slots.Length > maxPeerSlots:
		return fmt.Errorf("%w: the peer has %d slots for targets, %d to %d are possible", ErrBlock, slots.Length, Slots, maxPeerSlots)
	}
	slots.Length *= SlotLen
	if slots.wraps() || b.Ring.wraps() {
		return fmt.Errorf("%w: memory of the peer reaches beyond the address space", ErrBlock)
	}
	return nil
}

// maxPeerSlots is how many slots of a peer are used at most. Rsockets has 2.
const maxPeerSlots = 1 << 16
