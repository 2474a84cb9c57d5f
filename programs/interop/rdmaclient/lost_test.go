package rdmaclient

import (
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/programs/interop/internal/testpair"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport/fault"
)

// TestLastAcknowledgementLost has a client that gets no acknowledgement before
// the server, which has its message, disconnects.
func TestLastAcknowledgementLost(t *testing.T) {
	t.Parallel()
	acks := fault.Rule{Action: fault.Drop, Direction: fault.Rx, Opcodes: []rocev2.Opcode{rocev2.RCAcknowledge, rocev2.XRCAcknowledge}}
	for name, mode := range map[string]Mode{"plain": Plain, "one way": OneWay, "XRC": XRC} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sw := fabric.NewSwitch(fabric.Config{})
				a, b := testpair.DeviceOn(t, sw, "192.0.2.1"), testpair.DeviceOn(t, sw, "192.0.2.2", acks)
				done := make(chan error, 1)
				go func() { done <- Serve(t.Context(), a, portOf(a), Config{Mode: mode, Clients: 1}) }()
				synctest.Wait()
				res, err := Run(t.Context(), b, portOf(a), Config{Mode: mode})
				if err != nil || res.Sent != 1 || res.Unconfirmed != 1 || (res.Received == 1) != (mode == Plain) {
					t.Errorf("the client has %+v, %v", res, err)
				}
				if err := <-done; err != nil {
					t.Errorf("the server ends with %v", err)
				}
			})
		})
	}
}

// TestServerLeavesWithoutAnAnswer has a client whose server disconnects instead
// of sending its message.
func TestServerLeavesWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := connected(t, Config{}, Config{})
		e.clientPeer.Leave()
		if err := e.client.run(nil); err == nil || e.client.result().Received != 0 {
			t.Errorf("the client ends with %v, %+v", err, e.client.result())
		}
	})
}
