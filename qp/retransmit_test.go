package qp

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Late, repeated and stray packets.

// TestGapNAKAgain: when the packet is lost again, the responder sees it by the
// packets that follow and sends another NAK, which the requester takes; the
// timeout is not needed, and the retry count not used up by it (IBTA 9.7.5.1).
func TestGapNAKAgain(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{attr: ib.Attr{RetryCount: 1}})
	lost := 0
	p.drop = func(from *testEnd, pkt *rocev2.Packet) bool {
		if from == p.a && pkt.BTH.PSN == 0 && lost < maxRestarts {
			lost++
			return true
		}
		return false
	}
	for range 10 {
		must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpWrite, SGList: p.a.sge(0, 3000), Remote: p.b.remote(0)}))
	}
	p.run()
	if p.b.Stats().NAKSeqSent != maxRestarts || p.now != 0 || p.a.Stats().SendDone != 10 {
		t.Errorf("%d NAKs, %d done, after %d ns", p.b.Stats().NAKSeqSent, p.a.Stats().SendDone, p.now)
	}
}

// TestRepeatedNAKs: whatever the number of NAKs for the same PSN, they cost one
// retry and a bounded number of packets.
func TestRepeatedNAKs(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{attr: ib.Attr{RetryCount: 1}})
	p.drop = func(*testEnd, *rocev2.Packet) bool { return true }
	for range 10 {
		must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpWrite}))
	}
	nak := packet(rocev2.RCAcknowledge, 0xfffffe)
	nak.AETH.Syndrome = rocev2.NAKSequence
	for range 100 {
		p.run()
		p.inject(p.a, nak)
		p.inject(p.a, nak)
	}
	if s := p.a.Stats(); p.a.State() != ib.StateRTS || s.Restarts != maxRestarts || p.a.halves.req.Snapshot().RetriesLeft != 0 {
		t.Errorf("state %v, %d restarts, %d retries left", p.a.State(), s.Restarts, p.a.halves.req.Snapshot().RetriesLeft)
	}
}

// TestProbe: the last packet is lost, and nothing follows it. With MinProbe it
// is sent again to a native peer long before the timeout; one that has vanished
// is still given up, count+1 timeouts after the first probe (RFC 8985, section
// 7; RFC 9002, section 6.2).
func TestProbe(t *testing.T) {
	t.Parallel()
	p := keepers(t, pairConfig{config: Config{MinProbe: 1e6}, attr: ib.Attr{RetryCount: 2}}, 64)
	write := ib.SendWR{Opcode: ib.OpWrite, SGList: p.a.sge(0, 3000), Remote: p.b.remote(0)}
	must(t, p.a.PostSend(&write))
	p.run()
	p.drop = func(_ *testEnd, pkt *rocev2.Packet) bool {
		if pkt.BTH.AckReq {
			p.drop = nil
			return true
		}
		return false
	}
	must(t, p.a.PostSend(&write))
	p.settle()
	if s := p.a.Stats(); p.now != 1e6 || s.Probes != 1 || s.SendDone != 2 || s.Timeouts != 0 {
		t.Errorf("after %d ns: %d probes, %d timeouts, %d done", p.now, s.Probes, s.Timeouts, s.SendDone)
	}
	start := p.now
	p.drop = func(*testEnd, *rocev2.Packet) bool { return true }
	must(t, p.a.PostSend(&write))
	p.run()
	probe, _ := p.a.Deadline()
	p.settle()
	if got := p.now - probe; got != 3*clock.Time(rocev2.AckTimeout(14)) || p.a.State() != ib.StateErr {
		t.Errorf("given up %d ns after the probe, which was after %d, state %v", got, probe-start, p.a.State())
	}
}

