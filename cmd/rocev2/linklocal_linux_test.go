package main

import (
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testnet"
)

// TestLinkLocal: the tools over a cable with link-local addresses; their wire
// format has no place for a zone.
func TestLinkLocal(t *testing.T) {
	t.Parallel()
	if !testnet.Isolated(t) {
		return
	}
	testnet.Veth(t, "left0", "right0", "1500")
	testnet.IP(t, "address add fe80::1/64 dev left0 nodad")
	testnet.IP(t, "address add fe80::2/64 dev right0 nodad")
	for _, command := range []string{"pingpong -n 20", "perf write_bw -n 20", "perf send_lat -n 20"} {
		args := strings.Fields(command)
		// Both are on one host here, which connects to itself from the
		// server's address.
		server, client := sidesOn(t, "fe80::1%left0", "fe80::2%right0", append(args[:len(args):len(args)], "--peer-gid", "fe80::2"), args)
		for _, r := range []result{server, client} {
			if r.out == "" {
				t.Errorf("%s printed nothing: %s", command, r.err)
			}
		}
	}
}
