package cm

import (
	"fmt"
	"math/bits"

	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
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
const Vendor = mad.Vendor

// What Options mean of this software.
const (
	// optionNative: the side is as [verbs.Endpoint.Native] has it.
	optionNative = mad.OptionNative
	// optionLessMTU in a REQ: a REP may say a smaller path MTU.
	optionLessMTU = mad.OptionLessMTU
	// shiftMTU is where a REP has the code of that path MTU; 0: it is that
	// of the REQ.
	shiftMTU = 8
	// shiftSlots is where a side has the binary logarithm of
	// [verbs.Endpoint.Slots], in 4 bits.
	shiftSlots = 12
)

// own is what this software says of itself.
var own = ECE(mad.Native)

// native reports whether the side that says so is this software.
func (e ECE) native() bool { return e.VendorID == Vendor && e.Options&optionNative != 0 }

// lessMTU reports whether the side that asks takes a smaller path MTU than it
// asks for, where the answer says so.
func (e ECE) lessMTU() bool { return e.native() && e.Options&optionLessMTU != 0 }

// withMTU returns e with the path MTU of an answer.
func (e ECE) withMTU(m verbs.MTU) ECE {
	e.Options |= uint32(m) << shiftMTU
	return e
}

// withSlots returns e with the number of sockets that the side's port has, if e
// is what this software says.
func (e ECE) withSlots(n uint16) ECE {
	if e.native() {
		e.Options = e.Options&^(0xf<<shiftSlots) | uint32(bits.Len16(max(n, 1))-1)<<shiftSlots
	}
	return e
}

// withSlots adds to what this side says of itself how many sockets its port
// has.
func (m *manager) withSlots(e mad.ECE) mad.ECE { return mad.ECE(ECE(e).withSlots(m.slots)) }

// slots returns how many sockets the port of the side has that says so.
func (e ECE) slots() uint16 {
	if !e.native() {
		return 0
	}
	return 1 << (e.Options >> shiftSlots & 0xf)
}

// mtu returns the path MTU of a connection: what was asked for, or less if the
// answer, e, says so.
func (e ECE) mtu(asked verbs.MTU) verbs.MTU {
	if less := verbs.MTU(e.Options >> shiftMTU & 7); e.native() && less.Valid() {
		return min(asked, less)
	}
	return asked
}

// agreedMTU is mtu of an answer that may be anything: nothing is less than what
// the REQ asks for where that does not offer it.
func agreedMTU(req *mad.REQ, rep *mad.REP) verbs.MTU {
	asked := verbs.MTU(req.PathMTU)
	if !ECE(req.ECE).lessMTU() {
		return asked
	}
	return ECE(rep.ECE).mtu(asked)
}

// marker is what this software puts into the additional information of a REJ
// for a peer that is this software: the rejection is meant, it is not that the
// vendor is not liked.
var marker = []byte{Vendor >> 16, Vendor >> 8 & 0xff, Vendor & 0xff}

func marked(info []byte) bool {
	return len(info) >= len(marker) && string(info[:len(marker)]) == string(marker)
}

// String returns vendor and options, such as "526f43/1".
func (e ECE) String() string { return fmt.Sprintf("%06x/%x", e.VendorID, e.Options) }