// TestNoProbe: a peer that is not native is sent nothing again before the local
// ACK timeout, which is the least time (IBTA 9.7.6.1.3). But it counts as
// silent when a native peer would be probed.
func TestNoProbe(t *testing.T) {
	t.Parallel()
	for _, op := range []ib.Opcode{ib.OpSend, ib.OpWrite, ib.OpRead, ib.OpFetchAdd} {
		p := newPair(t, pairConfig{config: Config{MinProbe: 1e6}, attr: ib.Attr{RetryCount: 2}})
		p.drop = func(*testEnd, *rocev2.Packet) bool { return true }
		for range 3 {
			must(t, p.a.PostSend(&ib.SendWR{Opcode: op, SGList: p.a.sge(0, 8), Remote: p.b.remote(0)}))
		}
		p.run()
		start := p.now
		for i := range 3 {
			sent := p.a.Stats().TxPackets
			p.now, _ = p.a.Deadline()
			p.a.HandleTimeout(p.now)
			p.run()
			_, silent := p.a.InFlight()
			if i == 0 && (p.now-start != 4e6 || !silent || p.a.Stats().TxPackets != sent) {
				t.Errorf("%v: after %v silent %v, %d packets sent again", op, time.Duration(p.now-start), silent, p.a.Stats().TxPackets-sent)
			}
			if at := start + clock.Time(i)*clock.Time(rocev2.AckTimeout(14)); i > 0 && p.now != at {
				t.Errorf("%v: timeout %d after %v", op, i, time.Duration(p.now-start))
			}
		}
		if s := p.a.Stats(); s.Probes != 0 || s.Timeouts != 2 {
			t.Errorf("%v: %d probes, %d timeouts", op, s.Probes, s.Timeouts)
		}
	}
}

// TestFatalNAKInsideRead: Linux refuses a READ in the middle of its answer with
// the PSN of the request; others use that of the next packet, and either may
// overtake data. The READ fails at once in every case. Each NAK code has its
// status (IBTA 9.7.5.2, 11.6.2).
func TestFatalNAKInsideRead(t *testing.T) {
	t.Parallel()
	for at, syndrome := range []rocev2.Syndrome{0x61, 0x62, 0x63, 0x64, 0x65} {
		p := newPair(t, pairConfig{})
		must(t, p.a.PostSend(&ib.SendWR{ID: 1, Opcode: ib.OpRead, SGList: p.a.sge(0, 5000), Remote: p.b.remote(0)}))
		p.transfer(p.a, 1)
		p.transfer(p.b, 2)
		nak := packet(rocev2.RCAcknowledge, rocev2.PSN(0xfffffe).Add(at))
		nak.AETH.Syndrome = syndrome
		p.inject(p.a, nak)
		want := []string{"1 REM_INV_REQ_ERR", "1 REM_ACCESS_ERR", "1 REM_OP_ERR", "1 REM_INV_RD_REQ_ERR", "1 REM_OP_ERR"}[at]
		if got := p.a.sq.statuses(); got != want {
			t.Errorf("NAK %v at packet %d: %q, want %q", syndrome, at, got, want)
		}
	}
}

// TestUnsolicitedCredits: an acknowledgement of what has completed may bring
// more credits (IBTA 9.7.7.2).
func TestUnsolicitedCredits(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpWrite}))
	p.run()
	ack := packet(rocev2.RCAcknowledge, 0xfffffe)
	ack.AETH = rocev2.AETH{Syndrome: rocev2.SyndromeACK(rocev2.CreditCode(6)), MSN: 1}
	if got := p.inject(p.a, ack); got != DropStale || !p.a.halves.req.Snapshot().Limited || p.a.halves.req.Snapshot().LSN != 7 {
		t.Errorf("%v, credit to %+v", got, p.a.halves.req.Snapshot().LSN)
	}
}

