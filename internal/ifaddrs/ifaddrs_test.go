package ifaddrs

import (
	"net"
	"net/netip"
	"slices"
	"testing"
)

// Each address of this host has the interface that has it, and a zone where it
// needs one.
func TestOf(t *testing.T) {
	t.Parallel()
	ifaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for i := range ifaces {
		for _, a := range Of(&ifaces[i]) {
			if a.Is4In6() || a.Bits < 0 || a.Bits > a.BitLen() {
				t.Errorf("%s: %v with %d bits", ifaces[i].Name, a, a.Bits)
			}
			if zone := a.Is6() && a.IsLinkLocalUnicast(); zone && a.Zone() != ifaces[i].Name || !zone && a.Zone() != "" {
				t.Errorf("%s: %v", ifaces[i].Name, a)
			}
		}
		if ifaces[i].Flags&net.FlagLoopback != 0 && ifaces[i].Flags&net.FlagUp != 0 {
			if all := Of(&ifaces[i]); !slices.Contains(all, Addr{netip.MustParseAddr("127.0.0.1"), 8}) {
				t.Errorf("%s has %v", ifaces[i].Name, all)
			}
		}
	}
	if all := Of(&net.Interface{Index: 1 << 30, Name: "gone"}); all != nil {
		t.Errorf("%v", all)
	}
}

// All interfaces at once are what each of them is by itself.
func TestAll(t *testing.T) {
	t.Parallel()
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if alone := Of(&all[i].Interface); !slices.Equal(all[i].Addrs, alone) {
			t.Errorf("%s has %v, alone %v", all[i].Name, all[i].Addrs, alone)
		}
	}
	if !slices.ContainsFunc(all, func(i Interface) bool { return len(i.Addrs) > 0 }) {
		t.Errorf("no interface has an address: %v", all)
	}
}
