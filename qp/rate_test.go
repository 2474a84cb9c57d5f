package qp

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// onWire is what packets with so much payload take of a rate.
func onWire(s Stats) uint64 { return s.TxBytes + s.TxPackets*cc.WireOverhead }

// A rate limit of a reliable connection is exact to 1 % in virtual time: for
// WRITEs, for READs, which count as what they ask for, and with losses. Its
// deadline is when the next packets may go. Without one nothing waits.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	const kilobits, burst, size = 80_000, 4000, 200_000 // 10 bytes in 1 µs
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
		p := newPair(t, pairConfig{mem: 1 << 18, config: Config{ReadChunk: 2048}})
		must(t, p.a.Modify(&ib.Attr{RateLimit: kilobits, RateBurst: burst}, ib.AttrRateLimit))
		if a := p.a.Attr(); a.RateLimit != kilobits || a.RateBurst != burst {
			t.Errorf("the rate is %d, %d", a.RateLimit, a.RateBurst)
		}
		transfer := func() time.Duration {
			t.Helper()
			began, done := p.now, p.a.sq.n
			must(t, p.a.PostSend(&ib.SendWR{Opcode: op, Signaled: true, SGList: p.a.sge(0, size), Remote: p.a.peerRemote(p)}))
			for i := 0; p.a.sq.n == done; i++ {
				if i > 10_000 {
					t.Fatal("it does not end")
				}
				if p.transfer(p.a, 1000)+p.transfer(p.b, 1000) > 0 {
					continue
				}
				at, ok := p.a.Deadline()
				if !ok {
					t.Fatal("nothing to do, and it is not done")
				}
				p.now = max(p.now, at)
				p.a.HandleTimeout(p.now)
			}
			return time.Duration(p.now - began)
		}
		const packets = (size + 1023) / 1024
		want := time.Duration(size+packets*cc.WireOverhead-burst) * 100 * time.Nanosecond
		if took := transfer(); math.Abs(float64(took-want)) > float64(want)/100+burst/2*100 {
			t.Errorf("%v: it took %v, want %v", op, took, want)
		}
		p.now = p.now.Add(time.Second) // the bucket is full again

		// Every 20th packet is lost: what is sent again counts too.
		n := 0
		p.drop = func(from *testEnd, pkt *rocev2.Packet) bool {
			n++
			return len(pkt.Payload) > 0 && n%20 == 0
		}
		before := onWire(p.a.Stats())
		took := transfer()
		sent := onWire(p.a.Stats()) - before
		if most := uint64(took/100) + burst + 2*(1024+cc.WireOverhead); op == ib.OpWrite && sent > most {
			t.Errorf("with losses: %d bytes in %v, at most %d", sent, took, most)
		}
		p.drop = nil

		must(t, p.a.Modify(&ib.Attr{}, ib.AttrRateLimit))
		if took := transfer(); took != 0 {
			t.Errorf("%v: without a rate it took %v", op, took)
		}
		// RESET takes the limit away.
		must(t, p.a.Modify(&ib.Attr{RateLimit: 1}, ib.AttrRateLimit))
		must(t, p.a.Modify(&ib.Attr{State: ib.StateReset}, ib.AttrState))
		if a := p.a.Attr(); a.RateLimit != 0 {
			t.Error("the limit outlives RESET")
		}
		if l := p.a.halves.req.Snapshot().Limit; l.Burst != 0 {
			t.Error("the requester keeps its rate")
		}
	}
}

// The rate of a queue pair is that of its answers to READs, too, exact to 1 %,
// and of both together, in equal parts. A reader that has no rate itself asks
// for all at once.
func TestRateLimitOfAnswers(t *testing.T) {
	t.Parallel()
	const kilobits, burst, size = 80_000, 4000, 200_000 // 10 bytes in 1 µs
	p := newPair(t, pairConfig{mem: 1 << 19})
	must(t, p.b.Modify(&ib.Attr{RateLimit: kilobits, RateBurst: burst}, ib.AttrRateLimit))
	read := ib.SendWR{Opcode: ib.OpRead, Signaled: true, SGList: p.a.sge(0, size), Remote: p.a.peerRemote(p)}
	run := func(until func() bool) time.Duration {
		t.Helper()
		began := p.now
		for i := 0; !until(); i++ {
			if i > 10_000 {
				t.Fatal("it does not end")
			}
			if p.transfer(p.a, 1000)+p.transfer(p.b, 1000) > 0 {
				continue
			}
			at, ok := p.b.Deadline()
			if !ok || at <= p.now {
				t.Fatalf("nothing to do at %v, and the deadline is %v, %v", p.now, at, ok)
			}
			p.now = at
			p.b.HandleTimeout(p.now)
		}
		return time.Duration(p.now - began)
	}
	const packets = (size + 1023) / 1024
	want := time.Duration(size+packets*cc.WireOverhead-burst) * 100 * time.Nanosecond
	near := func(got, want time.Duration) bool {
		return math.Abs(float64(got-want)) <= float64(want)/100+burst*100
	}
	must(t, p.a.PostSend(&read))
	if took := run(func() bool { return p.a.sq.n == 1 }); !near(took, want) {
		t.Errorf("a READ took %v, want %v", took, want)
	}
	if s := p.b.Stats(); s.RateWaits == 0 || s.RateWaits > packets {
		t.Errorf("it waited %d times", s.RateWaits)
	}
	p.now = p.now.Add(time.Second) // the bucket is full again

	// With requests of its own: the first of the two that ends has had half
	// of the rate.
	must(t, p.a.PostSend(&read))
	must(t, p.b.PostSend(&ib.SendWR{Opcode: ib.OpWrite, Signaled: true, SGList: p.b.sge(0, size), Remote: p.b.peerRemote(p)}))
	first := run(func() bool { return p.a.sq.n == 2 || p.b.sq.n == 1 })
	rest := run(func() bool { return p.a.sq.n == 2 && p.b.sq.n == 1 })
	if !near(first+rest, 2*want) || rest > want/20 {
		t.Errorf("both took %v, and the second one %v more; want %v", first, rest, 2*want)
	}
	must(t, p.b.Modify(&ib.Attr{}, ib.AttrRateLimit))
	must(t, p.a.PostSend(&read))
	if took := run(func() bool { return p.a.sq.n == 3 }); took != 0 {
		t.Errorf("without a rate it took %v", took)
	}
}

