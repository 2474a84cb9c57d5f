package main

import (
	"bytes"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

// A client whose server is on this host takes a free loopback address when
// another process has the address that leads to the server.
func TestClientBesideServer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		server string
		taken  []string
		want   string // "" for an error
	}{
		{"127.0.0.1", nil, "127.0.0.1"},
		{"127.0.0.1", []string{"127.0.0.1"}, "127.0.0.2"},
		{"127.0.0.5", []string{"127.0.0.1", "127.0.0.2", "127.0.0.5"}, "127.0.0.3"},
		{"localhost", []string{"127.0.0.1"}, "127.0.0.2"},
		{"", []string{"127.0.0.1"}, ""},
	} {
		if tt.server == "" { // no server: this side is one, on the first address
			a, _, err := chooseAddress("")
			if err != nil {
				t.Fatal(err)
			}
			tt.taken = []string{a.String()}
		}
		if tt.server == "localhost" {
			if a, err := routeTo("localhost"); err != nil || !a.Is4() {
				continue // an IPv6 host
			}
		}
		var said bytes.Buffer
		dev, err := openDevice(streams{err: &said, deviceFlag: "--ib-dev"}, "", tt.server, func(a netip.Addr) (*verbs.Device, error) {
			for _, other := range tt.taken {
				if other == a.String() {
					return nil, syscall.EADDRINUSE
				}
			}
			link, _ := fabric.Pair(a, netip.MustParseAddr("192.0.2.1"))
			return verbs.OpenLink(link, verbs.Config{})
		})
		if err != nil {
			if tt.want != "" {
				t.Errorf("%s with %v taken: %v", tt.server, tt.taken, err)
			}
			continue
		}
		if got := dev.Addr().String(); got != tt.want || !strings.Contains(said.String(), "device "+got) || !strings.Contains(said.String(), "--ib-dev chooses") {
			t.Errorf("%s with %v taken: %s, want %s; %s", tt.server, tt.taken, got, tt.want, said.String())
		}
		dev.Close()
	}
}
