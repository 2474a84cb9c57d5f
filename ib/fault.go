package ib

import "fmt"

// Fault says which check of a memory access failed. WC.Fault returns it for a
// request that failed. The zero value FaultNone is success. A Fault is an
// error, too: a WCError wraps it, and so do the errors of MR.Load64, MR.WriteAt
// and the like.
type Fault uint8

// Faults, in the order in which the checks are made.
const (
	// FaultNone: there is no fault.
	FaultNone Fault = iota
	// FaultUnknownKey: no open region has the key.
	FaultUnknownKey
	// FaultWrongPD: the region belongs to another protection domain.
	FaultWrongPD
	// FaultNoAccess: the region does not grant the access.
	FaultNoAccess
	// FaultOutOfBounds: address and length are not inside the region.
	FaultOutOfBounds
	// FaultMisaligned: the address of an atomic is not a multiple of 8.
	FaultMisaligned
	// FaultGone: the region was closed while it was in use.
	FaultGone
	// FaultMemory: the memory of the region cannot be reached, for example
	// because its file was truncated. See PD.MapFile.
	FaultMemory
	FaultNotPresent // a page must be fetched first, see memreg.PagedMemory
	// FaultNotInvalidatable: the key is of a region, or of a window of type
	// 1, which only its owner ends.
	FaultNotInvalidatable
	// FaultState: a window of type 2 is bound already, a fast registration
	// region is valid already or has no memory, or windows are bound to it.
	FaultState
)

var faultNames = [...]string{
	FaultNone:        "none",
	FaultUnknownKey:  "unknown key",
	FaultWrongPD:     "wrong protection domain",
	FaultNoAccess:    "access not granted",
	FaultOutOfBounds: "out of bounds",
	FaultMisaligned:  "misaligned",
	FaultGone:        "region deregistered",
	FaultMemory:      "memory fault",
	FaultNotPresent:  "page not present",

	FaultNotInvalidatable: "key cannot be invalidated",
	FaultState:            "window or region in the wrong state",
}

// String names the fault in a few words.
func (f Fault) String() string {
	if int(f) < len(faultNames) {
		return faultNames[f]
	}
	return fmt.Sprintf("fault %d", uint8(f))
}

// Error makes a fault an error, for errors.Is. It is the words, as String.
func (f Fault) Error() string { return f.String() }

// Err returns f as an error: nil for FaultNone.
func (f Fault) Err() error {
	if f == FaultNone {
		return nil
	}
	return f
}
