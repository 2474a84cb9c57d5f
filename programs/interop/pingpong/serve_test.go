package pingpong

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/testpair"
)

// TestServeTakesTheFirstGoodClient lets a server refuse clients until one is
// good.
func TestServeTakesTheFirstGoodClient(t *testing.T) {
	t.Parallel()
	a, b := testpair.Devices(t)
	ln, dial := testpair.Listener(t)
	refused := make(chan error, 10)
	cfg := Config{Iterations: 20, Linger: -1}
	serverCfg := cfg
	serverCfg.OnRefused = func(_ net.Addr, why error) { refused <- why }
	done := make(chan error, 1)
	go func() {
		_, err := Serve(t.Context(), a, ln, serverCfg)
		done <- err
	}()
	for send, want := range map[string]string{
		"6.06\x00\x00\x00\x00": "perftest",
		"SSH-2.0":              "SSH",
		"zzzzz":                "hexadecimal",
		"0000:000011:9a1b2c:00000000000000000000ffffc0000263\x00": "192.0.2.99", // not where it comes from
		"0000:000011:9a1b2c:00000000000000000000000000000000\x00": "no GID",
	} {
		c := dial()
		io.WriteString(c, send)
		if why := <-refused; !strings.Contains(why.Error(), want) {
			t.Errorf("%q is refused with %v; expected it to say %q", send, why, want)
		}
		if answer, _ := io.ReadAll(c); !strings.Contains(string(answer), want) {
			t.Errorf("%q is answered with %q; expected it to say %q", send, answer, want)
		}
	}
	dial() // silent
	if _, err := Run(t.Context(), b, dial(), interop.Client, cfg); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestThirdHost lets either side name an address that is not its own.
func TestThirdHost(t *testing.T) {
	t.Parallel()
	const other = "0000:000011:9a1b2c:00000000000000000000ffffc0000263\x00"
	dev, _ := testpair.Devices(t)
	for _, role := range []interop.Role{interop.Server, interop.Client} {
		own, peer := testpair.Connections(t)
		go io.WriteString(peer, other)
		go io.Copy(io.Discard, peer)
		_, err := Run(t.Context(), dev, own, role, Config{})
		var ge *interop.GIDError
		if !errors.As(err, &ge) || ge.Named != netip.MustParseAddr("192.0.2.99") || ge.Control != netip.MustParseAddr("192.0.2.2") {
			t.Errorf("the %v's error is %v", role, err)
		}
	}
}

// TestOtherSizeIsNamed starts the two sides with different sizes: each says so.
func TestOtherSizeIsNamed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ server, client int }{{4096, 64}, {64, 4096}, {5000, 5001}} {
		s, c := both(t, Config{Iterations: 20, Size: tt.server, Linger: -1}, Config{Iterations: 20, Size: tt.client, Linger: -1})
		for side, err := range map[string]error{"server": s.Err, "client": c.Err} {
			if err == nil || !strings.Contains(err.Error(), "size") && !strings.Contains(err.Error(), "(-s)") {
				t.Errorf("%d bytes at the server, %d at the client: the %s's error is %v", tt.server, tt.client, side, err)
			}
		}
	}
}
