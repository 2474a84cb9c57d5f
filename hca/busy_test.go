package hca

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/hca/wake"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// meddler is a link with a hand in it.
type meddler struct {
	transport.Link
	sending  func()                     // before every Send
	sent     func()                     // after every Send
	received func(b *transport.RxBatch) // after every Recv
	waits    func() bool                // before every Wait, which returns at once if true
	waking   func()                     // before every Wake
}

func (m *meddler) Send(b *transport.TxBatch) error {
	if m.sending != nil {
		m.sending()
	}
	err := m.Link.Send(b)
	if m.sent != nil {
		m.sent()
	}
	return err
}

func (m *meddler) Recv(b *transport.RxBatch) (int, error) {
	n, err := m.Link.Recv(b)
	if m.received != nil && err == nil {
		m.received(b)
		n = b.Len()
	}
	return n, err
}

func (m *meddler) Wake() {
	if m.waking != nil {
		m.waking()
	}
	m.Link.Wake()
}

func (m *meddler) Wait() error {
	if m.waits != nil && m.waits() {
		return nil
	}
	return m.Link.Wait()
}

// newMeddled is newHosts with a hand in the first link.
func newMeddled(t *testing.T, cfg Config, m *meddler, fc ...fabric.Config) (a, b *host) {
	t.Helper()
	la, lb := fabric.Pair(testAddrA, testAddrB, fc...)
	m.Link = la
	a, b = &host{t: t, dev: New(cfg, m)}, &host{t: t, dev: New(cfg, lb)}
	a.equip()
	b.equip()
	return a, b
}

// flood is traffic that never pauses: there is always something to receive, for
// a queue pair that there is not, up to a bound that ends a test that hangs.
type flood struct {
	on    atomic.Bool
	over  atomic.Bool
	calls atomic.Int64 // of Recv, since it is on
	then  func(call int64)
	data  []byte
}

// floodEnd is how many batches a flood has.
const floodEnd = 100_000

func newFlood() *flood {
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCWriteMiddle, PKey: rocev2.DefaultPKey, DestQPN: rocev2.MulticastQPN}}
	return &flood{data: append(p.AppendTo(nil), make([]byte, rocev2.ICRCLen)...)}
}

func (f *flood) received(b *transport.RxBatch) {
	if !f.on.Load() || f.over.Load() {
		return
	}
	n := f.calls.Add(1)
	if n > floodEnd {
		return
	}
	for range wake.BulkPackets {
		b.AppendCopy(transport.RxPacket{Data: f.data, Src: testAddrB, ICRC: transport.ICRCVerified})
	}
	if f.then != nil {
		f.then(n)
	}
}

// A program that waits sees its completion, and the end of its context, also
// while other queue pairs receive without a pause.
func TestWaitEndsInAFlood(t *testing.T) {
	t.Parallel()
	const after = 1000
	for _, c := range []struct {
		why   string
		spins bool // the flood is there before the program goes to sleep
	}{{"asleep", false}, {"spinning", true}} {
		for _, cancelled := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				f := newFlood()
				m := &meddler{received: f.received}
				a, _ := newMeddled(t, Config{}, m)
				a.standBy()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				f.then = func(call int64) {
					switch {
					case call != after:
					case cancelled:
						cancel()
					default:
						a.cq.Complete(&ib.WC{ID: 7})
					}
				}
				f.on.Store(c.spins)
				m.waits = func() bool {
					f.on.Store(true) // from now on there always is something to receive
					return !f.over.Load()
				}
				var wc [1]ib.WC
				n, err := a.cq.Wait(ctx, wc[:])
				if cancelled && !errors.Is(err, context.Canceled) || !cancelled && (n != 1 || err != nil || wc[0].ID != 7) {
					t.Errorf("%s: %d completions, %v", c.why, n, err)
				}
				if got := f.calls.Load(); got < after || got > after+10 {
					t.Errorf("%s, cancelled %v: returned after %d batches, want %d", c.why, cancelled, got, after)
				}
				f.over.Store(true)
			})
		}
	}
}

// A timer is not put off for ever by what other queue pairs receive.
func TestTimerInAFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFlood()
		a, b := newMeddled(t, Config{}, &meddler{received: f.received})
		qa := a.newQP()
		a.connect(qa, testAddrB, 77) // there is no such queue pair
		a.takeSide()
		a.write(qa, b, 8)
		f.on.Store(true)
		time.Sleep(rocev2.AckTimeout(14) + 1<<20)
		synctest.Wait()
		f.on.Store(false)
		if st := qa.Stats(); st.Retransmits != 1 {
			t.Errorf("%d packets were sent again when the timer ran out", st.Retransmits)
		}
		if got := f.calls.Load(); got > 1000 {
			t.Errorf("the timer waited for %d batches", got)
		}
	})
}

