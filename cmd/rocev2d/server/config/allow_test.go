package config_test

import (
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
)

// An IPv4 network in the form of IPv6 is that network: clients have IPv4
// addresses.
func TestAllowMappedNetwork(t *testing.T) {
	t.Parallel()
	var r config.Region
	if err := r.SetAllow([]string{"::ffff:192.0.2.0/120"}); err != nil {
		t.Fatal(err)
	}
	if !r.Allowed(netip.MustParseAddr("192.0.2.9")) || r.Allowed(netip.MustParseAddr("192.0.3.9")) {
		t.Errorf("%v", r.Allow)
	}
}
