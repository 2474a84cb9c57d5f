//go:build linux

package uverbs

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/hca/strict"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
	fake "github.com/gosoftroce/rocev2/programs/uverbs/uverbstest"
)

// strictPair is pair in strict mode.
func strictPair(t *testing.T, profile string, o options) (a, b *appQP) {
	t.Helper()
	la, lb := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
	k, err := strict.New(strict.Config{Rules: "on", Profile: profile})
	if err != nil {
		t.Fatal(err)
	}
	da, db := &Device{Name: "rxe_a", Dev: hca.New(hca.Config{Strict: k}, la)}, &Device{Name: "rxe_b", Dev: hca.New(hca.Config{}, lb)}
	t.Cleanup(func() {
		da.Dev.Close()
		db.Dev.Close()
	})
	a, b = start(t, da).newQP(o), start(t, db).newQP(o)
	a.connect(b)
	b.connect(a)
	return a, b
}

func (q *appQP) found(rules ...string) []strict.Finding {
	q.p.t.Helper()
	list := q.p.dev.Dev.Strict().Findings()
	var got []string
	for _, f := range list {
		got = append(got, f.Rule)
	}
	if !slices.Equal(got, rules) {
		q.p.t.Errorf("found %v, want %v", list, rules)
	}
	return list
}

// polled is what the preloaded library says after a poll.
func (q *appQP) polled() { q.p.c.Polled(q.cq.handle) }

// TestStrictSendQueue: a slot is free when the completion of a later signaled
// request was polled.
func TestStrictSendQueue(t *testing.T) {
	t.Parallel()
	a, b := strictPair(t, "", options{})
	if !a.p.c.TellsPolls() {
		t.Fatal("nothing tells of polls")
	}
	request := func(id uint64, signaled bool) fake.SendWR {
		w := a.write(id, 8, b.p, 0)
		if !signaled {
			w.Flags = 0
		}
		return w
	}
	done := func(n uint64) {
		t.Helper()
		eventually(t, "the requests complete", func() bool {
			a.p.dev.Dev.Progress()
			b.p.dev.Dev.Progress()
			return a.Queues.send.ring.Released() == n
		})
	}
	for i := range uint64(14) {
		a.post(request(i, i == 3))
	}
	a.post(request(14, false))
	done(15)
	if a.send.PostSend(request(99, false)) {
		t.Error("a slot was free before a completion was polled")
	}
	a.found()
	a.cq.expect(ib.StatusSuccess, 3)
	a.polled()
	for i := range uint64(4) {
		a.post(request(20+i, false))
	}
	if a.send.PostSend(request(99, false)) {
		t.Error("a slot was free whose request is after the one that was polled")
	}
	if f := a.found("unsignaled"); len(f) == 1 && f[0].WRID != 23 {
		t.Errorf("%+v", f[0])
	}
	a.reset()
	a.connect(b)
	b.reset()
	b.connect(a)
	for i := range uint64(200) {
		a.post(request(i, true))
		a.cq.expect(ib.StatusSuccess, i)
		a.polled()
	}
	if f := a.found("unsignaled"); f[0].Count != 1 {
		t.Errorf("%+v", f[0])
	}
}

// TestStrictRingsGo: a completion that is polled after the end of its queue
// pair touches no ring of that, and one after a resize is of the same request.
func TestStrictRingsGo(t *testing.T) {
	t.Parallel()
	a, b := strictPair(t, "", options{})
	a.post(a.write(1, 8, b.p, 0), a.write(2, 8, b.p, 0))
	eventually(t, "both complete", func() bool { n, _ := a.cq.Len(); return n == 2 })
	a.cq.expect(ib.StatusSuccess, 1)
	var resp abi.ResizeCQResp
	var mi abi.MMInfo
	write(a.p, fake.Plain(abi.ResizeCQ, 16+16, abi.ResizeCQReq{CqHandle: a.cq.handle, Cqe: 500}), &resp, &mi)
	a.cq.Ring = a.p.mapped(mi)
	if a.polled(); a.Queues.send.ring.Held() != 1 {
		t.Errorf("%d slots are held, want that of one completion", a.Queues.send.ring.Held())
	}
	a.cq.expect(ib.StatusSuccess, 2)
	if a.polled(); a.Queues.send.ring.Held() != 0 {
		t.Errorf("%d slots are held", a.Queues.send.ring.Held())
	}
	a.post(a.write(3, 8, b.p, 0))
	eventually(t, "it completes", func() bool { n, _ := a.cq.Len(); return n == 1 })
	write(a.p, fake.Plain(abi.DestroyQP, 4, abi.DestroyQPReq{QpHandle: a.QpHandle}), new(abi.DestroyQPResp))
	a.cq.expect(ib.StatusSuccess, 3)
	a.polled()
	if n := len(a.cq.held); n != 0 {
		t.Errorf("%d slots of a queue pair that is gone are held", n)
	}
	a.found()
}

