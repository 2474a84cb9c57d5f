package ib

import (
	"errors"
	"fmt"
	"math"

	"github.com/gosoftroce/rocev2/rocev2"
)

// RemoteAddr is memory of the peer.
type RemoteAddr struct {
	Addr uint64 // wire address, as the peer gave it
	RKey Key
}

// OutsideRemote stands for a place outside of the memory that an address was
// asked for. PostSend refuses it with ErrRemote. No region reaches so far up.
var OutsideRemote = RemoteAddr{Addr: math.MaxUint64}

// SendWR is a send request. PostSend copies what it needs: the struct and its
// slices may be reused after the call, the memory that SGList names only after
// the completion.
type SendWR struct {
	ID        uint64 // comes back in WC.ID
	Opcode    Opcode // must be set: 0 is no operation, ErrNoOpcode
	Signaled  bool   // complete to the send queue's sink also on success
	Solicited bool   // set the solicited event bit; only operations that consume a receive, ignored otherwise
	Fence     bool   // start only when all earlier READs, atomics, ATOMIC WRITEs and FLUSHes have completed
	SGList    []SGE  // where data comes from; for READ and atomics, where it goes
	// Inline is the data itself, copied by PostSend, instead of SGList if
	// it is not nil. SEND and WRITE only, at most qp.Config.MaxInline
	// bytes; and ATOMIC WRITE, whose 8 bytes always have room.
	Inline        []byte
	Imm           uint32     // OpSendImm, OpWriteImm: most significant byte first on the wire
	InvalidateKey Key        // OpSendInv: the peer's key; OpLocalInv, OpReadInv: a key of this side
	Remote        RemoteAddr // WRITE, READ, atomics, ATOMIC WRITE, FLUSH
	CompareAdd    uint64     // OpCompareSwap: the value compared with; OpFetchAdd: the value added
	Swap          uint64     // OpCompareSwap

	// Where a datagram goes. UD and GSI only.
	AH         *AddressHandle
	RemoteQPN  rocev2.QPN
	RemoteQKey uint32 // with the highest bit set it stands for the queue pair's own

	RemoteSRQN uint32 // XRC: the peer's shared receive queue

	Length     uint32            // OpFlush: bytes from Remote on; without a meaning for the whole region
	FlushType  rocev2.FlushType  // OpFlush: global visibility, persistence, or both
	FlushLevel rocev2.FlushLevel // OpFlush

	Bind *BindMW // OpBindMW
	Reg  *RegMR  // OpRegMR
}

// RecvWR is a receive request. PostRecv copies it.
type RecvWR struct {
	ID     uint64 // comes back in WC.ID
	SGList []SGE  // where the message goes, at most 2^32-1 bytes; the memory belongs to the queue pair until it completes
}

// Key is an lkey or an rkey. 0 is never a valid key.
type Key uint32

// String prints the key as 0x and eight hexadecimal digits.
func (k Key) String() string { return fmt.Sprintf("0x%08x", uint32(k)) }

// SGE is one entry of a scatter/gather list: Length bytes at Addr of the
// region that LKey names. An entry of length 0 stands for nothing.
type SGE struct {
	Addr   uint64 // wire address, see memreg.Region.Addr
	Length uint32 // bytes
	LKey   Key
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

// Err says why memreg.Region.Slice could not make the entry; nil if it could.
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
