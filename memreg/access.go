package memreg

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// Access is a set of access rights, with the bits of ibv_access_flags. Reading
// by the local adapter is always allowed and has no bit.
type Access uint32

// Access rights of a region (IBTA 10.6.3).
const (
	LocalWrite      Access = 1 << 0  // the adapter may write
	RemoteWrite     Access = 1 << 1  // the peer may WRITE; needs LocalWrite
	RemoteRead      Access = 1 << 2  // the peer may READ
	RemoteAtomic    Access = 1 << 3  // the peer may do atomics; needs LocalWrite
	MWBind          Access = 1 << 4  // accepted; there are no memory windows
	ZeroBased       Access = 1 << 5  // the same as Options.Base = BaseZero
	FlushGlobal     Access = 1 << 8  // accepted; there is no FLUSH
	FlushPersistent Access = 1 << 9  // accepted; there is no FLUSH
	RelaxedOrdering Access = 1 << 20 // a hint without effect here
)

// accessOptional are the bits that a provider ignores when it does not know
// them (IBV_ACCESS_OPTIONAL_RANGE).
const accessOptional Access = 0x3ff00000

const accessKnown = LocalWrite | RemoteWrite | RemoteRead | RemoteAtomic | MWBind |
	ZeroBased | FlushGlobal | FlushPersistent | accessOptional

var accessNames = []struct {
	bit  Access
	name string
}{
	{LocalWrite, "LocalWrite"},
	{RemoteWrite, "RemoteWrite"},
	{RemoteRead, "RemoteRead"},
	{RemoteAtomic, "RemoteAtomic"},
	{MWBind, "MWBind"},
	{ZeroBased, "ZeroBased"},
	{FlushGlobal, "FlushGlobal"},
	{FlushPersistent, "FlushPersistent"},
	{RelaxedOrdering, "RelaxedOrdering"},
}

// String lists the rights, as in "LocalWrite|RemoteRead"; no right is
// "LocalRead", which every region has.
func (a Access) String() string {
	if a == 0 {
		return "LocalRead"
	}
	var parts []string
	for _, n := range accessNames {
		if a&n.bit != 0 {
			parts = append(parts, n.name)
			a &^= n.bit
		}
	}
	if a != 0 {
		parts = append(parts, fmt.Sprintf("%#x", uint32(a)))
	}
	return strings.Join(parts, "|")
}

// Key is an lkey or an rkey. 0 is never a valid key.
type Key uint32

// String prints the key as 0x and eight hexadecimal digits.
func (k Key) String() string { return fmt.Sprintf("0x%08x", uint32(k)) }

// SGE is one entry of a scatter/gather list: Length bytes at Addr of the
// region that LKey names. An entry of length 0 stands for nothing.
type SGE struct {
	Addr   uint64 // wire address, see Region.Addr
	Length uint32 // bytes
	LKey   Key
}

// ErrRange is wrapped by what SGE.Err returns.
var ErrRange = errors.New("range outside of the memory region")

// rangeErrors say why Slice cannot make an entry.
var rangeErrors = [...]error{
	badOffset: fmt.Errorf("%w: its offset is negative", ErrRange),
	badLength: fmt.Errorf("%w: its length is negative", ErrRange),
	badEnd:    fmt.Errorf("%w: it ends behind the region", ErrRange),
	badSize:   fmt.Errorf("%w: one entry has at most 4 GiB - 1 bytes, use several", ErrRange),
}

const (
	badOffset = iota + 1
	badLength
	badEnd
	badSize
)

// invalidSGE is an entry that stands for no memory, because of rangeErrors[why].
// No region has its key, and no message is as long as it is.
func invalidSGE(why uint64) SGE { return SGE{Addr: why, Length: math.MaxUint32} }

// Err says why Region.Slice could not make the entry; nil if it could.
func (s SGE) Err() error {
	if s.LKey == 0 && s.Length == math.MaxUint32 && s.Addr != 0 && s.Addr < uint64(len(rangeErrors)) {
		return rangeErrors[s.Addr]
	}
	return nil
}

// TotalLength returns the sum of the lengths of a scatter/gather list, in bytes.
func TotalLength(sg []SGE) uint64 {
	var n uint64
	for i := range sg {
		n += uint64(sg[i].Length)
	}
	return n
}

// Fault says which check of a memory access failed. The zero value None is
// success; use Err to hand a Fault on as an error.
type Fault uint8

// The faults, in the order in which the checks are made.
const (
	None        Fault = iota
	UnknownKey        // no live region has this key
	WrongPD           // the region belongs to another protection domain
	NoAccess          // the region does not grant the access
	OutOfBounds       // address and length are not inside the region (or the list)
	Misaligned        // a 64-bit atomic whose address is not a multiple of 8
	Gone              // the region was deregistered while it was in use
	MemoryFault       // the memory behind the region could not be accessed
	NotPresent        // a page must be fetched first, see PagedMemory
)

var faultNames = [...]string{
	None:        "none",
	UnknownKey:  "unknown key",
	WrongPD:     "wrong protection domain",
	NoAccess:    "access not granted",
	OutOfBounds: "out of bounds",
	Misaligned:  "misaligned",
	Gone:        "region deregistered",
	MemoryFault: "memory fault",
	NotPresent:  "page not present",
}

// String names the fault in a few words.
func (f Fault) String() string {
	if int(f) < len(faultNames) {
		return faultNames[f]
	}
	return fmt.Sprintf("fault %d", uint8(f))
}

// Error is the fault as an error text.
func (f Fault) Error() string { return "memreg: " + f.String() }

// Err returns f as an error: nil for None.
func (f Fault) Err() error {
	if f == None {
		return nil
	}
	return f
}

// faultOf turns what a Memory returned into a Fault: a Fault stays what it is,
// any other error is a MemoryFault. So is NotPresent, which is Present's to say.
func faultOf(err error) Fault {
	if err == nil {
		return None
	}
	if f, ok := err.(Fault); ok && f != None && f != NotPresent {
		return f // without what errors.As allocates
	}
	var f Fault
	if errors.As(err, &f) && f != None && f != NotPresent {
		return f
	}
	return MemoryFault
}
