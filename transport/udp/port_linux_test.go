//go:build !portable

package udp

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/transport"
)

// The status of the port follows the interface and its address.
func TestPortStatus(t *testing.T) {
	t.Parallel()
	if s := open(t, loopback(), Config{}).PortStatus(); s.State != transport.PortActive || s.Interface == "" {
		t.Errorf("loopback: %+v", s)
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("ip is not installed (on Debian: apt-get install iproute2)")
	}
	inNamespace(t, 1500, func() {
		ip := func(cmd string) bool {
			out, err := exec.Command("ip", strings.Fields(cmd)...).CombinedOutput()
			if err != nil {
				t.Errorf("ip %s: %v: %s", cmd, err, out)
			}
			return err == nil
		}
		if !ip("link add insight0 type veth peer name insight1") || !ip("addr add 10.99.1.1/24 dev insight0") ||
			!ip("link set insight0 up") || !ip("link set insight1 up") || !ip("route add local 10.99.7.7 dev lo") {
			return
		}
		routed, err := Open(netip.MustParseAddr("10.99.7.7"), Config{})
		if err != nil {
			t.Error(err)
			return
		}
		defer routed.Close()
		l, err := Open(netip.MustParseAddr("10.99.1.1"), Config{})
		if err != nil {
			t.Error(err)
			return
		}
		defer l.Close()
		for _, c := range []struct {
			cmd  string
			want transport.PortState
			ifi  string
		}{
			{"link set insight1 up", transport.PortActive, "insight0"},
			{"link set insight1 down", transport.PortNoCarrier, "insight0"},
			{"link set insight0 down", transport.PortDisabled, "insight0"},
			{"link set insight1 up", transport.PortDisabled, "insight0"},
			{"link set insight0 up", transport.PortActive, "insight0"},
			{"addr del 10.99.1.1/24 dev insight0", transport.PortNoAddress, ""},
			{"addr add 10.99.1.1/24 dev insight0", transport.PortActive, "insight0"},
		} {
			ip(c.cmd)
			want := transport.PortStatus{State: c.want, Interface: c.ifi}
			got := l.PortStatus()
			// The kernel takes up to a second to see a cable come
			// and go. Each turn of the loop starts a process.
			for i := 0; got.State != c.want && i < 10_000 && ip("link show"); i++ {
				got = l.PortStatus()
			}
			if got.Speed = 0; got != want {
				t.Errorf("after ip %s: %+v, want %+v", c.cmd, got, want)
			}
			if got := routed.PortStatus(); got.State != transport.PortActive {
				t.Errorf("an address by a local route: %+v", got)
			}
		}
	})
}
