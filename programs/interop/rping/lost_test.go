package rping

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/testpair"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/transport/fault"
)

// lose runs a server and one client, and loses packets between them.
func lose(t *testing.T, idle time.Duration, faults fault.Rule) (server outcome, client error) {
	t.Helper()
	const pings = 5
	sw := fabric.NewSwitch(fabric.Config{})
	a, b := testpair.DeviceOn(t, sw, "192.0.2.1"), testpair.DeviceOn(t, sw, "192.0.2.2", faults)
	done := make(chan error, 1)
	go func() {
		done <- Serve(t.Context(), a, portOf(a), Config{Clients: 1, IdleTimeout: idle, OnClient: func(_ net.Addr, r Result, _ error) { server.Result = r }})
	}()
	synctest.Wait()
	_, client = Run(t.Context(), b, portOf(a), Config{Count: pings, Validate: true})
	server.err = <-done
	if server.Pings != pings {
		t.Errorf("the server had %d pings, want %d", server.Pings, pings)
	}
	return server, client
}

// TestAnyMessageOfTheManagerLost loses each message of the connection manager
// once, in either direction: both sides end well, and neither waits until it
// gives the other up.
func TestAnyMessageOfTheManagerLost(t *testing.T) {
	t.Parallel()
	for _, d := range []fault.Direction{fault.Tx, fault.Rx} {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprintf("%v %d", d, n), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					start := time.Now()
					server, client := lose(t, time.Minute, fault.Rule{Action: fault.Drop, Direction: d, Opcodes: []rocev2.Opcode{rocev2.UDSendOnly}, Nth: n})
					if client != nil || server.err != nil {
						t.Errorf("client %v, server %v", client, server.err)
					}
					if took := time.Since(start); took > 5*time.Second {
						t.Errorf("it took %v", took)
					}
				})
			})
		}
	}
}

// TestClientLeavesUnheard loses every DREQ of a client that has all its pings.
// The original sends one, and does not wait for the answer. The server ends,
// and says what may have happened.
func TestClientLeavesUnheard(t *testing.T) {
	t.Parallel()
	dreq := func(p *rocev2.Packet) bool {
		h, _, err := mad.Parse(p.Payload)
		return err == nil && h.Attribute == mad.AttrDREQ
	}
	synctest.Test(t, func(t *testing.T) {
		server, client := lose(t, 20*time.Second, fault.Rule{Action: fault.Drop, Direction: fault.Tx, Match: dreq})
		if client != nil {
			t.Errorf("the client ends with %v", client)
		}
		if !errors.Is(server.err, interop.ErrNoProgress) || !strings.Contains(server.err.Error(), "after 5 pings") || !strings.Contains(server.err.Error(), "DREQ") {
			t.Errorf("the server ends with %v", server.err)
		}
	})
}
