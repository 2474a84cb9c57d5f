package ping

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// answerer answers SIDR_REQs on a device as connection managers do, until the
// device is closed.
func answerer(t *testing.T, dev *verbs.Device, answer func(mad.SIDRREQ) []mad.SIDRREP) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pd, err := dev.AllocPD()
	check(err)
	cq, err := dev.CreateCQ(16)
	check(err)
	qp, err := pd.CreateQP(verbs.QPConfig{Type: verbs.GSI, SendCQ: cq, RecvCQ: cq, MaxInline: mad.Len})
	check(err)
	mr, err := pd.AllocMemory(slot, verbs.LocalWrite)
	check(err)
	recv := verbs.RecvWR{ID: 1, SGList: []verbs.SGE{mr.Slice(0, slot)}}
	check(qp.Init())
	check(qp.PostRecv(recv))
	check(qp.Activate(0))
	go func() {
		var wc [4]verbs.WC
		for {
			n, err := cq.Wait(context.Background(), wc[:])
			if err != nil {
				return
			}
			for _, c := range wc[:n] {
				if c.Opcode != verbs.WCRecv || c.Status != verbs.StatusSuccess {
					continue
				}
				var req mad.SIDRREQ
				if err := req.Parse(mr.Bytes()[verbs.GRHLen:c.ByteLen]); err != nil {
					t.Errorf("a ping that is no SIDR_REQ: %v", err)
					return
				}
				ah, err := pd.AHFromWC(c, mr.Bytes())
				if err != nil {
					t.Error(err)
					return
				}
				list := answer(req)
				// The next request follows the answer.
				if err := qp.PostRecv(recv); err != nil {
					return
				}
				for _, rep := range list {
					if err := qp.PostSend(verbs.SendWR{ID: 2, Opcode: verbs.OpSend, Inline: rep.AppendTo(nil), AH: ah, RemoteQPN: 1}); err != nil {
						return
					}
				}
				ah.Close()
			}
		}
	}()
}

func unsupported(req mad.SIDRREQ) []mad.SIDRREP {
	return []mad.SIDRREP{{TransactionID: req.TransactionID, RequestID: req.RequestID, Status: 1, ServiceID: req.ServiceID}}
}

func pinger(t *testing.T, a, b *verbs.Device) *Pinger {
	t.Helper()
	p, err := New(a, b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.Devices(t, verbstest.Config{Network: fabric.Config{Port: fabric.PortConfig{Delay: time.Millisecond}}})
		answerer(t, b, func(req mad.SIDRREQ) []mad.SIDRREP {
			var ip mad.IPHeader
			if _, err := ip.Parse(req.Private); err != nil || ip.Source != a.Addr() || ip.Destination != b.Addr() ||
				req.PKey != 0xffff || req.RequestID == 0 || req.ServiceID != mad.PortSpaceUDP.Service(0) {
				t.Errorf("request %+v, IP header %+v, %v", req, ip, err)
			}
			return unsupported(req)
		})
		p := pinger(t, a, b)
		defer p.Close()
		var seqs []int
		s, err := p.Run(t.Context(), Config{Count: 5, OnReply: func(r Reply) {
			seqs = append(seqs, r.Seq)
			if r.Status != 1 || r.Bytes != mad.Len || r.HopLimit == 0 {
				t.Errorf("%+v", r)
			}
		}})
		if err != nil || s.Sent != 5 || s.Received != 5 || !slices.Equal(seqs, []int{1, 2, 3, 4, 5}) || s.Loss() != 0 {
			t.Fatalf("%+v, %v, answers %v", s, err, seqs)
		}
		if s.Min < time.Millisecond || s.Min > s.Avg || s.Avg > s.Max || s.Elapsed < 4*time.Second || s.Elapsed > 5*time.Second {
			t.Errorf("%+v", s)
		}
	})
}

func TestRunCountsLoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.Devices(t)
		n := 0
		answerer(t, b, func(req mad.SIDRREQ) []mad.SIDRREP {
			n++
			forged := unsupported(req)
			forged[0].RequestID ^= 0x1000
			switch n {
			case 2:
				return nil
			case 3:
				return forged
			case 4:
				return append(unsupported(req), unsupported(req)...) // twice counts once
			}
			return unsupported(req)
		})
		p := pinger(t, a, b)
		defer p.Close()
		var lost []int
		s, err := p.Run(t.Context(), Config{Count: 6, Interval: 100 * time.Millisecond, Timeout: time.Second, OnLost: func(seq int) { lost = append(lost, seq) }})
		if err != nil || s.Sent != 6 || s.Received != 4 || !slices.Equal(lost, []int{2, 3}) {
			t.Errorf("%+v, %v, lost %v", s, err, lost)
		}
		if s.Elapsed > 2*time.Second {
			t.Errorf("took %v", s.Elapsed)
		}
	})
}

func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.Devices(t)
		p := pinger(t, a, b)
		defer p.Close()
		if r, ok, err := p.Once(t.Context(), 0, time.Second); ok || err != nil {
			t.Errorf("%+v, %v", r, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		s, err := p.Run(ctx, Config{})
		if err != nil || s.Sent != 3 || s.Received != 0 || s.Loss() != 1 || s.Avg != 0 {
			t.Errorf("%+v, %v", s, err)
		}
		// A second one gets no queue pair 1, and keeps nothing.
		if _, err := New(a, b.Addr()); !errors.Is(err, verbs.ErrGSIInUse) {
			t.Errorf("error is %v", err)
		}
		answerer(t, b, unsupported)
		if r, ok, err := p.Once(t.Context(), 3, time.Second); !ok || err != nil || r.Seq != 1 {
			t.Errorf("%+v, %v, %v", r, ok, err)
		}
	})
}

// TestOverSockets pings between two addresses of this host.
func TestOverSockets(t *testing.T) {
	t.Parallel()
	open := func(addr string) *verbs.Device {
		dev, err := verbs.OpenAddr(netip.MustParseAddr(addr), verbs.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dev.Close() })
		return dev
	}
	net := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), rand.IntN(256)) // not in use
	a, b := open(net+"1"), open(net+"2")
	answerer(t, b, unsupported)
	p := pinger(t, a, b)
	defer p.Close()
	for range 20 {
		if r, ok, err := p.Once(t.Context(), 0, 30*time.Second); err != nil || !ok {
			t.Fatalf("%+v, %v, %v", r, ok, err)
		}
	}
}

// TestOurManagerAnswers pings a device whose program has a connection manager.
func TestOurManagerAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.Devices(t)
		l, err := cm.Listen(b, netip.AddrPortFrom(b.Addr(), 7471), cm.ListenConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		p := pinger(t, a, b)
		defer p.Close()
		s, err := p.Run(t.Context(), Config{Count: 3, OnReply: func(r Reply) {
			if r.Status != mad.SIDRStatus(1) {
				t.Errorf("%+v", r)
			}
		}})
		if err != nil || s.Received != 3 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

func TestStatistics(t *testing.T) {
	t.Parallel()
	var s Statistics
	if s.Loss() != 0 {
		t.Error("nothing sent is a loss")
	}
	s.Sent = 4
	for _, ms := range []time.Duration{1, 2, 3} {
		s.add(ms * time.Millisecond)
	}
	if s.Min != time.Millisecond || s.Max != 3*time.Millisecond || s.Avg != 2*time.Millisecond || s.Loss() != 0.25 ||
		s.MDev.Round(time.Microsecond) != 816*time.Microsecond {
		t.Errorf("%+v", s)
	}
}
