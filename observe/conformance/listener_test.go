package conformance_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/observe/conformance"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// waits takes connections and does nothing with them, until ctx ends.
func waits(ctx context.Context, t *testing.T, dev *verbs.Device, l *cm.Listener) {
	pd, err := dev.AllocPD()
	if err != nil {
		t.Error(err)
		return
	}
	cq, err := dev.CreateCQ(64)
	if err != nil {
		t.Error(err)
		return
	}
	for {
		req, err := l.Accept(ctx)
		if err != nil {
			return
		}
		qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, Number: req.QPN()})
		if err != nil {
			t.Error(err)
			return
		}
		c, err := req.Accept(ctx, qp, cm.AcceptConfig{})
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		c.AfterEnd(func() { qp.Close() })
	}
}

// TestListener: rules that need a connection alone are tested with any program
// that listens, and all others are said to need a target.
func TestListener(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		here, there := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
		dev, err := verbs.OpenLink(there, verbs.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		l, err := cm.Listen(dev, netip.AddrPortFrom(dev.Addr(), 7174), cm.ListenConfig{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go waits(ctx, t, dev, l)
		r, err := conformance.Run(ctx, conformance.Config{Link: here, Listener: 7174, Peer: dev.Addr()})
		if err != nil {
			t.Fatal(err)
		}
		for _, res := range r.Results {
			switch {
			case res.Bare && res.Verdict != conformance.Pass:
				t.Errorf("%s%s", res.Text(), strings.Join(res.Steps, "\n"))
			case !res.Bare && res.Verdict != conformance.NotTested:
				t.Errorf("%s", res.Text())
			}
		}
		if r.Count(conformance.Pass) < 30 {
			t.Error(r.Summary())
		}
	})
}

// TestNoListener: without one, and without a connection manager, the report
// says so.
func TestNoListener(t *testing.T) {
	t.Parallel()
	for name, manager := range map[string]bool{"refuses": true, "does not answer": false} {
		synctest.Test(t, func(t *testing.T) {
			here, there := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
			dev, err := verbs.OpenLink(there, verbs.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			if manager {
				if err := cm.Start(dev); err != nil {
					t.Fatal(err)
				}
			}
			rules, err := conformance.Select([]string{"wire/*"})
			if err != nil {
				t.Fatal(err)
			}
			r, err := conformance.Run(t.Context(), conformance.Config{Link: here, Listener: 7174, Peer: dev.Addr(), Rules: rules})
			if err != nil {
				t.Fatal(err)
			}
			if first := r.Results[0]; first.Verdict != conformance.NotTested || !strings.Contains(first.Why, name) {
				t.Errorf("%s", first.Text())
			}
		})
	}
}
