package hca

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

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
		DestQPN: qpn, MaxDestRdAtomic: 16},
		ib.AttrState|ib.AttrAV|ib.AttrPathMTU|ib.AttrDestQPN|ib.AttrRQPSN|ib.AttrMaxDestRdAtomic|ib.AttrMinRNRTimer))
	timeout := uint8(14)
	if h.slow {
		timeout = 21
	}
	h.must(q.Modify(&ib.Attr{State: ib.StateRTS, Timeout: timeout, RetryCount: 7, RNRRetry: 7, MaxRdAtomic: 16},
		ib.AttrState|ib.AttrTimeout|ib.AttrRetryCount|ib.AttrRNRRetry|ib.AttrSQPSN|ib.AttrMaxQPRdAtomic))
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

// However many queue pairs there are, together they have no more in flight to a
// peer than its limit, what is shared out beyond it, and a packet of each, and
// all get their turn.
func TestQueuePairsShareThePeersLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const qps, limit, size = 100, 32 << 10, 20000
		a, b := newHosts(t, Config{Window: qp.WindowConfig{MaxBytes: limit}}, fabric.Config{Port: fabric.PortConfig{Delay: time.Millisecond}})
		for range qps {
			qa, qb := a.newQP(), b.newQP()
			a.connect(qa, testAddrB, qb.QPN())
			b.connect(qb, testAddrA, qa.QPN())
			a.write(qa, b, size)
		}
		s := a.dev.shards[0]
		most := 0
		for range 200 {
			time.Sleep(200 * time.Microsecond) // virtual
			synctest.Wait()
			s.mu.Lock()
			for _, p := range s.peers {
				most = max(most, p.acct[accountLive].inFlight)
			}
			s.mu.Unlock()
		}
		if most < limit/2 || most > limit+limit/sharePart+3000 {
			t.Errorf("at most %d bytes were in flight, want about the limit of %d", most, limit)
		}
		a.waitOK(qps)
		a.dev.Settle()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, p := range s.peers {
			a := &p.acct[accountLive]
			if a.inFlight != 0 || a.busy != 0 || p.users != qps || !a.waiting.empty() || p.acct[accountSilent].inFlight != 0 {
				t.Errorf("in the end the peer has %d bytes in flight, %d users", a.inFlight, p.users)
			}
		}
	})
}

// A queue pair that closes while its peer's limit holds it back leaves nothing.
func TestClosedQueuePairsLeaveThePeer(t *testing.T) {
	t.Parallel()
	a, b := newHosts(t, Config{Window: qp.WindowConfig{MaxBytes: 4 << 10}})
	b.must(b.dev.Close()) // nothing is acknowledged
	var qps []*QP
	for range 10 {
		q := a.newQP()
		a.connect(q, testAddrB, 77)
		a.write(q, b, 20000)
		qps = append(qps, q)
	}
	for _, q := range qps {
		a.must(q.Close())
	}
	s := a.dev.shards[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.peers) != 0 || s.next() != nil || len(s.timers) != 0 {
		t.Errorf("%d peers, %d timers left", len(s.peers), len(s.timers))
	}
}

// A queue pair that has failed has nothing in flight, and takes nothing of the
// limit that it shares with others.
func TestFailedQueuePairFreesTheLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why  string
		fail func(a, b *host, q *QP)
	}{
		{"refused READs", func(a, b *host, q *QP) {
			for range 16 {
				_, err := q.PostSend([]ib.SendWR{{Opcode: ib.OpRead, SGList: []ib.SGE{a.mr.Region().SGE(0, 20000)},
					Remote: ib.RemoteAddr{Addr: b.mr.Region().Addr(), RKey: b.mr.Region().RKey() + 1}}})
				a.must(err)
			}
			deliver()
			deliver()
		}},
		{"Modify", func(a, b *host, q *QP) {
			a.write(q, b, 100000)
			a.must(q.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState))
		}},
		{"RESET", func(a, b *host, q *QP) {
			a.write(q, b, 100000)
			a.must(q.Modify(&ib.Attr{State: ib.StateReset}, ib.AttrState))
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, b, qa, _ := connected(t, Config{Window: qp.WindowConfig{MaxBytes: 16 << 10}})
			c.fail(a, b, qa)
			if st := qa.State(); st == ib.StateRTS {
				t.Fatalf("%s: state %v", c.why, st)
			}
			s := a.shard()
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, p := range s.peers {
				for _, acct := range p.acct {
					if acct.inFlight != 0 || acct.busy != 0 {
						t.Errorf("%s: %d bytes in flight of %d queue pairs", c.why, acct.inFlight, acct.busy)
					}
				}
			}
		})
	}
}

