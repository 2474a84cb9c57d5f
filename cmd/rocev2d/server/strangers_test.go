package server_test

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/rdma"
)

// Nothing is made for strangers: a client that does not speak the protocol, or
// may have no region, is refused before there is a connection.
func TestStrangersGetNothing(t *testing.T) {
	t.Parallel()
	d := withRegions(t, config.Region{Name: "open", Size: 4096, Access: config.ReadOnly})
	c := d.dial()
	regionNamed(t, c, "open")
	var rejected *rdma.RejectedError
	at := net.JoinHostPort(d.addr.String(), "7470")
	foreign := rdma.Dialer{Foreign: true}
	_, err := foreign.Dial(t.Context(), at)
	if !errors.As(err, &rejected) || !strings.Contains(string(rejected.PrivateData), "protocol of package rdma") {
		t.Errorf("a client of another kind: %v", err)
	}
	next := settings(d.addr)
	next.Devices[0].Regions = config.DefaultRegionsPort
	next.Regions = []config.Region{allow(t, config.Region{Name: "closed", Size: 4096, Access: config.ReadOnly}, "192.0.2.0/24")}
	_, err = d.Reload(next)
	must(t, err)
	_, err = rdma.Dial(t.Context(), at)
	if !errors.As(err, &rejected) || !strings.Contains(string(rejected.PrivateData), "allow") {
		t.Errorf("a client that may have nothing: %v", err)
	}
}
