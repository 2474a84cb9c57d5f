package secure

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// over is a connection of TLS that its peer has closed.
type over struct{ read error }

var errClosed = errors.New("the peer has closed the connection")

func (over) Write([]byte) (int, error)  { return 0, errClosed }
func (o over) Read([]byte) (int, error) { return 0, o.read }

// TestRefusedBeforeStep has the peer refuse this side, and close, before a step
// is said: what the peer has said is the error, and not that it has closed.
func TestRefusedBeforeStep(t *testing.T) {
	t.Parallel()
	alert := &net.OpError{Op: "remote error", Err: errors.New("tls: expired certificate")}
	if err := Explain(step(over{alert}, 1)); !strings.Contains(err.Error(), "as expired") {
		t.Error(err)
	}
	for _, read := range []error{io.EOF, errClosed} {
		if err := step(over{read}, 1); !errors.Is(err, errClosed) {
			t.Errorf("%v; want %v", err, errClosed)
		}
	}
}
