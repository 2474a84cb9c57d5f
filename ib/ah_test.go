package ib

import (
	"strings"
	"testing"
)

// A handle that no domain has made says so.
func TestAddressHandleOfNoDomain(t *testing.T) {
	t.Parallel()
	var h AddressHandle
	for _, err := range []error{h.Modify(AddressVector{}), h.Close()} {
		if err == nil || !strings.Contains(err.Error(), "use PD.CreateAH") {
			t.Errorf("error %v", err)
		}
	}
	if av := h.Query(); av != (AddressVector{}) {
		t.Errorf("a vector %+v", av)
	}
}
