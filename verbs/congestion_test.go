package verbs_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

// Two devices send through a link of 1 Gb/s that marks packets: they write, or
// a device that itself slows down for nothing reads from them. With DCQCN,
// which is chosen by its name, their queue pairs have a rate, which is shown,
// and the link is full without losses.
func TestCongestionByRate(t *testing.T) {
	t.Parallel()
	for _, op := range []verbs.Opcode{verbs.OpWrite, verbs.OpRead} {
		synctest.Test(t, func(t *testing.T) { shareBottleneck(t, op) })
	}
}

func shareBottleneck(t *testing.T, op verbs.Opcode) {
	const rate, size, rounds = 1e9, 64 << 10, 100
	sw := fabric.NewSwitch(fabric.Config{})
	device := func(last byte, c fabric.PortConfig, law string) *side {
		p, err := sw.AttachPort(netip.AddrFrom4([4]byte{192, 0, 2, last}), c)
		check(t, err)
		dev, err := verbs.OpenLink(p, verbs.Config{Congestion: law})
		check(t, err)
		t.Cleanup(func() { dev.Close() })
		return newSide(t, dev, 1<<20)
	}
	port := fabric.PortConfig{Rate: 10 * rate, Delay: 5 * time.Microsecond}
	a, b := device(1, port, "dcqcn,line=10G,ai=2M,hai=2M,min=10M,burst=8K"), device(2, port, "dcqcn,line=10G,ai=2M,hai=2M,min=10M,burst=8K")
	port = fabric.PortConfig{Rate: rate, Delay: 5 * time.Microsecond, QueueBytes: 4 << 20, ECNThreshold: 32 << 10}
	sink := device(9, port, "static")
	class := verbs.WithConfig(verbs.ConnectConfig{TrafficClass: 26<<2 | 2})
	toA, toB := sink.qp, sink.newQP(verbs.QPConfig{})
	connect(t, a.qp, toA, class)
	connect(t, b.qp, toB, class)

	began := time.Now()
	shown := uint64(0)
	for range rounds {
		for i, s := range []*side{a, b} {
			wr := verbs.SendWR{ID: 1, Opcode: op, Signaled: true}
			poster, q := s, s.qp
			if op == verbs.OpRead {
				poster, q = sink, [2]*verbs.QP{toA, toB}[i]
				wr.Remote = s.mr.RemoteAt(0)
			} else {
				wr.Remote = sink.mr.RemoteAt(0)
			}
			wr.SGList = []verbs.SGE{poster.mr.Slice(i<<19, size)}
			check(t, q.PostSend(wr))
		}
		if op == verbs.OpRead {
			sink.waitOK(1)
			sink.waitOK(1)
		} else {
			a.waitOK(1)
			b.waitOK(1)
		}
		shown = max(shown, a.qp.Flow().Rate, b.qp.Flow().Rate)
	}
	carried := float64(2*rounds*size*8) / time.Since(began).Seconds()
	sa, sb := a.qp.Stats(), b.qp.Stats()
	t.Logf("%v: %.0f Mb/s, %d and %d cuts, up to %d b/s", op, carried/1e6, sa.RateCuts, sb.RateCuts, shown)
	if carried < .7*rate || shown == 0 || shown > 10*rate {
		t.Errorf("%v: %.0f Mb/s, a rate of %d is shown", op, carried/1e6, shown)
	}
	for _, s := range []verbs.QPStats{sa, sb} {
		if s.RateCuts == 0 || s.RateWaits == 0 || s.CNPsReceived < s.RateCuts || s.Retransmits > 0 || s.WindowCuts > 0 {
			t.Errorf("%v: %d rate cuts, %d waits, %d CNPs, %d packets sent again, %d window cuts", op, s.RateCuts, s.RateWaits, s.CNPsReceived, s.Retransmits, s.WindowCuts)
		}
	}
}

// What congestion control is asked for is checked when a device is opened, or a
// queue pair made. The link is closed then.
func TestCongestionChoice(t *testing.T) {
	t.Parallel()
	open := func(c verbs.Config) (*verbs.Device, error) {
		la, lb := fabric.Pair(addrA, addrB)
		t.Cleanup(func() { lb.Close() })
		dev, err := verbs.OpenLink(la, c)
		if err != nil {
			if again, err := verbs.OpenLink(la, verbs.Config{}); err == nil {
				defer again.Close()
				cq, err := again.CreateCQ(1)
				check(t, err)
				if _, err := cq.Wait(t.Context(), make([]verbs.WC, 1)); !errors.Is(err, verbs.ErrClosed) {
					t.Errorf("the link is open: %v", err)
				}
			}
		}
		return dev, err
	}
	for text, want := range map[string]string{
		"reno":         `verbs: open device on 192.0.2.1: field Congestion: bad choice of congestion control: "reno" is none of window, static, dcqcn, dcqcn-adapter, dcqcn-host`,
		"dcqcn,rate=1": "the options of DCQCN are line, min, ai, hai and burst",
	} {
		if _, err := open(verbs.Config{Congestion: text}); !errors.Is(err, verbs.ErrCongestion) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
		if verbs.CheckCongestion(text) == nil {
			t.Errorf("CheckCongestion takes %q", text)
		}
	}
	var bad *verbs.RangeError
	if _, err := open(verbs.Config{NotifyClass: 256}); !errors.As(err, &bad) || bad.What != "NotifyClass" {
		t.Errorf("NotifyClass 256: %v", err)
	}
	if _, err := open(verbs.Config{NotifyScope: "host"}); !errors.Is(err, verbs.ErrCongestion) || !strings.Contains(err.Error(), `field NotifyScope`) {
		t.Errorf("NotifyScope host: %v", err)
	}
	for _, text := range []string{"", "window", "static", "dcqcn", "dcqcn-adapter"} {
		dev, err := open(verbs.Config{Congestion: text, NotifyClass: -1, NotifyInterval: time.Microsecond, MaxWindow: 300_000})
		check(t, err)
		defer dev.Close()
		s := newSide(t, dev, 4096)
		for _, own := range []string{"window", "static,bytes=64K", "dcqcn,line=25G", "dcqcn-adapter"} {
			q := s.newQP(verbs.QPConfig{Congestion: own})
			want := 128 << 10
			if own == "static,bytes=64K" {
				want = 64 << 10
			}
			if f := q.Flow(); f.Window != want || f.Rate != 0 {
				t.Errorf("%q in %q: %+v", own, text, f)
			}
		}
		if _, err := s.pd.CreateQP(verbs.QPConfig{SendCQ: s.cq, RecvCQ: s.cq, Congestion: "x"}); !errors.Is(err, verbs.ErrCongestion) {
			t.Errorf("a queue pair with x: %v", err)
		}
		for _, typ := range []verbs.QPType{verbs.UC, verbs.UD} {
			_, err := s.pd.CreateQP(verbs.QPConfig{Type: typ, SendCQ: s.cq, RecvCQ: s.cq, Congestion: "dcqcn"})
			if !errors.Is(err, verbs.ErrCongestion) || !strings.Contains(err.Error(), typ.String()+" has none") {
				t.Errorf("%v with congestion control: %v", typ, err)
			}
		}
	}
}
