package pingpong

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/testpair"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// TestLossEndsTheRun checks that a ping-pong over an unreliable service does
// not wait for ever for what was lost, as the originals do.
func TestLossEndsTheRun(t *testing.T) {
	t.Parallel()
	for _, service := range []Service{UC, UD} {
		t.Run(service.String(), func(t *testing.T) {
			t.Parallel()
			a, b := verbstest.Devices(t, verbstest.Config{Network: fabric.Config{Port: fabric.PortConfig{Loss: 0.05}}})
			sc, cc := testpair.Connections(t)
			cfg := Config{Service: service, Size: 64, Iterations: 10_000, LossTimeout: 200 * time.Millisecond}
			served := make(chan error, 1)
			go func() {
				_, err := Run(t.Context(), a, sc, interop.Server, cfg)
				served <- err
			}()
			_, err := Run(t.Context(), b, cc, interop.Client, cfg)
			for side, err := range map[string]error{"client": err, "server": <-served} {
				var loss *interop.LossError
				if !errors.As(err, &loss) {
					t.Errorf("the %s's error is %v", side, err)
				} else if loss.Service != service.traits().service || loss.Silence != cfg.LossTimeout || loss.Sent > 10_000 {
					t.Errorf("the %s's error is %+v", side, loss)
				}
			}
		})
	}
}

func (s Service) traits() *traits { return &allTraits[s] }

// TestOtherNumberOfQPsIsNamed starts the two sides with different numbers of
// queue pairs.
func TestOtherNumberOfQPsIsNamed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		server, client int
		want           string
	}{
		{4, 2, "4 here, 2 there"},
		{2, 4, "2 here, at least 3 there"},
	} {
		s, _ := both(t, Config{Service: SRQ, QPs: tt.server, Iterations: 20}, Config{Service: SRQ, QPs: tt.client, Iterations: 20})
		if s.Err == nil || !strings.Contains(s.Err.Error(), tt.want) {
			t.Errorf("%d queue pairs at the server, %d at the client: the server's error is %v", tt.server, tt.client, s.Err)
		}
	}
}

// TestOneQueuePair: services other than SRQ have one, and the error says so.
func TestOneQueuePair(t *testing.T) {
	t.Parallel()
	s, c := both(t, Config{QPs: 4}, Config{Service: UD, QPs: 0, Iterations: 1})
	if s.Err == nil || !strings.Contains(s.Err.Error(), "the number of queue pairs is 4; rc has one") {
		t.Errorf("%v", s.Err)
	}
	if c.Err != nil && strings.Contains(c.Err.Error(), "number of queue pairs") {
		t.Errorf("none was asked for: %v", c.Err)
	}
}

// TestSRQClientSequence plays the server of srq_pingpong by hand.
func TestSRQClientSequence(t *testing.T) {
	t.Parallel()
	dev, _ := testpair.Devices(t)
	sc, cc := testpair.Connections(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the test is over")
	ended := make(chan error, 1)
	go func() {
		_, err := Run(ctx, dev, cc, interop.Client, Config{Service: SRQ, Iterations: 1, QPs: 2})
		ended <- err
	}()
	b := make([]byte, 256*52)
	if _, err := io.ReadFull(sc, b); err != nil {
		t.Fatal(err)
	}
	for i := range 256 {
		a, err := plainForm.parse(b[i*52:][:52])
		if err != nil || a.unused() != (i >= 2) || !a.unused() && a.GID.Addr() != dev.Addr() || a.unused() && a != (Address{}) {
			t.Errorf("address %d is %v, %v", i, a, err)
		}
	}
	tr := SRQ.traits()
	peer := Address{QPN: 0x11, PSN: 1, GID: interop.GIDOf(netip.MustParseAddr("192.0.2.1"))}
	sc.Write(tr.messages([]Address{peer, {QPN: 0x12, PSN: 2, GID: peer.GID}}))
	if rest, err := io.ReadAll(sc); string(rest) != "done\x00" || err != nil {
		t.Errorf("read %q, %v; expected the end of the exchange, and of the connection", rest, err)
	}
	cancel(gone)
	if err := <-ended; !errors.Is(err, gone) {
		t.Errorf("the client ended with %v, expected the cause of its context", err)
	}
}

// recorder keeps what one side writes to its control connection.
type recorder struct {
	net.Conn
	wrote bytes.Buffer
}

func (r *recorder) Write(b []byte) (int, error) {
	r.wrote.Write(b)
	return r.Conn.Write(b)
}

// TestXRCControl checks what xsrq_pingpong expects: an address of 66 bytes from
// each side before the run, and an end from each after it.
func TestXRCControl(t *testing.T) {
	t.Parallel()
	var sides [2]*recorder
	s, c := testpair.Both(t, func(dev *verbs.Device, conn net.Conn, role interop.Role) (Result, error) {
		r := &recorder{Conn: conn}
		sides[role] = r
		return Run(t.Context(), dev, r, role, Config{Service: XRC, Linger: -1})
	})
	if s.Err != nil || c.Err != nil {
		t.Fatalf("server: %v; client: %v", s.Err, c.Err)
	}
	for role, r := range sides {
		b := r.wrote.Bytes()
		if len(b) != 66+4 || string(b[66:]) != "END\x00" {
			t.Fatalf("the %v wrote %q", interop.Role(role), b)
		}
		a, err := extendedForm.parse(b[:66])
		if err != nil || a.QPN == a.Initiator || a.QPN == 0 || a.Initiator == 0 || a.SRQN == 0 {
			t.Errorf("the %v's address is %+v, %v", interop.Role(role), a, err)
		}
	}
}

// TestOtherProgramIsNamed lets a client of one ping-pong come to a server of
// another one: at least one side says what is wrong, and neither hangs.
func TestOtherProgramIsNamed(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second
	for _, tt := range []struct{ server, client Service }{{RC, SRQ}, {SRQ, RC}} {
		s, c := both(t, Config{Service: tt.server, HandshakeTimeout: limit}, Config{Service: tt.client, HandshakeTimeout: limit})
		if s.Err == nil || c.Err == nil || !strings.Contains(s.Err.Error()+c.Err.Error(), "pingpong") {
			t.Errorf("server %v: %v; client %v: %v", tt.server, s.Err, tt.client, c.Err)
		}
	}
}
