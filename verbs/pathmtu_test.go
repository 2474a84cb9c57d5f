package verbs_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// mtuLink is a link whose interface has an MTU of its own, and another one to
// leave by.
type mtuLink struct {
	transport.Link
	own, leaves atomic.Int64 // leaves 0: packets leave by the link's interface
}

func (l *mtuLink) ReadLinkMTU(peer netip.Addr) int {
	if n := l.leaves.Load(); peer.IsValid() && n > 0 {
		return int(min(n, l.own.Load()))
	}
	return int(l.own.Load())
}

func (l *mtuLink) Capabilities() transport.Capabilities {
	c := l.Link.Capabilities()
	c.LinkMTU = l.ReadLinkMTU(netip.Addr{})
	c.MTU = rocev2.LargestMTU(c.LinkMTU)
	return c
}

// mtuSides makes two sides whose links have the MTUs given, not connected.
func mtuSides(t *testing.T, mtuA, mtuB int) (a, b *side, la, lb *mtuLink) {
	t.Helper()
	pa, pb := fabric.Pair(addrA, addrB)
	la, lb = &mtuLink{Link: pa}, &mtuLink{Link: pb}
	la.own.Store(int64(mtuA))
	lb.own.Store(int64(mtuB))
	da, err := verbs.OpenLink(la, verbs.Config{})
	check(t, err)
	db, err := verbs.OpenLink(lb, verbs.Config{})
	check(t, err)
	t.Cleanup(func() { check(t, da.Close()); check(t, db.Close()) })
	return newSide(t, da, 64<<10), newSide(t, db, 64<<10), la, lb
}

// TestDefaultPathMTU: two hosts whose links differ arrive at the same path MTU.
func TestDefaultPathMTU(t *testing.T) {
	t.Parallel()
	for name, mtus := range map[string][2]int{"one is smaller": {9000, 1500}, "the other": {1500, 9000}, "the same": {9000, 9000}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b, _, _ := mtuSides(t, mtus[0], mtus[1])
			check(t, a.qp.Connect(t.Context(), overJSON(t, b.qp.Endpoint())))
			check(t, b.qp.Connect(t.Context(), overJSON(t, a.qp.Endpoint())))
			want := rocev2.LargestMTU(min(mtus[0], mtus[1]))
			if got, peers := a.qp.Query().PathMTU, b.qp.Query().PathMTU; got != want || peers != want {
				t.Errorf("path MTUs are %v and %v, want %v", got, peers, want)
			}
			for _, dir := range [][2]*side{{a, b}, {b, a}} {
				dir[0].post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, SGList: []verbs.SGE{dir[0].mr.Slice(0, 20000)}, Remote: dir[1].mr.RemoteAt(0)})
				dir[0].waitOK(1)
			}
		})
	}
}

// TestPathMTUOfEndpoint: an Endpoint without a path MTU, as earlier versions
// and programs make it, and one with nonsense; a path MTU that the program
// chooses.
func TestPathMTUOfEndpoint(t *testing.T) {
	t.Parallel()
	a, b, la, _ := mtuSides(t, 9000, 1500)
	end := b.qp.Endpoint()
	if end.PathMTU != verbs.MTU1024 {
		t.Errorf("the Endpoint of a link with an MTU of 1500 has path MTU %v", end.PathMTU)
	}
	for m, want := range map[verbs.MTU]string{77: "MTU(77) is not one of the codes", 1024: "MTU(1024) is a number of bytes"} {
		end.PathMTU = m
		if err := a.qp.Connect(t.Context(), end); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("path MTU %d: %v", m, err)
		}
	}
	connectTo := func(end verbs.Endpoint, opts ...verbs.ConnectOption) (verbs.MTU, error) {
		q := a.newQP(verbs.QPConfig{})
		defer q.Close()
		err := q.Connect(t.Context(), end, opts...)
		return q.Query().PathMTU, err
	}
	end.PathMTU = 0
	if got, err := connectTo(end); err != nil || got != verbs.MTU4096 {
		t.Errorf("without the peer's path MTU: %v, %v", got, err)
	}
	if got, err := connectTo(b.qp.Endpoint(), verbs.WithMTU(verbs.MTU2048)); err != nil || got != verbs.MTU2048 {
		t.Errorf("with a path MTU of the program's: %v, %v", got, err)
	}
	// The address is on an interface with a large MTU, and packets leave by
	// another.
	la.leaves.Store(1500)
	if got, err := connectTo(end); err != nil || got != verbs.MTU1024 {
		t.Errorf("over another interface: %v, %v", got, err)
	}
	if _, err := connectTo(end, verbs.WithMTU(verbs.MTU4096)); err == nil ||
		!strings.Contains(err.Error(), "the way from 192.0.2.1 to 192.0.2.2 carries: the MTU of 1500 there leaves room for 1024") {
		t.Errorf("a path MTU that the way does not carry: %v", err)
	}
}

