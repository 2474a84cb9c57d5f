package cm

import (
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
)

// What a side says of itself tells how many sockets its port has, beside all
// else. Another vendor's options say nothing of it.
func TestSlotsInECE(t *testing.T) {
	t.Parallel()
	for _, n := range []uint16{0, 1, 2, 64, 256, 1 << 15} {
		e := own.withMTU(verbs.MTU1024).withSlots(n)
		if e.slots() != max(n, 1) || e.mtu(verbs.MTU4096) != verbs.MTU1024 || !e.native() || !e.lessMTU() {
			t.Errorf("%d sockets: %v", n, e)
		}
	}
	if own.withSlots(1) != own {
		t.Errorf("one socket changes what older versions see: %v", own.withSlots(1))
	}
	other := ECE{VendorID: 0x15b3, Options: 0xffff}
	if other.withSlots(256) != other || other.slots() != 0 {
		t.Errorf("another vendor: %v", other.withSlots(256))
	}
}