// TestStrictOverrun: the queue takes nothing more, and the queue pairs that
// complete there end.
func TestStrictOverrun(t *testing.T) {
	t.Parallel()
	a, b := strictPair(t, "", options{depth: 63})
	cq := a.p.newCQ(3)
	q, peer := a.p.newQP(options{cq: cq}), b.p.newQP(options{})
	q.connect(peer)
	peer.connect(q)
	idle := a.p.newQP(options{cq: cq})
	idle.connect(peer)
	for i := range uint64(5) {
		q.post(q.write(i, 8, b.p, 0))
	}
	for _, x := range []*appQP{q, idle} {
		eventually(t, "the queue pairs end", func() bool {
			a.p.dev.Dev.Progress()
			return x.Queues.qp.State() == ib.StateErr
		})
	}
	if s := a.Queues.qp.State(); s != ib.StateRTS {
		t.Errorf("a queue pair of another queue is in %v", s)
	}
	cq.expect(ib.StatusSuccess, 0, 1, 2)
	cq.none()
	a.found("cq-overrun")
}

// TestStrictIDs: findings name the program's own requests.
func TestStrictIDs(t *testing.T) {
	t.Parallel()
	a, b := strictPair(t, "", options{})
	w := a.write(0xabcd, 8, b.p, 0)
	w.SGE[0].LKey ^= 1
	a.post(w)
	a.cq.expect(ib.StatusLocProtErr, 0xabcd)
	if f := a.found("bad-access"); len(f) == 1 && (f[0].WRID != 0xabcd || f[0].QPN != a.Qpn || f[0].Key != uint32(w.SGE[0].LKey)) {
		t.Errorf("%+v", f[0])
	}
}

// TestStrictLimits: what a profile says is what queries tell and what is taken.
func TestStrictLimits(t *testing.T) {
	t.Parallel()
	for _, p := range strict.Profiles {
		a, _ := strictPair(t, p.Name, options{sge: 1})
		got := ask[abi.QueryDeviceResp](a.p, abi.QueryDevice, abi.QueryDeviceReq{})
		l := p.Limits
		if int(got.MaxSge) != l.SGE || int(got.MaxSgeRd) != l.ReadSGE || int(got.MaxQpRdAtom) != l.RdAtomic || int(got.MaxQpWr) > l.WR || int(got.MaxCqe) > l.CQE {
			t.Errorf("%s: %+v", p.Name, got)
		}
		most := a.p.newCQ(16)
		for _, more := range []uint32{0, 1} {
			for i := range 4 {
				req := abi.QPInit{PdHandle: a.p.pd, SendCqHandle: most.handle, RecvCqHandle: most.handle, MaxSendWr: 1, MaxRecvWr: 1, QpType: uint8(ib.RC)}
				switch i {
				case 0:
					req.MaxSendWr = got.MaxQpWr + more
				case 1:
					req.MaxRecvWr = got.MaxQpWr + more
				case 2:
					req.MaxSendSge = got.MaxSge + more
				case 3:
					req.MaxInlineData = uint32(l.Inline) + more
				}
				r := a.p.c.Command(fake.Plain(abi.CreateQP, 64, abi.CreateQPReq{QPInit: req}))
				if (r.Errno == 0) != (more == 0) && r.Errno != abi.ENOMEM {
					t.Errorf("%s: %+v: errno %d", p.Name, req, r.Errno)
				}
			}
		}
	}
}

// TestStrictLastLook: what the program has posted before it closes the device
// is looked at, also where another goroutine was to do so.
func TestStrictLastLook(t *testing.T) {
	t.Parallel()
	a, b := strictPair(t, "", options{})
	a.Queues.send.mu.Lock()
	for i := range uint64(15) {
		w := a.write(i, 8, b.p, 0)
		w.Flags = 0
		a.post(w)
	}
	a.Queues.send.mu.Unlock() // and then it looks, but is too late
	if err := a.p.c.Close(); err != nil {
		t.Fatal(err)
	}
	a.found("unsignaled")
}
