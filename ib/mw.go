package ib

import "strconv"

// MWType is the type of a memory window, with the numbers of ibv_mw_type.
type MWType uint8

// Types of memory windows (IBTA 10.6.7.2).
const (
	// MWType1: every queue pair of the domain may use the window. The
	// device gives it another key with each bind. A bind to 0 bytes takes
	// away what it stood for.
	MWType1 MWType = 1
	// MWType2: the window is for the queue pair that has bound it (and its
	// domain: type 2B). The program chooses the low byte of its key. It is
	// invalidated, by OpLocalInv or the peer's OpSendInv, before it is
	// bound again.
	MWType2 MWType = 2
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
// region (IBTA 10.6.7.2). Of length 0 it takes what the window stood for away.
type BindMW struct {
	Window Key    // the current rkey of the window
	NewKey Key    // type 2: the rkey from now on, with a low byte of the program's choice
	Region Key    // lkey of the region
	Addr   uint64 // wire address in the region
	Length uint64 // bytes
	Access Access // what the window grants; ZeroBased: its addresses begin at 0
}

// RegMR is what OpRegMR does: it makes the memory that was mapped to a fast
// registration region valid (IBTA 11.4.1.1).
type RegMR struct {
	Region Key    // the current key of the region
	NewKey Key    // its keys from now on, with a low byte of the program's choice
	Addr   uint64 // wire address of the first byte
	Access Access // of both keys
}
