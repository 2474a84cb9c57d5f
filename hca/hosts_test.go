package hca

import (
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

var (
	testAddrA = netip.MustParseAddr("192.0.2.1")
	testAddrB = netip.MustParseAddr("192.0.2.2")
)

// host is a device with what a test needs on it.
type host struct {
	t     *testing.T
	dev   *Device
	owner *Context
	pd    *PD
	mr    *MR
	cq    *CQ
	mtu   rocev2.MTU // of what it connects; 0 is 1024
	slow  bool       // what it connects has a timeout of 8 s, not 67 ms
	rnr   uint8      // MinRNRTimer of what it connects
}

func newHosts(t *testing.T, cfg Config, fc ...fabric.Config) (a, b *host) {
	t.Helper()
	la, lb := fabric.Pair(testAddrA, testAddrB, fc...)
	a, b = &host{t: t, dev: New(cfg, la)}, &host{t: t, dev: New(cfg, lb)}
	a.equip()
	b.equip()
	return a, b
}

// equip makes what a test needs on the device.
func (h *host) equip() {
	h.t.Helper()
	h.t.Cleanup(func() { h.dev.Close() })
	var err error
	h.owner, err = h.dev.NewContext()
	h.must(err)
	h.pd, err = h.owner.AllocPD()
	h.must(err)
	h.mr, err = h.pd.Register(memreg.Local(make([]byte, 1<<20)),
		memreg.Options{Access: ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead}, nil)
	h.must(err)
	h.cq, err = h.owner.CreateCQ(4096, nil)
	h.must(err)
}

func (h *host) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) newQP() *QP {
	h.t.Helper()
	q, err := h.owner.CreateQP(qp.Config{PD: h.pd.Core(), SendCQ: h.cq, RecvCQ: h.cq, MaxSendWR: 16, MaxRecvWR: 16})
	h.must(err)
	return q
}

func (h *host) connect(q *QP, addr netip.Addr, qpn rocev2.QPN) {
	h.t.Helper()
	h.connectVia(q, ib.AddressVector{DGID: addr, HopLimit: 64}, qpn)
}

func (h *host) connectVia(q *QP, av ib.AddressVector, qpn rocev2.QPN) {
	h.t.Helper()
	h.must(q.Modify(&ib.Attr{State: ib.StateInit, Port: 1, Access: ib.RemoteWrite | ib.RemoteRead},
		ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccess))
	mtu := h.mtu
	if mtu == 0 {
		mtu = rocev2.MTU1024
	}
	h.must(q.Modify(&ib.Attr{State: ib.StateRTR, AV: av, PathMTU: mtu,
		DestQPN: qpn, MaxDestRdAtomic: 16, MinRNRTimer: h.rnr},
		ib.AttrState|ib.AttrAV|ib.AttrPathMTU|ib.AttrDestQPN|ib.AttrRQPSN|ib.AttrMaxDestRdAtomic|ib.AttrMinRNRTimer))
	timeout := uint8(14)
	if h.slow {
		timeout = 21
	}
	h.must(q.Modify(&ib.Attr{State: ib.StateRTS, Timeout: timeout, RetryCount: 7, RNRRetry: 7, MaxRdAtomic: 16},
		ib.AttrState|ib.AttrTimeout|ib.AttrRetryCount|ib.AttrRNRRetry|ib.AttrSQPSN|ib.AttrMaxRdAtomic))
}

func (h *host) write(q *QP, to *host, n uint32) {
	h.t.Helper()
	_, err := q.PostSend([]ib.SendWR{{Opcode: ib.OpWrite, Signaled: true, SGList: []ib.SGE{h.mr.Region().SGE(0, n)},
		Remote: ib.RemoteAddr{Addr: to.mr.Region().Addr(), RKey: to.mr.Region().RKey()}}})
	h.must(err)
}

func (h *host) waitOK(n int) {
	h.t.Helper()
	var wc [64]ib.WC
	for n > 0 {
		k, err := h.cq.Wait(h.t.Context(), wc[:])
		h.must(err)
		for _, c := range wc[:k] {
			if c.Status != ib.StatusSuccess {
				h.t.Fatalf("completion %+v (%v)", c, c.Status)
			}
		}
		n -= k
	}
}
