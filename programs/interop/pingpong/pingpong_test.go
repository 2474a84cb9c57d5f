package pingpong

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/testpair"
	"github.com/gosoftroce/rocev2/verbs"
)

// goldens are address messages, as the originals write them.
var goldens = []struct {
	form    form
	text    string
	address Address
}{
	{plainForm, "0000:000011:9a1b2c:00000000000000000000ffffc6120002\x00",
		Address{QPN: 0x11, PSN: 0x9a1b2c, GID: interop.GIDOf(netip.MustParseAddr("198.18.0.2"))}},
	{extendedForm, "0000:000012:000011:9a1b2c:020001:fd0000aa000000000000000000000002\x00",
		Address{QPN: 0x12, Initiator: 0x11, PSN: 0x9a1b2c, SRQN: 0x20001, GID: interop.GIDOf(netip.MustParseAddr("fd00:aa::2"))}},
}

var golden = goldens[0].text

func TestAddressIsByteExact(t *testing.T) {
	t.Parallel()
	for i, g := range goldens {
		if got := string(g.form.append(nil, g.address)); got != g.text {
			t.Errorf("address is %q, expected %q", got, g.text)
		}
		if got, err := g.form.parse([]byte(g.text)); err != nil || got != g.address {
			t.Errorf("parsed %+v, %v; expected %+v", got, err, g.address)
		}
		if want := []int{52, 66}[i]; len(g.text) != want || g.form.size() != want {
			t.Errorf("an address message has %d bytes, not %d or %d", want, len(g.text), g.form.size())
		}
	}
}

// TestAddressMessages checks that srq_pingpong's 256 messages are all there,
// and that those without a queue pair are zero.
func TestAddressMessages(t *testing.T) {
	t.Parallel()
	tr := &allTraits[SRQ]
	got := string(tr.messages([]Address{goldens[0].address, goldens[0].address}))
	unused := "0000:000000:000000:00000000000000000000000000000000\x00"
	if want := strings.Repeat(golden, 2) + strings.Repeat(unused, 254); got != want {
		t.Errorf("the messages are %d bytes %.120q…, expected %d", len(got), got, len(want))
	}
}

func TestBadAddresses(t *testing.T) {
	t.Parallel()
	for _, g := range goldens {
		for i := range len(g.text) {
			b := []byte(g.text)
			b[i] = 0xff
			if _, err := g.form.parse(b); err == nil {
				t.Errorf("a wrong byte at %d is accepted", i)
			}
			if _, err := g.form.parse(b[:i]); err == nil {
				t.Errorf("%d bytes are accepted", i)
			}
		}
	}
}

