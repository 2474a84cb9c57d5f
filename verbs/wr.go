package verbs

import "github.com/gosoftroce/rocev2/ib"

// Opcode is the operation of a send request. The constants below are the
// operations; the zero value is none, so that a forgotten Opcode is refused.
// String returns the name of ibv_wr_opcode without its prefix, such as
// "RDMA_WRITE".
type Opcode = ib.Opcode

// Operations of [SendWR.Opcode] (IBTA 9.4).
const (
	// OpSend sends a message, which goes into the next receive of the peer.
	OpSend Opcode = ib.OpSend
	// OpSendImm is OpSend with 32 bits of immediate data: WC.Imm at the
	// peer.
	OpSendImm Opcode = ib.OpSendImm
	// OpSendInv is OpSend, and the peer's key InvalidateKey ends: see
	// Invalidatable.
	OpSendInv Opcode = ib.OpSendInv
	// OpWrite writes into memory of the peer. The peer gets no completion.
	OpWrite Opcode = ib.OpWrite
	// OpWriteImm is OpWrite with 32 bits of immediate data. It takes a
	// receive of the peer, whose completion has WC.Imm.
	OpWriteImm Opcode = ib.OpWriteImm
	// OpRead reads from memory of the peer into SGList.
	OpRead Opcode = ib.OpRead
	// OpCompareSwap sets 8 aligned bytes of the peer to Swap if they equal
	// CompareAdd. What they were before goes to SGList.
	OpCompareSwap Opcode = ib.OpCompareSwap
	// OpFetchAdd adds CompareAdd to 8 aligned bytes of the peer. What they
	// were before goes to SGList.
	OpFetchAdd Opcode = ib.OpFetchAdd
	// OpReadInv is OpRead, and when the data is there the key of this side
	// that is InvalidateKey ends. An OpRegMR or OpBindMW after it that
	// gives the key a new meaning needs Fence.
	OpReadInv Opcode = ib.OpReadInv
	// OpLocalInv ends a key of this side: that of a memory window of type
	// 2, of a FastMR, or of a region that is Invalidatable. It is carried
	// out when all requests before it have completed, and requests after it
	// wait.
	OpLocalInv Opcode = ib.OpLocalInv
	// OpBindMW binds a memory window: see MW.BindTo. It is carried out when
	// all requests before it are under way, or with Fence when the READs
	// and atomics among them have completed. Requests after it wait.
	OpBindMW Opcode = ib.OpBindMW
	// OpRegMR makes a FastMR valid: see FastMR.Register. Its order is that
	// of OpBindMW.
	OpRegMR Opcode = ib.OpRegMR
	// OpFlush completes when what this queue pair has written to memory of
	// the peer before is visible to all there, or on stable storage:
	// FlushType says which, FlushLevel and Length say of which bytes. The
	// peer's region needs the right FlushGlobal or FlushPersistent.
	//
	// It takes the place of a READ among those that may be outstanding.
	// Requests that this queue pair posts after it, except READs, are
	// executed when it is done: so a later OpAtomicWrite may point to what
	// it has made persistent.
	OpFlush Opcode = ib.OpFlush
	// OpAtomicWrite writes 8 aligned bytes of the peer at once: no reader
	// sees a part of them. The bytes are Inline, or what SGList names, and
	// are written as they lie in memory. It needs RemoteWrite, and takes
	// the place of a READ among those that may be outstanding.
	OpAtomicWrite Opcode = ib.OpAtomicWrite
)

// SGE is one entry of a scatter/gather list: Length bytes at Addr of the region
// that LKey names. [MR.Slice] and [MR.All] make them. An entry of length 0
// stands for nothing.
type SGE struct {
	Addr   uint64 // wire address: MR.Addr plus an offset in bytes
	Length uint32 // bytes
	LKey   Key    // of the region
}

// Err says why [MR.Slice] could not make the entry; it wraps ErrRange. It is
// nil for all other entries.
func (s SGE) Err() error { return ib.SGE(s).Err() }

// RemoteAddr is a place in memory of the peer. [RemoteMemory.At] makes them.
type RemoteAddr struct {
	Addr uint64 // wire address, as the peer gave it
	RKey Key    // of the peer's region
}

// SendWR is a request for the send queue, see [QP.PostSend]. Opcode must be
// set; which of the other fields count depends on it.
type SendWR struct {
	// ID is the program's own. It comes back in WC.ID.
	ID uint64

	// Opcode is the operation.
	Opcode Opcode

	// Signaled asks for a completion on success. Requests that fail always
	// complete, and with QPConfig.SignalAll all do. A completion also frees
	// the entries of the unsignaled requests before it, so signal at least
	// one request in QPConfig.MaxSendWR.
	Signaled bool

	// Solicited makes the completion at the peer raise a notification that
	// was armed for solicited events only, see CQ.Arm. It counts for
	// operations that take a receive, and is ignored for others.
	Solicited bool

	// Fence delays the request until all earlier READs, atomics, ATOMIC
	// WRITEs and FLUSHes of the queue pair have completed.
	Fence bool

	// SGList is the local memory: where the data of SEND and WRITE comes
	// from, and where that of READ and atomics goes. PostSend copies the
	// list. The memory belongs to the device until the completion.
	SGList []SGE

	// Inline, if not nil, is the data itself instead of SGList, at most
	// QPConfig.MaxInline bytes, for SEND and WRITE only. The 8 bytes of
	// OpAtomicWrite always have room. PostSend copies it.
	Inline []byte

	// Imm is the immediate data of OpSendImm and OpWriteImm. On the wire
	// its most significant byte comes first.
	Imm uint32

	// InvalidateKey is the key of the peer that OpSendInv ends, or the key
	// of this side that OpLocalInv or OpReadInv ends.
	InvalidateKey Key

	// Remote is the memory of the peer, for WRITE, READ, atomics,
	// OpAtomicWrite and OpFlush.
	Remote RemoteAddr

	// CompareAdd is what OpCompareSwap compares with, and what OpFetchAdd
	// adds.
	CompareAdd uint64

	// Swap is what OpCompareSwap stores.
	Swap uint64

	// AH says where a datagram goes: UD only, as the next two.
	AH *AddressHandle

	// RemoteQPN is the queue pair that a datagram is for. For a group it is
	// MulticastQPN.
	RemoteQPN QPN

	// RemoteQKey is the Q_Key of that queue pair. With the highest bit set
	// it stands for the Q_Key of the sending queue pair (IBTA 10.2.5).
	RemoteQKey uint32

	// RemoteSRQN is the shared receive queue of the peer that a request of
	// XRC is for.
	RemoteSRQN uint32

	// Length is how many bytes from Remote on OpFlush of the level
	// FlushRange is about.
	Length uint32

	// FlushType is what OpFlush waits for: GlobalVisibility, Persistence,
	// or both.
	FlushType FlushType

	// FlushLevel is FlushRange or FlushRegion.
	FlushLevel FlushLevel

	// Bind is what OpBindMW does.
	Bind *BindMW

	// Reg is what OpRegMR does.
	Reg *RegMR
}

// RecvWR is a request for the receive queue, see [QP.PostRecv].
type RecvWR struct {
	// ID is the program's own. It comes back in WC.ID.
	ID uint64

	// SGList is where the message goes, together at most 2^32-1 bytes.
	// PostRecv copies the list. The memory belongs to the device until the
	// completion.
	SGList []SGE
}