// peerRemote is the memory of the other side.
func (e *testEnd) peerRemote(p *pair) ib.RemoteAddr { return p.peer(e).remote(0) }

// A rate limit of UC and UD is exact to 1 %, for long messages and for short
// ones. The last packet of a message that is under way waits too.
func TestRateLimitOfDatagrams(t *testing.T) {
	t.Parallel()
	const kilobits, burst, span = 80_000, 4000, 100 * time.Millisecond
	for _, typ := range []ib.QPType{ib.UC, ib.UD, ib.GSI} {
		for _, size := range []int{0, 8, 1024, 60_000} {
			if typ != ib.UC && size > 1024 {
				continue
			}
			q, e := newOfType(t, typ)
			must(t, q.Modify(&ib.Attr{RateLimit: kilobits, RateBurst: burst}, ib.AttrRateLimit))
			wr := ib.SendWR{Opcode: ib.OpSend, SGList: e.sge(0, size)}
			if typ != ib.UC {
				wr.AH, wr.RemoteQPN = &ib.AddressHandle{Domain: e.pd}, 0x77
				wr.AH.SetVector(&ib.AddressVector{DGID: e.addr})
			}
			train := &trainList{}
			now, began := clock.Time(5), clock.Time(5)
			for now < began.Add(span) {
				err := q.PostSend(&wr)
				for ; err == nil; err = q.PostSend(&wr) {
				}
				if !errors.Is(err, ib.ErrQueueFull) {
					t.Fatal(err)
				}
				train.n = 0
				if q.Poll(now, Limit{Packets: 50}, train).Packets > 0 {
					continue
				}
				at, ok := q.Deadline()
				if !ok || at <= now {
					t.Fatalf("%v: nothing goes at %v, and the deadline is %v, %v", typ, now, at, ok)
				}
				train.n = 0
				if early := q.Poll(at-1, Limit{Packets: 1}, train); early.Packets > 0 {
					t.Fatalf("%v: a packet goes too early", typ)
				}
				now = at
				q.HandleTimeout(now)
			}
			got, want := float64(onWire(q.Stats())), float64(burst)+float64(now-began)/100
			if math.Abs(got-want) > want/100+1024+burst/2 {
				t.Errorf("%v of %d bytes: %.0f bytes in %v, want %.0f", typ, size, got, span, want)
			}
			must(t, q.Modify(&ib.Attr{}, ib.AttrRateLimit))
			train.n = 0
			if q.Poll(now, Limit{Packets: 1}, train).Packets != 1 {
				t.Errorf("%v: without a rate nothing goes", typ)
			}
			if _, ok := q.Deadline(); ok {
				t.Errorf("%v: a timer without a rate", typ)
			}
		}
	}
}

// newOfType makes a queue pair of a type, in RTS.
func newOfType(t *testing.T, typ ib.QPType) (*QP, *testEnd) {
	t.Helper()
	q, e := newInReset(t, typ)
	for _, s := range []ib.State{ib.StateInit, ib.StateRTR, ib.StateRTS} {
		must(t, toState(q, s))
	}
	return q, e
}

// newInReset makes a queue pair of a type.
func newInReset(t *testing.T, typ ib.QPType) (*QP, *testEnd) {
	t.Helper()
	e := newEnd(t, 1, pairConfig{mem: 1 << 17, config: Config{MaxSendWR: 16, MaxRecvWR: 16}})
	e.sq.keep, e.rq.keep = true, true
	c := Config{QPN: 0x99, Type: typ, Memory: e.table, PD: e.pd, SendCQ: e.sq, RecvCQ: e.rq,
		MaxSendWR: 16, MaxRecvWR: 16, PortMTU: rocev2.MTU1024}
	if typ == ib.XRCTarget {
		c.Domain = &oneSRQ{pd: e.pd}
	}
	q, err := New(c)
	must(t, err)
	return q, e
}

// goodAttr has a good value of every attribute.
func goodAttr(to ib.State) ib.Attr {
	return ib.Attr{State: to, Port: 1, QKey: 3, Access: testAccess, PathMTU: rocev2.MTU1024, DestQPN: 0x55,
		AV: ib.AddressVector{DGID: testAddr}, Timeout: 14, RetryCount: 7, RNRRetry: 7, MinRNRTimer: 12, MaxRdAtomic: 4, MaxDestRdAtomic: 4}
}

// toState takes a queue pair to a state with the attributes that the table
// requires.
func toState(q *QP, to ib.State) error {
	a := goodAttr(to)
	mask := ib.AttrState
	if row := findTransition(q.State(), to, q.Type()); row != nil {
		mask |= row.required
	}
	return q.Modify(&a, mask)
}