// Queue pairs whose peers do not answer hold their neighbour up a little, until
// that shows, and then not at all.
func TestSilentQueuePairsLeaveTheirNeighboursAShare(t *testing.T) {
	t.Parallel()
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
		for _, silent := range []int{1, 3, 30} {
			synctest.Test(t, func(t *testing.T) {
				const size, timeout = 100000, 68 * time.Millisecond
				limit := max(4, silent) * 16 << 10
				delay := 20 * time.Microsecond
				a, b, qa, _ := connected(t, Config{Window: qp.WindowConfig{MaxBytes: limit}}, fabric.Config{Port: fabric.PortConfig{Delay: delay}})
				post := func(q *QP, op ib.Opcode, signaled bool) {
					_, err := q.PostSend([]ib.SendWR{{Opcode: op, Signaled: signaled, SGList: []ib.SGE{a.mr.Region().SGE(0, size)},
						Remote: ib.RemoteAddr{Addr: b.mr.Region().Addr(), RKey: b.mr.Region().RKey()}}})
					a.must(err)
				}
				for range silent {
					q := a.newQP()
					a.connect(q, testAddrB, 77)
					for range 8 {
						post(q, op, false)
					}
				}
				start := time.Now()
				post(qa, ib.OpWrite, true)
				a.waitOK(1)
				first := time.Since(start)
				time.Sleep(2 * timeout)
				start = time.Now()
				for range 10 {
					post(qa, op, true)
					a.waitOK(1)
				}
				// A packet and its acknowledgement take four times the delay.
				// Of very many not all can have a share at once.
				most := 8 * delay * size / 1024
				if op == ib.OpRead {
					most += timeout // they are larger than what is left of the limit
				}
				if first > most && silent < 30 {
					t.Errorf("%v beside %d silent: the first took %v", op, silent, first)
				}
				if d := time.Since(start) / 10; d > 4*delay*10 {
					t.Errorf("%v beside %d known to be silent: %v each", op, silent, d)
				}
			})
		}
	}
}

// Beyond the limit of a peer a part of it is shared out: who has nothing in
// flight sends a little although others have used the limit up, and not all of
// them when they are many.
func TestShareBeyondTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	for _, others := range []int{1, 5, 100} {
		synctest.Test(t, func(t *testing.T) {
			a, b := newHosts(t, Config{Window: qp.WindowConfig{MaxBytes: limit}})
			b.must(b.dev.Close()) // nothing is acknowledged
			qps := make([]*QP, 1+others)
			for i := range qps {
				qps[i] = a.newQP()
				a.connect(qps[i], testAddrB, 77)
			}
			var sent []int
			for _, q := range qps {
				for range 4 {
					a.write(q, b, 20000)
				}
				if q.inFlight > 0 {
					sent = append(sent, q.inFlight)
				}
			}
			s := a.shard()
			s.mu.Lock()
			defer s.mu.Unlock()
			together := qps[0].peer.acct[accountLive].inFlight
			if sent[0] < limit/2 || len(sent) < min(1+others, 10) || together < limit+limit/sharePart/4 || together > limit+limit/sharePart+3000 {
				t.Errorf("%d queue pairs beside the first: in flight are %v bytes, together %d, with a limit of %d", others, sent, together, limit)
			}
		})
	}
}
