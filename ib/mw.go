package ib

import "strconv"

// MWType is the type of a memory window, with the numbers of ibv_mw_type.
type MWType uint8

// The types of windows (IBTA 10.6.7.2). Type 2 is 2B: a window is bound to a
// queue pair and its protection domain.
const (
	MWType1 MWType = 1 // every queue pair of the domain may use it; the device chooses its keys
	MWType2 MWType = 2 // for the queue pair that has bound it; the program chooses the low byte of its key
)

// String names the type.
func (t MWType) String() string {
	switch t {
	case MWType1:
		return "type 1"
	case MWType2:
		return "type 2B"
	}
	return "type " + strconv.Itoa(int(t))
}

// BindMW is what OpBindMW does: it lets a memory window stand for a part of a
// region (IBTA 10.6.7.2). A window of type 1 that is bound to 0 bytes stands
// for nothing any more.
type BindMW struct {
	Window Key    // the current rkey of the window
	NewKey Key    // the rkey from now on, with a low byte of the program's choice; of type 1: or 0, and the device chooses
	Region Key    // lkey of the region
	Addr   uint64 // wire address in the region
	Length uint64 // bytes
	Access Access // what the window grants; ZeroBased: the addresses of the window begin at 0
}

// RegMR is what OpRegMR does: it makes the memory that was mapped to a fast
// registration region valid (IBTA 10.6.3.3 and 11.4.1.1).
type RegMR struct {
	Region Key    // the current key of the region
	NewKey Key    // its keys from now on, with a low byte of the program's choice
	Addr   uint64 // wire address of the first byte
	Access Access
}
