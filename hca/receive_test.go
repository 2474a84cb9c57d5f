package hca

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/hca/wake"
	"github.com/gosoftroce/rocev2/ib"
)

// testDelay is how long packets take in these tests: virtual time, and more
// than anything here waits for.
const testDelay = time.Millisecond

// shard returns the only shard of the device.
func (h *host) shard() *shard { return h.dev.shards[0] }

// standBy has the device's receiver stand by, as a program does that polls.
// It is called in a bubble.
func (h *host) standBy() {
	h.t.Helper()
	s := h.shard()
	time.Sleep(wake.StandbyBan + 4*wake.MaxStandbyTick)
	synctest.Wait() // it waits in the link, and has for long
	s.side.polled()
	s.link.Wake()
	synctest.Wait()
	if !s.side.has(wake.StandsBy) {
		h.t.Fatal("the receiver does not stand by")
	}
}

// takeSide makes the test the owner: nothing is received but by the test,
// and by what it calls.
func (h *host) takeSide() {
	h.t.Helper()
	h.standBy()
	s := h.shard()
	if s.side.now().Owned() || s.side.on(wake.Waits)&wake.Own == 0 {
		h.t.Fatal("another goroutine receives")
	}
	time.Sleep(2 * wake.MaxStandbyTick)
	synctest.Wait()
	if !s.side.has(wake.Dormant) {
		h.t.Fatal("the receiver does not sleep")
	}
	h.t.Cleanup(func() { s.side.on(wake.Leaves) })
}

// txPackets returns how many packets the device has sent.
func (h *host) txPackets() uint64 { return h.shard().link.Stats().TxPackets }

// wantSent checks how many packets the device has sent since before.
func (h *host) wantSent(why string, before uint64, want int) {
	h.t.Helper()
	if got := h.txPackets() - before; got != uint64(want) {
		h.t.Fatalf("%s: %d packets were sent, want %d", why, got, want)
	}
}

// connected returns two hosts with a queue pair each.
func connected(t *testing.T, c Config, fc ...fabric.Config) (a, b *host, qa, qb *QP) {
	t.Helper()
	if len(fc) == 0 {
		fc = []fabric.Config{{Port: fabric.PortConfig{Delay: testDelay}}}
	}
	a, b = newHosts(t, c, fc...)
	qa, qb = a.newQP(), b.newQP()
	a.connect(qa, testAddrB, qb.QPN())
	b.connect(qb, testAddrA, qa.QPN())
	return a, b, qa, qb
}

// deliver lets what is under way arrive.
func deliver() {
	time.Sleep(testDelay)
	synctest.Wait()
}

// A post after an acknowledgement that waits is sent at once, and the
// acknowledgement waits on.
func TestPostPassesDelayedAck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b, qa, qb := connected(t, Config{})
		b.takeSide()
		a.write(qa, b, 8)
		deliver()
		before := b.txPackets()
		if !b.dev.Progress() {
			t.Fatal("nothing came")
		}
		b.wantSent("the acknowledgement waits for the program's next call", before, 0)
		if b.dev.Progress() {
			t.Fatal("something came")
		}
		b.wantSent("and when that finds nothing, for the next message", before, 0)
		b.write(qb, a, 8)
		b.wantSent("the post goes", before, 1)
		b.write(qb, a, 8)
		b.wantSent("and the next one", before, 2)
		b.dev.Settle()
		b.wantSent("then the acknowledgement", before, 3)
		b.dev.Settle()
		b.wantSent("once", before, 3)
		deliver()
		a.waitOK(1)
	})
}

// One acknowledgement stands for the messages that come in a row, up to a bound
// (IBTA 9.7.5.1.2).
func TestOneAckForSeveralMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b, qa, _ := connected(t, Config{MinProbe: time.Second})
		b.takeSide()
		before := b.txPackets()
		for i := range engine.MaxAckBatches {
			b.wantSent("messages in a row", before, 0)
			a.write(qa, b, 8)
			deliver()
			if !b.dev.Progress() {
				t.Fatalf("message %d did not come", i)
			}
		}
		b.dev.Progress()
		b.wantSent("enough for an acknowledgement", before, 1)
		// With never a moment in which nothing comes it takes a few
		// more.
		for i := 0; b.txPackets() == before+1; i++ {
			if i == engine.MaxAckBatches+engine.MaxDelayed {
				t.Fatalf("no acknowledgement after %d messages", i)
			}
			a.write(qa, b, 8)
			deliver()
			b.dev.Progress()
		}
		deliver()
		a.waitOK(engine.MaxAckBatches + engine.MaxAckBatches + engine.MaxDelayed)
	})
}