// TestQueryPortReadsMTU: the port's MTU is what it is now.
func TestQueryPortReadsMTU(t *testing.T) {
	t.Parallel()
	a, _, la, _ := mtuSides(t, 9000, 9000)
	la.own.Store(1500)
	if p := a.dev.QueryPort(); p.LinkMTU != 1500 || p.ActiveMTU != verbs.MTU1024 {
		t.Errorf("after the MTU has changed: %+v", p)
	}
	if m := a.qp.Endpoint().PathMTU; m != verbs.MTU1024 {
		t.Errorf("the Endpoint has path MTU %v", m)
	}
}

// newJumboPair makes two connected sides on a network for 9000 bytes of IP.
func newJumboPair(t *testing.T) (sw *fabric.Switch, a, b *side) {
	sw = fabric.NewSwitch(fabric.Config{LinkMTU: 9000})
	open := func(addr netip.Addr) *side {
		port, err := sw.Attach(addr)
		check(t, err)
		dev, err := verbs.OpenLink(port, verbs.Config{})
		check(t, err)
		t.Cleanup(func() { check(t, dev.Close()) })
		return newSide(t, dev, 64<<10)
	}
	a, b = open(addrA), open(addrB)
	connect(t, a.qp, b.qp)
	return sw, a, b
}

// TestLinkMTUShrinks: packets that do not fit any more are not lost in silence.
// The connection goes on if the MTU comes back in time.
func TestLinkMTUShrinks(t *testing.T) {
	t.Parallel()
	for _, recovers := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			sw, a, b := newJumboPair(t)
			small := a.newQP(verbs.QPConfig{MaxSendWR: 1})
			other := b.newQP(verbs.QPConfig{})
			connect(t, small, other, verbs.WithMTU(verbs.MTU1024))
			sw.SetLinkMTU(1500)
			a.post(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, SGList: []verbs.SGE{a.mr.Slice(0, 20000)}, Remote: b.mr.RemoteAt(0)})
			e, err := a.dev.AsyncEvent(t.Context())
			check(t, err)
			if e.Event != verbs.EventPathMTU || e.QP != a.qp || !strings.Contains(e.String(), "PATH_MTU on QP") {
				t.Errorf("event %v", e)
			}
			if recovers {
				sw.SetLinkMTU(9000)
				a.waitOK(1)
			} else if wc := a.wait(); wc.Status != verbs.StatusRetryExcErr {
				t.Errorf("completion %v", wc.Status)
			}
			check(t, small.PostSend(verbs.SendWR{ID: 2, Opcode: verbs.OpWrite, Signaled: true,
				SGList: []verbs.SGE{a.mr.Slice(0, 4096)}, Remote: b.mr.RemoteAt(0)}))
			a.waitOK(2)
		})
	}
}

// TestPathMTUEventEndsWithItsQueuePair: closing the queue pair drops the event,
// as it drops all others of its own.
func TestPathMTUEventEndsWithItsQueuePair(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sw, a, b := newJumboPair(t)
		sw.SetLinkMTU(1500)
		a.post(verbs.SendWR{Opcode: verbs.OpWrite, SGList: []verbs.SGE{a.mr.Slice(0, 20000)}, Remote: b.mr.RemoteAt(0)})
		if wc := a.wait(); wc.Status != verbs.StatusRetryExcErr {
			t.Fatalf("completion %v", wc)
		}
		check(t, a.qp.Close())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if e, err := a.dev.AsyncEvent(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("event %v (%v) after its queue pair was closed", e, err)
		}
	})
}