func FuzzAddress(f *testing.F) {
	for _, g := range goldens {
		f.Add([]byte(g.text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, form := range []form{plainForm, extendedForm} {
			a, err := form.parse(b)
			if err == nil && !bytes.EqualFold(form.append(nil, a), b) {
				t.Errorf("%q parses, but is written as %q", b, form.append(nil, a))
			}
		}
	})
}

type outcome = testpair.Outcome[Result]

// both runs the two roles against each other.
func both(t *testing.T, server, client Config) (s, c outcome) {
	t.Helper()
	configs := map[interop.Role]Config{interop.Server: server, interop.Client: client}
	return testpair.Both(t, func(dev *verbs.Device, conn net.Conn, role interop.Role) (Result, error) {
		return Run(t.Context(), dev, conn, role, configs[role])
	})
}

func TestBothRoles(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"defaults":            {Iterations: 200},
		"one byte":            {Size: 1, Iterations: 50},
		"odd size":            {Size: 100_001, Iterations: 10, MTU: verbs.MTU4096},
		"events":              {Iterations: 50, Events: true},
		"validated":           {Size: 10_000, Iterations: 30, Validate: true},
		"shallow":             {Iterations: 50, RxDepth: 1},
		"one message":         {Iterations: 1},
		"UC":                  {Service: UC, Iterations: 200},
		"UC, long, validated": {Service: UC, Size: 100_001, Iterations: 10, Validate: true},
		"UD":                  {Service: UD, Iterations: 200},
		"UD, validated":       {Service: UD, Size: 1000, Iterations: 30, Validate: true},
		"UD, one byte":        {Service: UD, Size: 1, Iterations: 30, Events: true},
		"SRQ":                 {Service: SRQ, Iterations: 200},
		"SRQ, shallow":        {Service: SRQ, Iterations: 200, RxDepth: 16},
		"SRQ, one QP":         {Service: SRQ, Iterations: 50, QPs: 1, Events: true},
		"SRQ, fewer messages": {Service: SRQ, Iterations: 5},
		"XRC":                 {Service: XRC},
		"XRC, events":         {Service: XRC, Iterations: 50, Events: true},
		"XRC, validated":      {Service: XRC, Size: 10_000, Iterations: 50, Validate: true},
		"SRQ, all QPs":        {Service: SRQ, Iterations: 1000, QPs: MaxQPs, Size: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.Linger = -1
			var addresses [2][2][]Address
			sc, cc := cfg, cfg
			sc.OnAddresses = func(l, r []Address) { addresses[0] = [2][]Address{l, r} }
			cc.OnAddresses = func(l, r []Address) { addresses[1] = [2][]Address{r, l} }
			s, c := both(t, sc, cc)
			if s.Err != nil || c.Err != nil {
				t.Fatalf("server: %v; client: %v", s.Err, c.Err)
			}
			if !reflect.DeepEqual(addresses[0], addresses[1]) {
				t.Errorf("the sides saw different addresses: %v", addresses)
			}
			size, iterations := cfg.Size, cfg.Iterations
			if size == 0 {
				size = cfg.Service.DefaultSize()
			}
			if iterations == 0 {
				iterations = cfg.Service.DefaultIterations()
			}
			if want := uint64(2 * size * iterations); s.Res.Bytes != want || c.Res.Bytes != want {
				t.Errorf("bytes: server %d, client %d, expected %d", s.Res.Bytes, c.Res.Bytes, want)
			}
		})
	}
}

func TestServerAloneValidatesInVain(t *testing.T) {
	t.Parallel()
	s, c := both(t, Config{Iterations: 5, Validate: true, Linger: -1}, Config{Iterations: 5, Linger: -1})
	if !errors.Is(s.Err, ErrContent) || c.Err != nil {
		t.Errorf("server: %v (expected %v); client: %v", s.Err, ErrContent, c.Err)
	}
}

