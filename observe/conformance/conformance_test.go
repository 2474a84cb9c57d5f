package conformance_test

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/observe/conformance"
	"github.com/gosoftroce/rocev2/observe/conformance/target"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// against runs rules against a device of this software, on a network in the
// process, in virtual time. The device's link is wrapped, and the device is
// stored where c.Dial looks for it.
func against(t *testing.T, c conformance.Config, wrap func(transport.Link) transport.Link, store ...**verbs.Device) *conformance.Report {
	t.Helper()
	here, there := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
	var link transport.Link = there
	if wrap != nil {
		link = wrap(there)
	}
	dev, err := verbs.OpenLink(link, verbs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, at := range store {
		*at = dev
	}
	c.Link = here
	if c.Dial == nil {
		c.Dial = func(context.Context) (net.Conn, error) {
			a, b := net.Pipe()
			go target.ServeConn(t.Context(), dev, b, target.Config{})
			return a, nil
		}
	}
	r, err := conformance.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestThisSoftware: this software keeps all rules.
func TestThisSoftware(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := against(t, conformance.Config{}, nil)
		for _, res := range r.Results {
			if res.Verdict != conformance.Pass {
				t.Errorf("%s", res.Text())
				for _, s := range res.Steps {
					t.Log(s)
				}
			}
		}
		t.Log(r.Summary())
	})
}
