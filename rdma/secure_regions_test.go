package rdma

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/rdma/secure"
	"github.com/gosoftroce/rocev2/verbs"
)

// regionsOf returns the names of the regions that a client sees.
func regionsOf(t *testing.T, c *Conn) (names []string) {
	t.Helper()
	for _, r := range must1[[]*RemoteRegion](t)(c.Regions(testContext(t))) {
		names = append(names, r.Name())
	}
	return names
}

// TestClearBesideSecured has one listener serve secured clients, and those in
// clear, which see nothing of regions for secured ones and reach them with no
// key.
func TestClearBesideSecured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecureNet(t, fabric.Config{})
		lc := ListenConfig{TLS: n.server, AdmitClear: func(netip.Addr) error { return nil }}
		memory := []byte("of the owner alone")
		lc.Export("all", Region{Size: 4096, Writable: true})
		lc.Export("mine", Region{Memory: memory, Writable: true, AllowNames: []secure.Name{"CN=client"}})
		lc.Export("other", Region{Size: 4096, AllowNames: []secure.Name{"CN=other"}})
		lc.Export("sealed", Region{Size: 4096, Secured: true})
		lc.Export("host", Region{Size: 4096, Secured: true, Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.2/32")}, AllowNames: []secure.Name{"CN=other"}})
		l := n.listen(t, lc)
		if got := len(l.Devices()); got != 1 {
			t.Errorf("%d devices", got)
		}
		sealed := must1[*Conn](t)(n.dial(t, n.client))
		clear := must1[*Conn](t)(n.dial(t, nil))
		if got := regionsOf(t, sealed); !slices.Equal(got, []string{"all", "host", "mine", "sealed"}) {
			t.Errorf("a secured client sees %q", got)
		}
		if got := regionsOf(t, clear); !slices.Equal(got, []string{"all"}) {
			t.Errorf("a client in clear sees %q", got)
		}
		if _, err := sealed.Region(t.Context(), "other"); !errors.Is(err, ErrPermission) {
			t.Errorf("a region of another name: %v", err)
		}
		for _, name := range []string{"mine", "sealed"} {
			if _, err := clear.Region(t.Context(), name); !errors.Is(err, ErrUnknownRegion) {
				t.Errorf("a client in clear asks for %s: %v", name, err)
			}
		}
		// Both see the same bytes of a region for both.
		a := must1[*RemoteRegion](t)(sealed.Region(t.Context(), "all"))
		b := must1[*RemoteRegion](t)(clear.Region(t.Context(), "all"))
		must1[int](t)(a.WriteAt([]byte("both"), 8))
		got := make([]byte, 4)
		must1[int](t)(b.ReadAt(got, 8))
		if string(got) != "both" {
			t.Errorf("%q", got)
		}
		// A key that was passed on opens nothing.
		mine := must1[*RemoteRegion](t)(sealed.Region(t.Context(), "mine"))
		must1[int](t)(mine.ReadAt(got, 0))
		stolen := *mine
		stolen.c = clear
		if _, err := stolen.WriteAt([]byte("evil"), 0); !errors.Is(err, ErrRefused) || string(memory[:4]) != "of t" {
			t.Errorf("with a key of another connection: %v, %q", err, memory)
		}
		must(t, l.Unexport("mine"))
		if err := l.Unexport("mine"); !errors.Is(err, ErrUnknownRegion) {
			t.Errorf("twice: %v", err)
		}
		must1[*verbs.MR](t)(l.Export("mine", Region{Size: 64, Secured: true}))
	})
}

// TestAdmitClear: a listener that takes clients in clear refuses those that it
// does not want, and a client with TLS does not become one in clear.
func TestAdmitClear(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecureNet(t, fabric.Config{})
		why := errors.New("only the console may come in clear")
		n.listen(t, ListenConfig{TLS: n.server, AdmitClear: func(netip.Addr) error { return why }})
		var rejected *RejectedError
		if _, err := n.dial(t, nil); !errors.As(err, &rejected) || !bytes.HasPrefix(rejected.PrivateData, []byte(why.Error())) {
			t.Errorf("%v", err)
		}
		wrong := n.client.Clone()
		wrong.Certificates = []tls.Certificate{testcert.New(t).Issue(t, "client", "")}
		if _, err := n.dial(t, wrong); err == nil {
			t.Error("a client of another authority is served")
		}
		c := must1[*Conn](t)(n.dial(t, n.client))
		if _, ok := c.ConnectionState(); !ok {
			t.Error("a connection with TLS is in clear")
		}
	})
}

// TestSecuredRegionNeedsTLS: what cannot be kept is not promised.
func TestSecuredRegionNeedsTLS(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecureNet(t, fabric.Config{})
		for _, r := range []Region{{Size: 64, Secured: true}, {Size: 64, AllowNames: []secure.Name{"CN=client"}}} {
			lc := ListenConfig{Device: n.devs[0]}
			lc.Export("mine", r)
			if _, err := lc.Listen(t.Context(), servedAt); err == nil {
				t.Error("a listener without TLS exports a region for secured connections")
			}
		}
		lc := ListenConfig{Device: n.devs[0], AdmitClear: func(netip.Addr) error { return nil }}
		if _, err := lc.Listen(t.Context(), servedAt); err == nil {
			t.Error("AdmitClear without TLS")
		}
	})
}

// TestPSK has a listener whose clients have a secret.
func TestPSK(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecureNet(t, fabric.Config{})
		mine := must1[*tls.Config](t)(secure.PSK([]byte("thirty-two bytes that are secret")))
		other := must1[*tls.Config](t)(secure.PSK([]byte("thirty-two bytes of somebody else")))
		var lc ListenConfig
		lc.TLS = mine
		lc.Export("named", Region{Size: 64, AllowNames: []secure.Name{"CN=rocev2 psk"}})
		lc.Export("sealed", Region{Size: 64, Secured: true})
		n.listen(t, lc)
		c := must1[*Conn](t)(n.dial(t, mine))
		echo(t, c, secretText)
		if got := regionsOf(t, c); !slices.Equal(got, []string{"sealed"}) { // no authority has verified the name
			t.Errorf("a client with a secret sees %q", got)
		}
		if _, err := n.dial(t, other); !errors.Is(err, secure.ErrOtherPSK) {
			t.Errorf("another secret: %v", err)
		}
		if _, err := n.dial(t, n.client); err == nil {
			t.Error("a client with a certificate is served")
		}
	})
}