// TestClientSequence plays the server by hand: what the client writes, and
// when, is what the original expects.
func TestClientSequence(t *testing.T) {
	t.Parallel()
	dev, _ := testpair.Devices(t)
	sc, cc := testpair.Connections(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the test is over")
	done := make(chan error, 1)
	go func() {
		_, err := Run(ctx, dev, cc, interop.Client, Config{Iterations: 1})
		done <- err
	}()
	b := make([]byte, 64)
	n, err := sc.Read(b) // one read, as the original does
	if n != 52 || err != nil {
		t.Fatalf("read %d bytes, %v; expected 52", n, err)
	}
	if a, err := plainForm.parse(b[:n]); err != nil || a.GID.Addr() != dev.Addr() {
		t.Errorf("the client's address is %v, %v", a, err)
	}
	sc.Write([]byte("0000:000011:9a1b2c:00000000000000000000ffffc0000201\x00"))
	n, err = sc.Read(b)
	if string(b[:n]) != "done\x00" || err != nil {
		t.Errorf("read %q, %v; expected the end of the exchange", b[:n], err)
	}
	if n, err := sc.Read(b); err != io.EOF {
		t.Errorf("read %q, %v; expected the client to close", b[:n], err)
	}
	cancel(gone)
	if err := <-done; !errors.Is(err, gone) {
		t.Errorf("the client ended with %v, expected the cause of its context", err)
	}
}

func TestHostilePeers(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		role interop.Role
		send string
		want string
	}{
		"nothing":      {interop.Server, "", "closed the control connection"},
		"short":        {interop.Server, golden[:20], "20 bytes"},
		"garbage":      {interop.Server, strings.Repeat("GET / HTTP/1.1\r\n", 200), "HTTP client"},
		"no GID":       {interop.Server, "0000:000011:9a1b2c:00000000000000000000000000000000\x00", "-g"},
		"multicast":    {interop.Server, "0000:000011:9a1b2c:00000000000000000000ffffe0000001\x00", "no address of a host"},
		"IPv6":         {interop.Server, "0000:000011:9a1b2c:fd0000aa000000000000000000000002\x00", "IP versions"},
		"wrong end":    {interop.Server, "0000:000011:9a1b2c:00000000000000000000ffffc0000202\x00DONE\x00", `"DONE`},
		"no end":       {interop.Server, "0000:000011:9a1b2c:00000000000000000000ffffc0000202\x00", "end of the exchange"},
		"client short": {interop.Client, golden[:51], "51 bytes"},
		"client none":  {interop.Client, "", "nothing came"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dev, _ := testpair.Devices(t)
			own, peer := testpair.Connections(t)
			go func() {
				io.WriteString(peer, tt.send)
				peer.(interface{ CloseWrite() error }).CloseWrite()
				io.Copy(io.Discard, peer)
				peer.Close()
			}()
			_, err := Run(t.Context(), dev, own, tt.role, Config{Linger: -1})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is %v; expected it to say %q", err, tt.want)
			}
			if len(err.Error()) > 600 {
				t.Errorf("the error quotes %d bytes", len(err.Error()))
			}
		})
	}
}

func TestSilentPeerEndsByTimeout(t *testing.T) {
	t.Parallel()
	dev, _ := testpair.Devices(t)
	own, _ := testpair.Connections(t)
	_, err := Run(t.Context(), dev, own, interop.Server, Config{HandshakeTimeout: 20 * time.Millisecond})
	var pe *interop.ProtocolError
	if !errors.As(err, &pe) || pe.Step != "address" {
		t.Errorf("error is %v; expected a protocol error of the step \"address\"", err)
	}
}

func TestDeadPeerEndsTheRun(t *testing.T) {
	t.Parallel()
	// A server whose client never sends waits no longer than IdleTimeout.
	dev, _ := testpair.Devices(t)
	own, peer := testpair.Connections(t)
	go io.WriteString(peer, "0000:000011:9a1b2c:00000000000000000000ffffc0000202\x00done\x00")
	_, err := Run(t.Context(), dev, own, interop.Server, Config{IdleTimeout: 20 * time.Millisecond})
	if !errors.Is(err, interop.ErrNoProgress) {
		t.Errorf("the server's error is %v; expected %v", err, interop.ErrNoProgress)
	}
	// A client whose server is not there gets its own completion error.
	own, peer = testpair.Connections(t)
	go io.WriteString(own, "0000:000011:9a1b2c:00000000000000000000ffffc0000201\x00")
	_, err = Run(t.Context(), dev, peer, interop.Client, Config{})
	var ce *interop.CompletionError
	if !errors.As(err, &ce) || ce.WC.Status != verbs.StatusRetryExcErr {
		t.Errorf("the client's error is %v; expected RETRY_EXC_ERR", err)
	}
}

func TestBadConfigs(t *testing.T) {
	t.Parallel()
	dev, _ := testpair.Devices(t)
	for name, cfg := range map[string]Config{
		"size":       {Size: -1},
		"huge":       {Size: MaxSize + 1},
		"iterations": {Iterations: -1},
		"depth":      {RxDepth: -1},
		"MTU":        {MTU: 9},
	} {
		own, _ := testpair.Connections(t)
		_, err := Run(t.Context(), dev, own, interop.Client, cfg)
		var ce *interop.ConfigError
		if !errors.As(err, &ce) {
			t.Errorf("%s: error is %v; expected a ConfigError", name, err)
		}
	}
}
