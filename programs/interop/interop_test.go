package interop

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// The GID of an IPv4 address is the IPv4-mapped IPv6 address (RFC 4291 2.5.5.2,
// IBTA A17).
func TestGID(t *testing.T) {
	t.Parallel()
	v4, v6 := netip.MustParseAddr("198.18.0.2"), netip.MustParseAddr("fd00:aa::2")
	for _, a := range []netip.Addr{v4, v6} {
		if got := GIDOf(a).Addr(); got != a {
			t.Errorf("the GID of %v stands for %v", a, got)
		}
		if err := GIDOf(a).CheckPeer(a); err != nil {
			t.Errorf("a peer at %v: %v", a, err)
		}
	}
	for _, tt := range []struct{ peer, local string }{
		{"::", "198.18.0.1"}, {"0.0.0.0", "198.18.0.1"}, {"224.0.0.1", "198.18.0.1"}, {"ff02::1", "fd00::1"},
		{"fd00::2", "198.18.0.1"}, {"198.18.0.2", "fd00::1"},
	} {
		if err := GIDOf(netip.MustParseAddr(tt.peer)).CheckPeer(netip.MustParseAddr(tt.local)); err == nil {
			t.Errorf("a peer at %s is good for %s", tt.peer, tt.local)
		}
	}
}

func TestErrorsSayWhatHappened(t *testing.T) {
	t.Parallel()
	pe := &ProtocolError{Step: "version", Got: []byte(strings.Repeat("\xff", 1000)), Want: "16 bytes", Err: ErrPeerClosed}
	if s := pe.Error(); len(s) > 700 || !strings.Contains(s, `\xff`) || !errors.Is(pe, net.ErrClosed) {
		t.Errorf("%d bytes of %q", len(s), s)
	}
	ce := &CompletionError{Doing: "write of 8 bytes", Done: 7, WC: verbs.WC{ID: 0x30, Status: verbs.StatusRemAccessErr, VendorErr: 5}}
	for _, want := range []string{"write of 8 bytes", "REM_ACCESS_ERR", "0x30", "vendor error 0x5", "after 7"} {
		if !strings.Contains(ce.Error(), want) {
			t.Errorf("%q does not say %q", ce.Error(), want)
		}
	}
}

// Where not even the first message came through, the two sides may have been
// started differently.
func TestErrorsOfTheFirstMessage(t *testing.T) {
	t.Parallel()
	gone := verbs.WC{Status: verbs.StatusRetryExcErr}
	const hint = "start both sides with the same"
	for want, errs := range map[bool][]error{
		true: {
			&LossError{Service: UC, Sent: 1, Silence: time.Second},
			&CompletionError{Doing: "ping-pong", WC: gone},
		},
		false: {
			&LossError{Service: UC, Sent: 2, Received: 1, Silence: time.Second},
			&CompletionError{Doing: "ping-pong", Done: 1, WC: gone},
			&CompletionError{Doing: "ping-pong", WC: verbs.WC{Status: verbs.StatusRemAccessErr}},
		},
	} {
		for _, err := range errs {
			if strings.Contains(err.Error(), hint) != want {
				t.Errorf("%q: says %q: %v", err, hint, !want)
			}
		}
	}
}

// A peer names the address that it connects from, or one that the user allows.
// On loopback it is this host in any case.
func TestPeers(t *testing.T) {
	t.Parallel()
	network := PeerAt(netip.MustParsePrefix("192.0.2.0/24"))
	for _, tt := range []struct {
		peers        Peers
		named, from  string
		wantAnswered bool
	}{
		{Peers{}, "192.0.2.1", "192.0.2.1", true},
		{Peers{}, "192.0.2.1", "192.0.2.2", false},
		{Peers{}, "127.0.0.2", "127.0.0.1", true},
		{Peers{}, "::1", "127.0.0.1", true},
		{Peers{}, "192.0.2.1", "127.0.0.1", false},
		{Peers{}, "127.0.0.1", "192.0.2.1", false},
		{network, "192.0.2.1", "127.0.0.1", true},
		{network, "198.51.100.1", "127.0.0.1", false},
		{AnyPeer, "198.51.100.1", "127.0.0.1", true},
	} {
		from := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(tt.from), 7))
		err := tt.peers.Check(GIDOf(netip.MustParseAddr(tt.named)), from)
		if (err == nil) != tt.wantAnswered {
			t.Errorf("%s from %s: %v", tt.named, tt.from, err)
		}
	}
}