// TestDuplicateWhileAnswering: a duplicate READ whose answer has not been sent
// completely does not add a second answer: it is moved back if it has passed
// the place, and goes on otherwise (IBTA 9.7.5.1.5).
func TestDuplicateWhileAnswering(t *testing.T) {
	t.Parallel()
	for from, want := range []int{5, 4, 3, 3, 3} {
		p := newPair(t, pairConfig{})
		must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpRead, SGList: p.a.sge(0, 5000), Remote: p.b.remote(0)}))
		p.transfer(p.a, 1)
		p.transfer(p.b, 2)
		pkt := packet(rocev2.RCReadRequest, rocev2.PSN(0xfffffe).Add(from))
		pkt.RETH = rocev2.RETH{VA: testIOVA + uint64(from)*1024, RKey: uint32(p.b.mr.RKey()), Length: uint32(5000 - from*1024)}
		p.inject(p.b, pkt)
		if n := p.transfer(p.b, 10); n != want {
			t.Errorf("again from packet %d after two: %d packets, want %d", from, n, want)
		}
		if p.a.Stats().SendDone != 1 || p.b.halves.resp.Snapshot().Pending != 0 {
			t.Errorf("again from packet %d: not done", from)
		}
	}
}

// TestLateReplay: the replay for a duplicate gives its place to a new request
// that needs it, and is sent all the same: the peer may have more outstanding
// than agreed (IBTA 9.7.5.1.5).
func TestLateReplay(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{attr: ib.Attr{MaxDestRdAtomic: 1}})
	add := packet(rocev2.RCFetchAdd, 0xfffffe)
	add.AtomicETH = rocev2.AtomicETH{VA: testIOVA, RKey: uint32(p.b.mr.RKey()), SwapAdd: 1}
	before, _ := p.b.mr.Load64(0)
	p.inject(p.b, add)
	p.transfer(p.b, 10)
	p.inject(p.b, add)
	p.inject(p.b, add)
	next := add
	next.BTH.PSN = 0xffffff
	if got := p.inject(p.b, next); got != DropNone {
		t.Error(got)
	}
	if n := p.transfer(p.b, 10); n != 2 {
		t.Errorf("%d answers, want one for each atomic", n)
	}
	if v, _ := p.b.mr.Load64(0); v != before+2 {
		t.Errorf("added %d times, want 2", v-before)
	}
}

// TestSpuriousProbe: the peer's answer comes late, and nothing was lost. What
// the probes cut off the window is given back, and the next pause as long is
// waited for (RFC 4015).
func TestSpuriousProbe(t *testing.T) {
	t.Parallel()
	const pause = 9e6 // ns
	p := keepers(t, pairConfig{config: Config{MinProbe: 1e6}}, 64)
	write := ib.SendWR{Opcode: ib.OpWrite, SGList: p.a.sge(0, 8), Remote: p.b.remote(0)}
	must(t, p.a.PostSend(&write))
	p.run()
	window, probes := p.a.halves.req.Snapshot().Limit.Bytes, uint64(0)
	for round := range 3 {
		must(t, p.a.PostSend(&write))
		p.transfer(p.a, 1)
		end := p.now + pause
		for at, ok := p.a.Deadline(); ok && at < end; at, ok = p.a.Deadline() {
			p.now = at
			p.a.HandleTimeout(at)
			p.transfer(p.a, 1)
		}
		if round == 0 && p.a.halves.req.Snapshot().Limit.Bytes >= window {
			t.Error("silence did not cut the window")
		}
		p.now = end
		p.run()
		if s := p.a.Stats(); s.SpuriousRetransmits == 0 || s.SpuriousRetransmits != s.Retransmits || round > 0 && s.Probes != probes || s.SendDone != uint64(round+2) || p.a.halves.req.Snapshot().Limit.Bytes < window {
			t.Errorf("pause %d: %d probes, %d packets of %d spurious, %d done, window %d of %d",
				round, s.Probes, s.SpuriousRetransmits, s.Retransmits, s.SendDone, p.a.halves.req.Snapshot().Limit.Bytes, window)
		}
		probes = p.a.Stats().Probes
	}
}

