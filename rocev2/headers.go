package rocev2

import "encoding/binary"

// Sizes of the headers in bytes.
const (
	BTHLen          = 12
	XRCETHLen       = 4
	DETHLen         = 8
	FETHLen         = 4
	RETHLen         = 16
	AtomicETHLen    = 28
	AETHLen         = 4
	AtomicAckETHLen = 8
	ImmDtLen        = 4
	IETHLen         = 4
	CNPLen          = 16
)

var be = binary.BigEndian

// BTH is the base transport header (IBTA 9.2): 12 bytes.
//
//	0: opcode
//	1: solicited event (bit 7), MigReq (6), pad count (5-4), version (3-0)
//	2-3: partition key
//	4: FECN (bit 7), BECN (6), reserved (5-0)
//	5-7: destination QPN
//	8: ACK request (bit 7), reserved (6-0)
//	9-11: PSN
type BTH struct {
	Opcode    Opcode
	Solicited bool
	MigReq    bool
	PadCount  uint8 // zero bytes between payload and ICRC, 0 to 3
	Version   uint8 // of the transport header: 0
	PKey      uint16
	FECN      bool  // this packet met congestion
	BECN      bool  // packets the other way met congestion
	Reserved6 uint8 // byte 4, bits 5-0: 0 when sent, ignored, not covered by the ICRC
	DestQPN   QPN
	AckReq    bool
	Reserved7 uint8 // byte 8, bits 6-0: 0 when sent, ignored
	PSN       PSN
}

func flag(set bool, bit uint8) uint8 {
	if set {
		return bit
	}
	return 0
}

// AppendTo appends the encoded header to b.
func (h *BTH) AppendTo(b []byte) []byte {
	// In whole words: to read at once what was written byte by byte stalls.
	second := flag(h.Solicited, 0x80) | flag(h.MigReq, 0x40) | h.PadCount&3<<4 | h.Version&15
	b = be.AppendUint32(b, uint32(h.Opcode)<<24|uint32(second)<<16|uint32(h.PKey))
	b = be.AppendUint32(b, uint32(flag(h.FECN, 0x80)|flag(h.BECN, 0x40)|h.Reserved6&0x3f)<<24|uint32(h.DestQPN)&0xffffff)
	return be.AppendUint32(b, uint32(flag(h.AckReq, 0x80)|h.Reserved7&0x7f)<<24|uint32(h.PSN)&0xffffff)
}

func (h *BTH) parse(b []byte) {
	_ = b[BTHLen-1]
	h.Opcode = Opcode(b[0])
	h.Solicited = b[1]&0x80 != 0
	h.MigReq = b[1]&0x40 != 0
	h.PadCount = b[1] >> 4 & 3
	h.Version = b[1] & 15
	h.PKey = be.Uint16(b[2:])
	w := be.Uint32(b[4:])
	h.FECN = w>>31 != 0
	h.BECN = w>>30&1 != 0
	h.Reserved6 = uint8(w >> 24 & 0x3f)
	h.DestQPN = QPN(w) & QPNMask
	w = be.Uint32(b[8:])
	h.AckReq = w>>31 != 0
	h.Reserved7 = uint8(w >> 24 & 0x7f)
	h.PSN = PSN(w) & PSNMask
}

// XRCETH is the XRC extended transport header (IBTA A14): 4 bytes.
//
//	0: reserved   1-3: number of the shared receive queue
type XRCETH struct {
	Reserved uint8
	SRQN     uint32 // 24 bits
}

// AppendTo appends the encoded header to b.
func (h *XRCETH) AppendTo(b []byte) []byte {
	return be.AppendUint32(b, uint32(h.Reserved)<<24|h.SRQN&0xffffff)
}

func (h *XRCETH) parse(b []byte) {
	w := be.Uint32(b)
	h.Reserved, h.SRQN = uint8(w>>24), w&0xffffff
}

// DETH is the datagram extended transport header (IBTA 9.3.2): 8 bytes.
//
//	0-3: queue key   4: reserved   5-7: source QPN
type DETH struct {
	QKey     uint32
	Reserved uint8
	SrcQPN   QPN
}

// AppendTo appends the encoded header to b.
func (h *DETH) AppendTo(b []byte) []byte {
	b = be.AppendUint32(b, h.QKey)
	return be.AppendUint32(b, uint32(h.Reserved)<<24|uint32(h.SrcQPN&QPNMask))
}

func (h *DETH) parse(b []byte) {
	w := be.Uint64(b)
	h.QKey, h.Reserved, h.SrcQPN = uint32(w>>32), uint8(w>>24), QPN(w)&QPNMask
}

// FlushType is the placement that a FLUSH asks for: a set of bits.
type FlushType uint8

