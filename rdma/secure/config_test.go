package secure

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testcert"
)

// TestChosenConfig has a client offer TLS 1.2 to a server that chooses a
// configuration for it which would take that.
func TestChosenConfig(t *testing.T) {
	t.Parallel()
	chosen := &tls.Config{Certificates: []tls.Certificate{testcert.New(t).Issue(t, "server", "")}}
	config := minimal(&tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return chosen, nil }})
	for version, want := range map[uint16]bool{tls.VersionTLS12: false, tls.VersionTLS13: true} {
		near, far := net.Pipe()
		done := make(chan error)
		go func() {
			done <- tls.Client(far, &tls.Config{InsecureSkipVerify: true, MaxVersion: version}).Handshake()
			far.Close()
		}()
		err := tls.Server(near, config).Handshake()
		near.Close()
		if <-done; (err == nil) != want {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}
	if chosen.MinVersion != 0 || chosen.SessionTicketsDisabled {
		t.Error("the program's configuration was changed")
	}
}
