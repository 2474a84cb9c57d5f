package hca

import (
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// The first socket of a native peer's port gets packets from the device's own
// port, each other one from a port of its own. A program's choice stands, and
// so does the own port towards peers that say nothing, or are of this host.
func TestSourcePortForEachSlot(t *testing.T) {
	t.Parallel()
	a, _ := newHosts(t, Config{})
	peer := netip.MustParseAddr("203.0.113.77") // no host that runs tests has it
	av := ib.AddressVector{DGID: peer, HopLimit: 64, Native: true, Slots: 4}
	to := func(av ib.AddressVector, n rocev2.QPN) (*QP, uint16) {
		q := a.newQP()
		a.connectVia(q, av, n)
		return q, q.Attr().AV.SrcPort
	}
	first, p1 := to(av, 0x11)
	_, same := to(av, 0x21)
	second, p2 := to(av, 0x12)
	third, p2again := to(av, 0x16)
	_, p3 := to(av, 0x13)
	if p1 != 0 || same != 0 || p2 < ib.MinSrcPort || p2again != p2 || p3 < ib.MinSrcPort || p3 == p2 {
		t.Errorf("ports %d, %d, %d, %d, %d", p1, same, p2, p2again, p3)
	}
	for name, c := range map[string]struct {
		change func(*ib.AddressVector)
		want   uint16
	}{
		"no slots":       {func(v *ib.AddressVector) { v.Slots = 0 }, 0},
		"one":            {func(v *ib.AddressVector) { v.Slots = 1 }, 0},
		"another stack":  {func(v *ib.AddressVector) { v.Native = false }, 0},
		"program's":      {func(v *ib.AddressVector) { v.SrcPort = 50000 }, 50000},
		"own address":    {func(v *ib.AddressVector) { v.DGID = testAddrA }, 0},
		"host's address": {func(v *ib.AddressVector) { v.DGID = netip.MustParseAddr("127.0.0.1") }, 0},
		"a wrong number": {func(v *ib.AddressVector) { v.Slots = 3 }, 0},
	} {
		v := av
		c.change(&v)
		if _, got := to(v, 0x12); got != c.want {
			t.Errorf("%s: port %d", name, got)
		}
	}
	// A queue pair that goes is not counted, also one that is reset.
	a.must(first.Close())
	a.must(second.Modify(&ib.Attr{State: ib.StateReset}, ib.AttrState))
	a.must(third.Close())
	p := a.dev.slotPorts.of[peer]
	if p == nil || p.users != 2 {
		t.Errorf("%+v", p)
	}
}