// The placements (IBTA A19).
const (
	FlushGlobal     FlushType = 1 // visible to everything in the responder's system
	FlushPersistent FlushType = 2 // survives the loss of power
)

// Valid reports whether the type asks for something, and for nothing unknown.
func (t FlushType) Valid() bool { return t != 0 && t&^(FlushGlobal|FlushPersistent) == 0 }

// FlushLevel is what a FLUSH applies to.
type FlushLevel uint8

// The selectivity levels (IBTA A19); 2 and 3 are reserved.
const (
	FlushRange  FlushLevel = 0 // the bytes that the RETH names
	FlushRegion FlushLevel = 1 // the whole memory region
)

// Valid reports whether the level is not a reserved one.
func (l FlushLevel) Valid() bool { return l <= FlushRegion }

// FETH is the flush extended transport header (IBTA A19): 4 bytes.
//
//	bits 31-6: reserved   5-4: selectivity level   3-0: placement type
type FETH struct {
	Type     FlushType
	Level    FlushLevel
	Reserved uint32 // 26 bits
}

// AppendTo appends the encoded header to b.
func (h *FETH) AppendTo(b []byte) []byte {
	return be.AppendUint32(b, h.Reserved<<6|uint32(h.Level&3)<<4|uint32(h.Type&15))
}

func (h *FETH) parse(b []byte) {
	w := be.Uint32(b)
	h.Reserved, h.Level, h.Type = w>>6, FlushLevel(w>>4&3), FlushType(w&15)
}

// RETH is the RDMA extended transport header (IBTA 9.3.3): 16 bytes.
//
//	0-7: virtual address   8-11: remote key   12-15: length of the message
type RETH struct {
	VA     uint64
	RKey   uint32
	Length uint32
}

// AppendTo appends the encoded header to b.
func (h *RETH) AppendTo(b []byte) []byte {
	b = be.AppendUint64(b, h.VA)
	return be.AppendUint64(b, uint64(h.RKey)<<32|uint64(h.Length))
}

func (h *RETH) parse(b []byte) {
	_ = b[RETHLen-1]
	h.VA, h.RKey, h.Length = be.Uint64(b), be.Uint32(b[8:]), be.Uint32(b[12:])
}

// AtomicETH is the atomic extended transport header (IBTA 9.3.4): 28 bytes.
//
//	0-7: virtual address      8-11: remote key
//	12-19: swap or add data   20-27: compare data
type AtomicETH struct {
	VA      uint64
	RKey    uint32
	SwapAdd uint64
	Compare uint64 // unspecified for FETCH_ADD
}

// AppendTo appends the encoded header to b.
func (h *AtomicETH) AppendTo(b []byte) []byte {
	b = be.AppendUint64(b, h.VA)
	b = be.AppendUint32(b, h.RKey)
	b = be.AppendUint64(b, h.SwapAdd)
	return be.AppendUint64(b, h.Compare)
}

func (h *AtomicETH) parse(b []byte) {
	_ = b[AtomicETHLen-1]
	h.VA, h.RKey, h.SwapAdd, h.Compare = be.Uint64(b), be.Uint32(b[8:]), be.Uint64(b[12:]), be.Uint64(b[20:])
}

// AETH is the ACK extended transport header (IBTA 9.3.5): 4 bytes.
//
//	0: syndrome   1-3: MSN
type AETH struct {
	Syndrome Syndrome
	MSN      PSN // messages that the responder has completed, modulo 2^24
}

// AppendTo appends the encoded header to b.
func (h *AETH) AppendTo(b []byte) []byte {
	return be.AppendUint32(b, uint32(h.Syndrome)<<24|uint32(h.MSN&PSNMask))
}

func (h *AETH) parse(b []byte) {
	w := be.Uint32(b)
	h.Syndrome, h.MSN = Syndrome(w>>24), PSN(w)&PSNMask
}

// AtomicAckETH is the atomic ACK extended transport header (IBTA 9.3.5.3): 8
// bytes.
type AtomicAckETH struct {
	Original uint64 // what the memory held before the operation
}

// AppendTo appends the encoded header to b.
func (h *AtomicAckETH) AppendTo(b []byte) []byte { return be.AppendUint64(b, h.Original) }

func (h *AtomicAckETH) parse(b []byte) { h.Original = be.Uint64(b) }

// IETH is the invalidate extended transport header (IBTA 9.3.7): 4 bytes.
type IETH struct {
	RKey uint32 // the key that the responder shall invalidate
}

// AppendTo appends the encoded header to b.
func (h *IETH) AppendTo(b []byte) []byte { return be.AppendUint32(b, h.RKey) }

func (h *IETH) parse(b []byte) { h.RKey = be.Uint32(b) }
