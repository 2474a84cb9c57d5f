package server_test

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server"
	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/observe/conformance"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// TestConformanceOfDaemon: the daemon is a peer that can be tested, where
// conformance has a port, and through rping in any case.
func TestConformanceOfDaemon(t *testing.T) {
	t.Parallel()
	port := 0
	d := start(t, func(c *config.Config) {
		port = freePort(netip.MustParseAddr(c.Devices[0].Address))
		c.Targets.Ports["conformance"] = port
	}, server.Targets()...)
	until(t, "the target is served", func() bool {
		c, err := net.Dial("tcp", net.JoinHostPort(d.addr.String(), strconv.Itoa(port)))
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	rules, err := conformance.Select([]string{"send/*", "psn/gap", "wire/icrc"})
	if err != nil {
		t.Fatal(err)
	}
	test := func(c conformance.Config) *conformance.Report {
		from := loopback()
		link, err := udp.Open(from, udp.Config{})
		if err != nil {
			t.Fatal(err)
		}
		c.Rules, c.Link, c.Timeout, c.Quiet = rules, link, 20*time.Second, 20*time.Millisecond
		c.Dial = func(ctx context.Context) (net.Conn, error) {
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}}
			return dialer.DialContext(ctx, "tcp", net.JoinHostPort(d.addr.String(), strconv.Itoa(port)))
		}
		r, err := conformance.Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := test(conformance.Config{}); r.Count(conformance.Pass) != len(rules) || r.Target.Release != "test" {
		t.Error(r.Peer(), r.Summary())
	}
	bare := 0
	for _, res := range test(conformance.Config{Listener: 7174, Peer: d.addr}).Results {
		if res.Bare {
			bare++
		}
		if res.Bare && res.Verdict != conformance.Pass {
			t.Error(res.Text())
		}
	}
	if bare != 2 {
		t.Errorf("%d rules need a connection alone", bare)
	}
}
