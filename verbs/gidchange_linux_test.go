//go:build !portable

package verbs_test

import (
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/verbs"
)

// A device tells of its interface that goes down and comes back, and of its
// address that is taken away and comes back (IBTA 11.6.3). Other interfaces and
// addresses are not its business.
func TestGIDChange(t *testing.T) {
	t.Parallel()
	if !testnet.Isolated(t) {
		return
	}
	testnet.Veth(t, "rocea", "roceb", "1500")
	testnet.IP(t, "addr add 10.98.1.1/24 dev rocea")
	d, err := verbs.OpenAddr(netip.MustParseAddr("10.98.1.1"), verbs.Config{})
	check(t, err)
	t.Cleanup(func() { check(t, d.Close()) })
	for _, c := range []struct {
		commands []string
		want     verbs.Event
	}{
		{[]string{"addr add 10.98.1.2/24 dev rocea", "addr add 10.98.2.1/24 dev roceb", "addr del 10.98.1.1/24 dev rocea"}, verbs.EventGIDChange},
		{[]string{"addr add 10.98.1.1/24 dev rocea"}, verbs.EventGIDChange},
		{[]string{"link set rocea down"}, verbs.EventPortError},
		{[]string{"link set rocea up"}, verbs.EventPortActive},
	} {
		for _, cmd := range c.commands {
			testnet.IP(t, cmd)
		}
		e, err := d.AsyncEvent(t.Context())
		check(t, err)
		if e != (verbs.AsyncEvent{Event: c.want}) {
			t.Errorf("after %v: %v, want %v", c.commands, e, c.want)
		}
	}
}
