package cm_test

import (
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// Over sockets it is the system of the peer that says that the port is closed.
func TestNoDeviceOverSockets(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	dev, err := verbs.Open("127.0.0.1")
	must(t, err)
	h := newHostOn(t, dev)
	_, err = cm.Dial(h.context(), h.qp(verbs.RC), netip.MustParseAddrPort("127.0.0.2:7471"), cm.DialConfig{})
	wantErr(t, "dial", err, cm.ErrNoDevice)
}
