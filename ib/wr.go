package ib

import (
	"errors"
	"fmt"
	"math"

	"github.com/gosoftroce/rocev2/rocev2"
)

// RemoteAddr is a place in memory of the peer. RemoteMemory.At of package verbs
// makes them.
type RemoteAddr struct {
	Addr uint64 // wire address, as the peer gave it
	RKey Key    // of the peer's region
}

// OutsideRemote stands for a place outside of the memory that an address was
// asked for. PostSend refuses it with ErrRemote. No region reaches so far up.
var OutsideRemote = RemoteAddr{Addr: math.MaxUint64}

// SendWR is a request for the send queue, see QP.PostSend of package verbs.
// Opcode must be set; which of the other fields count depends on it.
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
	RemoteQPN rocev2.QPN

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
	FlushType rocev2.FlushType

	// FlushLevel is FlushRange or FlushRegion.
	FlushLevel rocev2.FlushLevel

	// Bind is what OpBindMW does.
	Bind *BindMW

	// Reg is what OpRegMR does.
	Reg *RegMR
}

// RecvWR is a request for the receive queue, see QP.PostRecv of package verbs.
type RecvWR struct {
	// ID is the program's own. It comes back in WC.ID.
	ID uint64

	// SGList is where the message goes, together at most 2^32-1 bytes.
	// PostRecv copies the list. The memory belongs to the device until the
	// completion.
	SGList []SGE
}

// Key is an lkey, for the own requests, or an rkey, for those of a peer: 32
// bits that name a region. 0 is none.
type Key uint32

// String prints the key as 0x and eight hexadecimal digits.
func (k Key) String() string { return fmt.Sprintf("0x%08x", uint32(k)) }

// SGE is one entry of a scatter/gather list: Length bytes at Addr of the region
// that LKey names. MR.Slice and MR.All of package verbs make them. An entry of
// length 0 stands for nothing.
type SGE struct {
	Addr   uint64 // wire address: that of the region plus an offset in bytes
	Length uint32 // bytes
	LKey   Key    // of the region
}

// ErrRange is wrapped by what SGE.Err returns.
var ErrRange = errors.New("range outside of the memory region")

// rangeErrors are what SGE.Err returns for the reasons of InvalidSGE.
var rangeErrors = [...]error{
	BadOffset: fmt.Errorf("%w: its offset is negative", ErrRange),
	BadLength: fmt.Errorf("%w: its length is negative", ErrRange),
	BadEnd:    fmt.Errorf("%w: it ends beyond the region", ErrRange),
	BadSize:   fmt.Errorf("%w: one entry has at most 4 GiB - 1 bytes, use several", ErrRange),
}

// Why an entry stands for no memory, see InvalidSGE.
const (
	BadOffset = iota + 1 // its offset is negative
	BadLength            // its length is negative
	BadEnd               // it ends beyond the region
	BadSize              // it has more than the 4 GiB - 1 bytes of one entry
)

// InvalidSGE returns an entry that stands for no memory, because of BadOffset,
// BadLength, BadEnd or BadSize. No region has its key, and no message is as
// long as it is.
func InvalidSGE(why uint64) SGE { return SGE{Addr: why, Length: math.MaxUint32} }

// Err says why MR.Slice could not make the entry; it wraps ErrRange. It is nil
// for all other entries.
func (s SGE) Err() error {
	if s.LKey == 0 && s.Length == math.MaxUint32 && s.Addr != 0 && s.Addr < uint64(len(rangeErrors)) {
		return rangeErrors[s.Addr]
	}
	return nil
}

// TotalLength returns the sum of the lengths of a scatter/gather list, in
// bytes.
func TotalLength(sg []SGE) uint64 {
	var n uint64
	for i := range sg {
		n += uint64(sg[i].Length)
	}
	return n
}

// BadSGE says which entry of a list stands for no memory, and why; nil if none
// does.
func BadSGE(sg []SGE) error {
	for i := range sg {
		if err := sg[i].Err(); err != nil {
			return fmt.Errorf("scatter/gather entry %d: %w", i, err)
		}
	}
	return nil
}
