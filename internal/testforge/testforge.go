// Package testforge sends requests for connections that are forged: their
// sender answers nothing.
package testforge

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// Requests sends n requests of one host to a port, each with the same private
// data. The device must have no connection manager.
func Requests(t testing.TB, dev *verbs.Device, to netip.AddrPort, private []byte, n int) {
	t.Helper()
	qp, ah := sender(t, dev, to.Addr(), n)
	for i := range n {
		ip := mad.IPHeader{SourcePort: uint16(1000 + i), Source: dev.Addr(), Destination: to.Addr()}
		req := mad.REQ{
			LocalID: mad.CommID(1 + rand.Uint32()>>1), LocalGUID: mad.GUID(rand.Uint64()), LocalQPN: verbs.QPN(20 + i),
			ServiceID: cm.TCP.Service(to.Port()), PKey: 0xffff, PathMTU: 3, MaxRetries: 15, RetryCount: 7,
			RemoteResponseTimeout: 20, LocalResponseTimeout: 20,
			Primary: mad.Path{LocalGID: dev.Addr(), RemoteGID: to.Addr(), AckTimeout: 14},
			Private: append(ip.AppendTo(nil), private...),
		}
		must(t, qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: req.AppendTo(nil), AH: ah, RemoteQPN: 1, RemoteQKey: verbs.HighQKey}))
	}
}

// sender makes the management queue pair of a device, which goes with the test.
func sender(t testing.TB, dev *verbs.Device, to netip.Addr, depth int) (*verbs.QP, *verbs.AddressHandle) {
	t.Helper()
	pd, err := dev.AllocPD()
	must(t, err)
	cq, err := dev.CreateCQ(depth)
	must(t, err)
	qp, err := pd.CreateQP(verbs.QPConfig{Type: verbs.GSI, SendCQ: cq, RecvCQ: cq, MaxSendWR: depth, MaxInline: mad.Len})
	must(t, err)
	must(t, qp.Activate(0))
	ah, err := pd.CreateAH(verbs.AddressVector{DGID: to})
	must(t, err)
	t.Cleanup(func() {
		qp.Close()
		cq.Close()
		ah.Close()
		pd.Close()
	})
	return qp, ah
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
