package testnet

import (
	"fmt"
	"net/netip"
	"testing"
)

// TestNewAddresses: a datagram to an address that was just added arrives, be it
// link-local or not.
func TestNewAddresses(t *testing.T) {
	t.Parallel()
	if !Isolated(t) {
		return
	}
	Veth(t, "here0", "there0", "1500")
	for i := range 16 {
		for _, addr := range []string{fmt.Sprintf("fe80::%x", i+1), fmt.Sprintf("fd18::%x", i+1)} {
			IP(t, "address add "+addr+"/64 dev here0 nodad")
			a := netip.MustParseAddr(addr)
			if a.IsLinkLocalUnicast() {
				a = a.WithZone("here0")
			}
			if err := arrives(a); err != nil {
				t.Errorf("%v: %v", a, err)
			}
		}
	}
}