// TestFewInFlight: a queue pair that has measured nothing waits 100 µs for the
// answer to one or two packets, if MinProbe is below that, and four times
// MinProbe for the answer to more, or where MinProbe is as for sockets.
func TestFewInFlight(t *testing.T) {
	t.Parallel()
	const us = clock.Time(time.Microsecond)
	for _, c := range []struct {
		minProbe time.Duration
		packets  int
		want     clock.Time
	}{
		{80e3, 1, 100 * us}, {80e3, 2, 100 * us}, {80e3, 3, 320 * us}, {80e3, 30, 320 * us},
		{20e3, 1, 100 * us}, {100e3, 2, 100 * us}, {101e3, 2, 404 * us}, {1e6, 1, 4000 * us},
	} {
		p := keepers(t, pairConfig{config: Config{MinProbe: c.minProbe}}, 64)
		start, lost := p.now, c.packets
		p.drop = func(from *testEnd, _ *rocev2.Packet) bool {
			lost--
			return lost >= 0
		}
		for range c.packets {
			must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpWrite, SGList: p.a.sge(0, 8), Remote: p.b.remote(0)}))
			p.transfer(p.a, 1)
		}
		at, ok := p.a.Deadline()
		if !ok || at-start != c.want {
			t.Errorf("%d packets, MinProbe %v: a probe after %v, want %v", c.packets, c.minProbe, time.Duration(at-start), time.Duration(c.want))
		}
		p.now = at
		p.a.HandleTimeout(p.now)
		p.run()
		if s := p.a.Stats(); lost >= 0 || s.Probes != 1 || s.Timeouts != 0 || s.SendDone == 0 {
			t.Errorf("%d packets, MinProbe %v: %d done, %d probes, %d timeouts", c.packets, c.minProbe, s.SendDone, s.Probes, s.Timeouts)
		}
	}
}

// TestThirdInFlight: a third packet just before a queue pair asks after two
// puts the probe off to when it would be due if all three had gone together.
func TestThirdInFlight(t *testing.T) {
	t.Parallel()
	const us = clock.Time(time.Microsecond)
	p := keepers(t, pairConfig{config: Config{MinProbe: 80e3}}, 64)
	start := p.now
	p.drop = func(*testEnd, *rocev2.Packet) bool { return true }
	for _, at := range []clock.Time{0, 0, 99 * us} {
		p.now = start + at
		must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpWrite, SGList: p.a.sge(0, 8), Remote: p.b.remote(0)}))
		p.transfer(p.a, 1)
	}
	if at, ok := p.a.Deadline(); !ok || at-start != 320*us {
		t.Errorf("a probe after %v, want 320 µs", time.Duration(at-start))
	}
}

// TestDuplicateResponse: a lone packet that was sent again is answered as if
// that had been needed, and then once more: so it was not, and the peer is
// waited for longer (RFC 3708).
func TestDuplicateResponse(t *testing.T) {
	t.Parallel()
	p := keepers(t, pairConfig{config: Config{MinProbe: 1e6}}, 64)
	var pauses Pauses
	p.a.SharePauses(&pauses)
	write := ib.SendWR{Opcode: ib.OpWrite, SGList: p.a.sge(0, 8), Remote: p.b.remote(0)}
	must(t, p.a.PostSend(&write))
	p.run()
	must(t, p.a.PostSend(&write))
	p.transfer(p.a, 1)
	var packets [2][rocev2.MaxPacketLen]byte
	var lens [2]int
	lens[0] = p.b.poll(p.now, packets[0][:])
	p.now, _ = p.a.Deadline()
	p.a.HandleTimeout(p.now)
	p.transfer(p.a, 1)
	lens[1] = p.b.poll(p.now, packets[1][:])
	p.now += 1000 // as if to the second one
	for i := range packets {
		p.carry(p.b, packets[i][:], lens[i])
		if s := p.a.Stats(); s.SendDone != 2 || s.SpuriousRetransmits != uint64(i) {
			t.Errorf("answer %d: %d done, %d packets spurious", i, s.SendDone, s.SpuriousRetransmits)
		}
	}
	if got := pauses.Expected(p.now); got < 1e6 {
		t.Errorf("the pause that is expected is %v", got)
	}
}
