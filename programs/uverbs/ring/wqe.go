package ring

import (
	"encoding/binary"
	"net/netip"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// A send request, struct rxe_send_wqe.
//
//	  0: ID (8)   12: opcode   16: flags   20: immediate data, or key
//	 24: what the operation needs
//	184: length   196: number of entries   208: entries, or the data itself
//
// From 24 on:
//
//	WRITE, READ  24: remote address (8)   32: rkey
//	atomics      24: remote address (8)   32, 40: values (8)   48: rkey
//	FLUSH        24: remote address (8)   36: rkey   40: type (1)   41: level (1)
//	BIND         24: address (8)   32: length (8)   40: lkey   44: rkey
//	             48: new rkey   52: rights
//	datagrams    24: QPN   28: Q_Key   36: number of the address handle
//	             56: its vector (88)
//
// A receive, struct rxe_recv_wqe, has its ID at 0 and the part from 184 on at
// 16.
const (
	sendDMA    = 184
	recvDMA    = 16
	dmaEntries = 12 // the number of them
	dmaList    = 24

	sgeSize = 16

	sendHeader = sendDMA + dmaList
	recvHeader = recvDMA + dmaList
)

// SendElem returns the bytes of a send request with that many entries, or that
// much data.
func SendElem(sge, inline int) int { return sendHeader + max(sge*sgeSize, inline) }

// RecvElem returns the bytes of a receive with that many entries.
func RecvElem(sge int) int { return recvHeader + sge*sgeSize }

// Flags of a send request, enum ibv_send_flags.
const (
	flagFence     = 1 << 0
	flagSignaled  = 1 << 1
	flagSolicited = 1 << 2
	flagInline    = 1 << 3
)

// vector of an address, struct rxe_av.
//
//	8: GID (16)   24: flow label   28: index of the own GID   29: hop limit
//	30: traffic class
const (
	avGID          = 8
	avFlowLabel    = 24
	avSGIDIndex    = 28
	avHopLimit     = 29
	avTrafficClass = 30
)

// Limits are what the requests of a queue may have.
type Limits struct {
	SGE      int  // entries
	Inline   int  // bytes
	Datagram bool // the requests say where they go
}

// Send is a send request that was taken from a ring.
type Send struct {
	// WR is the request, but for AH. Its slices and its Bind lie in Send
	// and in the element. Decode fills what it points to: the caller has
	// requests beside each other, and a copy of one takes longer than the
	// rest of Decode. It makes one where there is none.
	WR *ib.SendWR

	// AH is the number of the address handle of a datagram. 0 is none: then
	// Vector has what the element says, for the drivers before rdma-core 35
	// name no handle. Other requests leave both as they are.
	AH     uint32
	Vector ib.AddressVector

	list []ib.SGE
	bind ib.BindMW
}

// Decode reads an element, which is private and has the size that the limits
// need. A status other than StatusSuccess is what the request completes with
// instead; then of WR only ID and Signaled have a meaning.
func (s *Send) Decode(e []byte, l Limits) ib.Status {
	u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(e[at:]) }
	flags := u32(16)
	if s.WR == nil {
		s.WR = new(ib.SendWR)
	}
	*s.WR = ib.SendWR{ID: binary.NativeEndian.Uint64(e), Signaled: flags&flagSignaled != 0}
	op := ib.OpcodeOfIBV(u32(12))
	if !op.Known() || op == ib.OpRegMR || op == ib.OpReadInv { // the last are for the kernel only
		return ib.StatusLocQPOpErr
	}
	w := s.WR
	w.Opcode = op
	w.Solicited, w.Fence = flags&flagSolicited != 0, flags&flagFence != 0
	switch op {
	case ib.OpSendImm, ib.OpWriteImm:
		w.Imm = binary.BigEndian.Uint32(e[20:])
	case ib.OpSendInv, ib.OpLocalInv:
		w.InvalidateKey = ib.Key(u32(20))
	}
	switch {
	case l.Datagram:
		s.destination(e)
	case op == ib.OpBindMW:
		s.binding(e)
	case op.Is(ib.OpRemote):
		s.remote(e)
	}
	if op.Is(ib.OpLocal) || op == ib.OpFlush {
		return ib.StatusSuccess
	}
	return s.payload(e[sendDMA:], flags&flagInline != 0, l)
}

// remote reads which memory of the peer a request is about.
func (s *Send) remote(e []byte) {
	u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(e[at:]) }
	u64 := func(at int) uint64 { return binary.NativeEndian.Uint64(e[at:]) }
	w := s.WR
	w.Remote = ib.RemoteAddr{Addr: u64(24), RKey: ib.Key(u32(32))}
	switch {
	case w.Opcode.Is(ib.OpAtomic):
		w.Remote.RKey, w.CompareAdd, w.Swap = ib.Key(u32(48)), u64(32), u64(40)
	case w.Opcode == ib.OpFlush:
		w.Remote.RKey, w.Length = ib.Key(u32(36)), u32(sendDMA)
		w.FlushType, w.FlushLevel = rocev2.FlushType(e[40]), rocev2.FlushLevel(e[41])
	}
}

