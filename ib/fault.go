package ib

import "fmt"

// Fault says which check of a memory access failed. The zero value FaultNone is
// success; use Err to hand a Fault on as an error.
type Fault uint8

// The faults, in the order in which the checks are made.
const (
	FaultNone             Fault = iota
	FaultUnknownKey             // the key is not known, or dead
	FaultWrongPD                // the region belongs to another protection domain
	FaultNoAccess               // the key does not grant the access, or not to this queue pair
	FaultOutOfBounds            // address and length are not inside what the key stands for, or the list
	FaultMisaligned             // a 64-bit atomic whose address is not a multiple of 8
	FaultGone                   // the region was deregistered while it was in use
	FaultMemory                 // the memory of the region could not be accessed
	FaultNotPresent             // a page must be fetched first, see memreg.PagedMemory
	FaultNotInvalidatable       // the key is of a kind that only its owner can end
	FaultState                  // a window or a fast registration region is not in the state for it
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
