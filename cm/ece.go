package cm

import (
	"fmt"
)

// ECE is what a side says of itself when a connection is made (enhanced
// connection establishment): Options mean something to those who know the
// vendor, a number of 24 bits. Zero says nothing. A REP carries it only in
// answer to a REQ that does, because Linux takes no other.
type ECE struct {
	VendorID uint32
	Options  uint32
}

// Vendor is the vendor ID by which this software knows itself. It is not one of
// those that IEEE assigns: the bit for local administration is set.
const Vendor = 0x526f43

// optionNative says that the side is as [verbs.Endpoint.Native] has it.
const optionNative = 1

// own is what this software says of itself.
var own = ECE{VendorID: Vendor, Options: optionNative}

// native reports whether the side that says so is this software.
func (e ECE) native() bool { return e.VendorID == Vendor && e.Options&optionNative != 0 }

// marker is what this software puts into the additional information of a REJ
// for a peer that is this software: the rejection is meant, it is not that the
// vendor is not liked.
var marker = []byte{Vendor >> 16, Vendor >> 8 & 0xff, Vendor & 0xff}

func marked(info []byte) bool {
	return len(info) >= len(marker) && string(info[:len(marker)]) == string(marker)
}

// String returns vendor and options, such as "526f43/1".
func (e ECE) String() string { return fmt.Sprintf("%06x/%x", e.VendorID, e.Options) }