// Acknowledgements that come while a long post is sent let more of it go: one
// goroutine sends many windows, though no other receives.
func TestSenderTakesAcknowledgements(t *testing.T) {
	t.Parallel()
	const window, size, messages = 256 << 10, 1 << 20, 8
	synctest.Test(t, func(t *testing.T) {
		m := &meddler{}
		a, b := newMeddled(t, Config{Window: qp.WindowConfig{MaxBytes: window}}, m)
		m.sent = func() { b.shard().in.drain() } // the peer is as quick
		qa, qb := a.newQP(), b.newQP()
		a.connect(qa, testAddrB, qb.QPN())
		b.connect(qb, testAddrA, qa.QPN())
		a.write(qa, b, 8) // they get to know each other
		a.waitOK(1)
		a.takeSide()
		b.takeSide()
		wrs := make([]ib.SendWR, messages)
		for i := range wrs {
			wrs[i] = ib.SendWR{Opcode: ib.OpWrite, Signaled: true, SGList: []ib.SGE{a.mr.Region().SGE(0, size)},
				Remote: ib.RemoteAddr{Addr: b.mr.Region().Addr(), RKey: b.mr.Region().RKey()}}
		}
		before := qa.Stats()
		if _, err := qa.PostSend(wrs); err != nil {
			t.Fatal(err)
		}
		st := qa.Stats()
		if sent := st.TxBytes - before.TxBytes; sent < 8*window {
			t.Errorf("%d bytes of %d were sent with the post, with a window of %d", sent, size*messages, window)
		}
		for range 100 {
			a.dev.Progress()
		}
		a.waitOK(messages)
		if st := qa.Stats(); st.Retransmits != 0 {
			t.Errorf("%d packets were sent again", st.Retransmits)
		}
	})
}

// In the middle of a bulk transfer a device looks longer whether more comes,
// and then it sleeps.
func TestLingeringEnds(t *testing.T) {
	t.Parallel()
	for _, parked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var calls, bulk atomic.Int64
			m := &meddler{received: func(b *transport.RxBatch) {
				calls.Add(1)
				if b.Len() >= wake.BulkPackets {
					bulk.Add(1)
				}
			}}
			a, b := newMeddled(t, Config{Spin: wake.DefaultSpin}, m, fabric.Config{Port: fabric.PortConfig{Delay: testDelay}})
			qa, qb := a.newQP(), b.newQP()
			a.connect(qa, testAddrB, qb.QPN())
			b.connect(qb, testAddrA, qa.QPN())
			if parked {
				a.standBy()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go a.cq.Wait(ctx, make([]ib.WC, 1))
				synctest.Wait()
			}
			before := calls.Load()
			b.write(qb, a, 60000)
			deliver()
			if bulk.Load() == 0 {
				t.Fatal("no bulk transfer")
			}
			got := calls.Load() - before
			if got < wake.BulkPolls || got > 3*wake.BulkPolls+10 {
				t.Errorf("parked %v: looked %d times, want some %d", parked, got, wake.BulkPolls)
			}
			b.waitOK(1)
			synctest.Wait()
			before = calls.Load()
			time.Sleep(time.Second)
			synctest.Wait()
			if got := calls.Load() - before; got != 0 {
				t.Errorf("parked %v: looked %d times in a second in which nothing came", parked, got)
			}
		})
	}
}

// What a goroutine wants sent is sent, even when another one that already sends
// is to do it and a program posts before that one gets to it.
func TestFlushBesideASender(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &meddler{}
		b, a := newMeddled(t, Config{}, m, fabric.Config{Port: fabric.PortConfig{Delay: testDelay}})
		qb, other, qa, peer := b.newQP(), b.newQP(), a.newQP(), a.newQP()
		a.connect(qa, testAddrA, qb.QPN())
		a.connect(peer, testAddrA, other.QPN())
		b.connect(qb, testAddrB, qa.QPN())
		b.connect(other, testAddrB, peer.QPN())
		b.takeSide()
		a.write(qa, b, 8)
		deliver()
		b.dev.Progress()
		b.dev.Progress() // the acknowledgement waits
		before := b.txPackets()
		m.sent = func() {
			m.sent = nil
			b.dev.Settle()
			b.write(other, a, 8)
		}
		b.write(other, a, 8)
		b.wantSent("two posts, and the acknowledgement", before, 3)
	})
}

// boundless lets a queue pair send without an acknowledgement.
var boundless = qp.WindowConfig{InitialBytes: 1 << 30, MaxBytes: 1 << 30, MaxPSNs: 1 << 22}

// discardTurn fills a batch, which is lost.
func (s *shard) discardTurn() {
	s.lock()
	defer s.unlock()
	s.eng.Fill(s.now(), transport.NewTxBatch(txArena), engine.AllClasses)
}

// A caller sends for its own queue pair, and not for long: what is left is the
// transmitter's.
func TestCallerSendsBriefly(t *testing.T) {
	t.Parallel()
	const batch = 100 * time.Microsecond // that the link takes for one
	for _, c := range []struct {
		why     string
		size    uint32
		longest time.Duration
	}{
		{"a small request beside bulk", 8, 3 * batch}, // the acknowledgement may call for more
		{"bulk of its own", 1 << 20, time.Duration(txLongest) + 2*batch},
	} {
		synctest.Test(t, func(t *testing.T) {
			var slow atomic.Bool
			m := &meddler{sent: func() {
				if slow.Load() {
					time.Sleep(batch)
				}
			}}
			a, b := newMeddled(t, Config{Window: boundless}, m)
			s := a.shard()
			hold := func(on bool) {
				s.lock()
				s.out.sending = on
				s.unlock()
			}
			hold(true)
			for range 4 {
				qa, qb := a.newQP(), b.newQP()
				a.connect(qa, testAddrB, qb.QPN())
				b.connect(qb, testAddrA, qa.QPN())
				for range 8 {
					a.write(qa, b, 1<<20)
				}
			}
			qa, qb := a.newQP(), b.newQP()
			a.connect(qa, testAddrB, qb.QPN())
			b.connect(qb, testAddrA, qa.QPN())
			for range 4 {
				s.discardTurn() // they all have had their first turn
			}
			hold(false)
			slow.Store(true)
			start := time.Now()
			a.write(qa, b, c.size)
			if d := time.Since(start); d > c.longest {
				t.Errorf("%s: posting took %v, want at most %v", c.why, d, c.longest)
			}
		})
	}
}
