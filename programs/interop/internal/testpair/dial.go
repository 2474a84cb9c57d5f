package testpair

import (
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// Dial connects a queue pair with a server, and does nothing with it.
func Dial(t testing.TB, dev *verbs.Device, to netip.AddrPort, space cm.PortSpace) *cm.Conn {
	t.Helper()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := dev.CreateCQ(16)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxSendWR: 1, MaxRecvWR: 1})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := cm.Dial(t.Context(), qp, to, cm.DialConfig{Space: space})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}