// windowRights are what a window may grant. Programs name rights of the region
// as well, which mean nothing there.
const windowRights = ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic | ib.ZeroBased | ib.FlushGlobal | ib.FlushPersistent

// binding reads what a memory window is bound to. Of the new key Soft-RoCE
// takes the low byte, and keeps the window's own bits above it.
func (s *Send) binding(e []byte) {
	u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(e[at:]) }
	u64 := func(at int) uint64 { return binary.NativeEndian.Uint64(e[at:]) }
	window := ib.Key(u32(44))
	s.bind = ib.BindMW{Addr: u64(24), Length: u64(32), Region: ib.Key(u32(40)), Window: window, NewKey: window&^0xff | ib.Key(u32(48)&0xff),
		Access: ib.Access(u32(52)) & windowRights}
	s.WR.Bind = &s.bind
}

// destination reads where a datagram goes.
func (s *Send) destination(e []byte) {
	u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(e[at:]) }
	s.WR.RemoteQPN, s.WR.RemoteQKey, s.AH = rocev2.QPN(u32(24)), u32(28), u32(36)
	if s.AH != 0 {
		return
	}
	av := e[56:]
	s.Vector = ib.AddressVector{
		DGID:         netip.AddrFrom16([16]byte(av[avGID:])).Unmap(),
		FlowLabel:    binary.NativeEndian.Uint32(av[avFlowLabel:]),
		SGIDIndex:    av[avSGIDIndex],
		HopLimit:     av[avHopLimit],
		TrafficClass: av[avTrafficClass],
	}
}

// payload reads where the data of a request is: in the list, or in the element
// itself. dma is the element from the length on.
//
// The length is looked at only where the data is in the element. With a list it
// is the sum of the entries, and the driver of rdma-core 44 to 63 gets that
// wrong. Its ibv_wr_set_inline_data does not set the flag for inline data; such
// a request has a length, and no list.
func (s *Send) payload(dma []byte, inline bool, l Limits) ib.Status {
	op := s.WR.Opcode
	length, n := binary.NativeEndian.Uint32(dma), binary.NativeEndian.Uint32(dma[dmaEntries:])
	if !inline && (n > 0 || length == 0 || !op.Is(ib.OpCarries)) {
		var status ib.Status
		s.list, status = list(s.list, dma, l.SGE)
		if op.Is(ib.OpAtomic) {
			clip(s.list, 8)
		}
		s.WR.SGList = s.list
		return status
	}
	switch {
	case !op.Is(ib.OpCarries):
		return ib.StatusLocQPOpErr
	case op == ib.OpAtomicWrite && length == 8 && len(dma) >= dmaList+8:
	case uint64(length) > uint64(l.Inline) || uint64(length) > uint64(len(dma)-dmaList):
		return ib.StatusLocLenErr
	}
	s.WR.Inline = dma[dmaList : dmaList+length : dmaList+length]
	return ib.StatusSuccess
}

// list reads the entries of dma, of which there may be most, into to[:0].
func list(to []ib.SGE, dma []byte, most int) ([]ib.SGE, ib.Status) {
	n := binary.NativeEndian.Uint32(dma[dmaEntries:])
	if uint64(n) > uint64(most) || uint64(n) > uint64(len(dma)-dmaList)/sgeSize {
		return to[:0], ib.StatusLocQPOpErr
	}
	to = to[:0]
	for e := dma[dmaList:]; n > 0; n, e = n-1, e[sgeSize:] {
		to = append(to, ib.SGE{Addr: binary.NativeEndian.Uint64(e), Length: binary.NativeEndian.Uint32(e[8:]), LKey: ib.Key(binary.NativeEndian.Uint32(e[12:]))})
	}
	return to, ib.StatusSuccess
}

// clip shortens a list to n bytes: an atomic returns 8, and the driver lets
// longer lists pass.
func clip(list []ib.SGE, n uint32) {
	for i := range list {
		list[i].Length = min(list[i].Length, n)
		n -= list[i].Length
	}
}

// DecodeRecv reads an element of a ring of receives, which is private, of at
// most sge entries. The list goes to to[:0].
func DecodeRecv(e []byte, sge int, to []ib.SGE) (id uint64, sgl []ib.SGE, status ib.Status) {
	sgl, status = list(to, e[recvDMA:], sge)
	return binary.NativeEndian.Uint64(e), sgl, status
}
