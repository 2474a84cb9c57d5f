package programs

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/cm"
	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// Two hosts know each other without a connection manager between the programs,
// and do not take another peer for one of them.
func TestHostsKnowEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.Devices(t, verbstest.Config{Network: fabric.Config{Port: fabric.PortConfig{Delay: 50 * time.Microsecond}}})
		var hosts []*Host
		for _, dev := range []*verbs.Device{a, b} {
			if err := cm.Start(dev); err != nil {
				t.Fatal(err)
			}
			hosts = append(hosts, &Host{devices: []*device{{Device: dev}}})
		}
		for _, c := range []struct {
			what string
			peer netip.Addr
			want bool
		}{
			{"the other host", b.Addr(), true},
			{"the host itself", a.Addr(), true},
			{"an address of nobody", netip.MustParseAddr("203.0.113.9"), false},
		} {
			if got := hosts[0].native(a, c.peer, 17); got != c.want {
				t.Errorf("%s: native %v", c.what, got)
			}
		}
		if !hosts[1].native(b, a.Addr(), 17) {
			t.Error("the other way: not native")
		}
	})
}
