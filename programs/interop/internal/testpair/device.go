package testpair

import (
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/transport/fault"
	"github.com/gosoftroce/rocev2/verbs"
)

// DeviceOn makes a device on a network, with faults in its packets.
func DeviceOn(t testing.TB, sw *fabric.Switch, addr string, faults ...fault.Rule) *verbs.Device {
	t.Helper()
	port, err := sw.Attach(netip.MustParseAddr(addr))
	if err != nil {
		t.Fatal(err)
	}
	dev, err := verbs.OpenLink(fault.New(port, 1, faults...), verbs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}