// A program that polls waits for the next message so long, and no longer,
// before its acknowledgement goes. The delay of an acknowledgement is bounded
// (RFC 9000 13.2.1).
func TestAckWaitsForTheNextMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b, qa, _ := connected(t, Config{})
		b.takeSide()
		a.write(qa, b, 8)
		deliver()
		before := b.txPackets()
		b.dev.Progress()
		time.Sleep(engine.MaxAckDelay - 1)
		b.dev.Progress()
		b.wantSent("before the time", before, 0)
		time.Sleep(time.Nanosecond)
		b.dev.Progress()
		b.wantSent("after it", before, 1)
		// The peer waited for it, perhaps: the next ones go when
		// nothing else comes.
		for i := range 3 {
			deliver()
			a.waitOK(1)
			a.write(qa, b, 8)
			deliver()
			b.dev.Progress()
			b.wantSent("the message", before, 1+i)
			b.dev.Progress()
			b.wantSent("the next poll", before, 2+i)
		}
	})
}

// Whatever a program does after it has received, the acknowledgement leaves: it
// polls no more, waits, or closes what it has.
func TestAckLeaves(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why  string
		then func(b *host, qb *QP)
	}{
		{"the program does something else", nil},
		{"it parks", func(b *host, _ *QP) {
			ctx, cancel := context.WithCancel(b.t.Context())
			b.t.Cleanup(cancel)
			go b.cq.Wait(ctx, make([]ib.WC, 1))
		}},
		{"it parks beside the owner", func(b *host, _ *QP) {
			ctx, cancel := context.WithCancel(b.t.Context())
			b.t.Cleanup(cancel)
			other, err := b.owner.CreateCQ(4, nil)
			b.must(err)
			b.shard().side.on(wake.Waits) // the owner is a goroutine that does not look
			b.t.Cleanup(func() { b.shard().side.on(wake.Leaves) })
			go other.Wait(ctx, make([]ib.WC, 1))
		}},
		{"it arms the channel and settles", func(b *host, _ *QP) { b.cq.Arm(false); b.dev.Settle() }},
		{"it closes the queue pair", func(b *host, qb *QP) { b.must(qb.Close()) }},
		{"it closes the owner", func(b *host, _ *QP) { b.must(b.owner.Close()) }},
		{"it closes the device", func(b *host, _ *QP) { b.must(b.dev.Close()) }},
	} {
		t.Run(c.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b, qa, qb := connected(t, Config{})
				b.standBy()
				link := b.shard().link
				a.write(qa, b, 8)
				for range 50 { // it polls, and is quick enough for the receiver to stay standing by
					time.Sleep(testDelay / 50)
					synctest.Wait()
					b.dev.Progress()
				}
				b.dev.Progress()
				if n := link.Stats().RxPackets; n != 1 {
					t.Fatalf("%d packets came", n)
				}
				if n := link.Stats().TxPackets; n != 0 {
					t.Fatal("the acknowledgement does not wait")
				}
				if c.then == nil {
					time.Sleep(wake.MaxStandbyTick)
				} else {
					c.then(b, qb)
				}
				synctest.Wait()
				if n := link.Stats().TxPackets; n != 1 {
					t.Errorf("%d packets were sent, want the acknowledgement", n)
				}
				deliver()
				a.waitOK(1)
			})
		})
	}
}

// An answer that lies unread in the link when the timer of the request runs out
// is received first: nothing is sent again.
func TestTimeoutLooksFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b, qa, _ := connected(t, Config{})
		a.takeSide()
		before := a.txPackets()
		a.write(qa, b, 8)
		time.Sleep(time.Second)
		synctest.Wait()
		a.wantSent("the request", before, 1)
		if st := qa.Stats(); st.Retransmits != 0 || st.Timeouts != 0 || st.SendDone != 1 {
			t.Errorf("%d packets sent again, %d timeouts, %d requests done", st.Retransmits, st.Timeouts, st.SendDone)
		}
		var wc [1]ib.WC
		if a.cq.Poll(wc[:]) != 1 || wc[0].Status != ib.StatusSuccess {
			t.Errorf("completion %+v", wc[0])
		}
	})
}
