package qp

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

func TestAhead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		p, q rocev2.PSN
		want uint32
	}{{5, 5, 0}, {6, 5, 1}, {0, 0xffffff, 1}, {4, 5, 0xffffff}, {0x800000, 0, 0x800000}} {
		if got := ahead(c.p, c.q); got != c.want {
			t.Errorf("ahead(%#x, %#x) = %#x, want %#x", c.p, c.q, got, c.want)
		}
	}
}

func TestRingSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{0: 0, 1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 128: 128, 129: 256} {
		if got := ringSize(n); got != want {
			t.Errorf("ringSize(%d) = %d, want %d", n, got, want)
		}
	}
}

func TestWindow(t *testing.T) {
	t.Parallel()
	const packet = 1024 + PacketOverhead
	var w window
	w.init(WindowConfig{InitialBytes: 8 * packet, MaxBytes: 64 * packet, MaxPSNs: 16})
	if !w.admits(0, 0, 1<<30, 1<<20) {
		t.Error("a READ larger than the window must go when nothing is in flight")
	}
	if w.admits(7*packet, 7, packet+1, 1) || !w.admits(7*packet, 7, packet, 1) {
		t.Error("bytes are not bounded by the size")
	}
	if w.admits(8*packet, 8, 2*packet, 2) || !w.admits(7*packet, 7, 2*packet, 2) || w.admits(7*packet, 7, 58*packet, 2) {
		t.Error("a READ may begin inside the window and end outside, but not beyond the limit")
	}
	if w.admits(0, 15, packet, 2) || !w.admits(0, 15, packet, 1) {
		t.Error("PSNs are not bounded by MaxPSNs")
	}
	w.acked(8*packet, 1<<62)
	if w.size != 16*packet {
		t.Errorf("after a window was acknowledged the size is %d packets, not doubled", w.size/packet)
	}
	w.cut(w.size, packet, 16*packet)
	if !w.recovering(16*packet-1) || w.recovering(16*packet) {
		t.Error("the loss is overcome before, or not, when all that was in flight is acknowledged")
	}
	if w.size != 8*packet {
		t.Errorf("after a loss the size is %d packets, not halved", w.size/packet)
	}
	for range 8 {
		w.acked(packet, 1<<62)
	}
	if grown := w.size - 8*packet; grown < growth/2 || grown > growth {
		t.Errorf("after a loss a window acknowledged grew it by %d bytes, not by about %d", grown, growth)
	}
	for range 20 {
		w.cut(w.size, packet, 0)
	}
	if w.size != 2*packet {
		t.Errorf("the floor is %d bytes, not two packets", w.size)
	}
	for range 1 << 14 {
		w.acked(1<<20, 1<<62)
	}
	if w.size != 64*packet {
		t.Errorf("the size is %d, beyond or below the limit", w.size)
	}
	if got := w.ackInterval(packet); got != 4 {
		t.Errorf("an acknowledgement every %d packets, want a quarter of 16", got)
	}
}

func TestRetry(t *testing.T) {
	t.Parallel()
	var r retry
	r.configure(14, 2)
	interval := clock.Time(rocev2.AckTimeout(14))
	r.start(1000)
	r.start(2000) // runs already
	if r.deadline != 1000+interval || r.expired(999+interval) || !r.expired(1000+interval) || r.expired(1000+interval) {
		t.Error("the timer does not run out once, an interval after the first packet")
	}
	for i := range 3 {
		if got := r.spend(); got != (i < 2) {
			t.Errorf("a count of 2, retry %d: %v", i+1, got)
		}
	}
	if r.exhausted() != ib.StatusRetryExcErr {
		t.Error(r.exhausted())
	}
	r.badResp = true
	if r.exhausted() != ib.StatusBadRespErr {
		t.Error("after responses that do not fit, the status must say so")
	}
	r.progress(5000, true)
	if r.left != 2 || !r.armed || r.deadline != 5000+interval || r.badResp {
		t.Errorf("progress left %+v", r)
	}
	r.progress(6000, false)
	if r.armed {
		t.Error("the timer runs without anything in flight")
	}
	r.configure(0, 7)
	if r.interval != GuardTimeout || GuardTimeout != 2*rocev2.AckTimeout(20) {
		t.Errorf("timeout 0 is %v", r.interval)
	}
}

func TestRNR(t *testing.T) {
	t.Parallel()
	var r rnr
	r.configure(1)
	if !r.nak(100, time.Microsecond) || r.expired(1099) || !r.expired(1100) || r.expired(1100) {
		t.Error("the wait does not end once, after the delay")
	}
	if r.nak(2000, 1) {
		t.Error("a count of 1 allows a second retry")
	}
	r.reset()
	if !r.nak(2000, 1) {
		t.Error("progress does not reload the count")
	}
	r.configure(7)
	for range 1000 {
		if !r.nak(0, 1) {
			t.Fatal("7 is not without end")
		}
	}
}

func TestCredit(t *testing.T) {
	t.Parallel()
	var c credit
	if !c.allows(12345) {
		t.Error("limited before the peer said anything")
	}
	c.update(&rocev2.AETH{Syndrome: rocev2.SyndromeACK(2), MSN: 0xffffff})
	if !c.allows(0) || !c.allows(1) || c.allows(2) {
		t.Errorf("MSN 0xffffff and 2 credits do not end at SSN 1: %+v", c)
	}
	c.update(&rocev2.AETH{Syndrome: rocev2.ACKNoCredits})
	if !c.allows(100) {
		t.Error("0x1f limits")
	}
}

func TestResponses(t *testing.T) {
	t.Parallel()
	var r responses
	r.resize(1) // room for 8
	r.ack(1, 1)
	if r.ack(2, 2) != 1 || r.tail != 1 || r.at(0).psn != 2 || r.at(0).msn != 2 {
		t.Error("acknowledgements do not merge into the latest")
	}
	r.ack(1, 2)
	if r.at(0).psn != 2 {
		t.Error("an acknowledgement went backwards")
	}
	r.push(response{kind: responseRead, res: 3, psn: 3, left: 1})
	r.ack(4, 4)
	if r.tail != 3 || r.at(0).psn != 2 || r.at(2).psn != 4 {
		t.Error("an acknowledgement merged across a READ")
	}
	r.move(3, 5)
	r.kill(3)
	if e := r.at(1); e.kind != responseRead || e.res != 5 {
		t.Error("the answer of a resource did not move to another one")
	}
	if !r.nak(rocev2.NAKSequence, 5, 4) || r.nak(rocev2.NAKSequence, 5, 4) {
		t.Error("the same NAK waits twice")
	}
	r.ack(6, 5)
	if e := r.at(r.tail - 1); r.tail != 3 || e.kind != responseAck || e.psn != 6 {
		t.Error("a NAK for what has arrived is still sent")
	}
	for !r.full() {
		r.push(response{kind: responseAtomic})
	}
	if r.nak(rocev2.NAKSequence, 9, 9) {
		t.Error("a full queue took a NAK")
	}
	r.resize(16)
	if r.full() || r.at(0).psn != 2 {
		t.Error("resizing lost answers")
	}
}

func TestResources(t *testing.T) {
	t.Parallel()
	var r resources
	r.resize(3)
	if r.ring != nil {
		t.Error("memory is taken before it is needed")
	}
	if r.oldest(); len(r.ring) != 4 {
		t.Fatalf("%d resources for a depth of 3, want 4", len(r.ring))
	}
	put := func(first rocev2.PSN, psns uint32) {
		e, _ := r.oldest()
		*e = resource{kind: resourceRead, first: first, psns: psns}
		r.next++
	}
	put(0xfffffe, 5) // to 2
	put(10, 1)
	if e, i := r.find(1); e == nil || i != 0 || e.first != 0xfffffe {
		t.Error("a PSN inside a READ across the wrap is not found")
	}
	if e, _ := r.find(3); e != nil {
		t.Error("found beyond the end")
	}
	if got := r.ackLimit(5, 20); got != 9 {
		t.Errorf("an acknowledgement for 5 to 20 goes to %d, want 9: the READ is at 10", got)
	}
	if got := r.ackLimit(11, 20); got != 20 {
		t.Errorf("an acknowledgement behind the READ goes to %d", got)
	}
	put(30, 1)
	put(40, 1)
	put(50, 1)
	if e, _ := r.find(1); e != nil {
		t.Error("the oldest was not overwritten")
	}
	r.resize(2)
	if e, _ := r.find(50); e == nil || len(r.ring) != 2 {
		t.Error("shrinking lost the newest")
	}
	r.resize(8)
	if e, _ := r.find(40); e == nil {
		t.Error("growing lost an entry")
	}
	put(60, 1)
	if e, _ := r.find(40); e == nil {
		t.Error("after growing a new entry took an old one's place")
	}
}

// TestIdleSize bounds the memory of a connected queue pair beyond its send and receive queues.
func TestIdleSize(t *testing.T) {
	t.Parallel()
	size := unsafe.Sizeof(QP{}) + 16*unsafe.Sizeof(resource{}) + uintptr(ringSize(2*16+4))*unsafe.Sizeof(response{})
	if size > 4096 {
		t.Errorf("%d bytes with 16 outstanding READs, want at most 4096", size)
	}
}

func TestRTT(t *testing.T) {
	t.Parallel()
	var r rtt
	r.init(0)
	r.start(0, 1)
	r.arm(0)
	if r.timing || r.expired(1<<60, 1<<61) || r.earlier(77) != 77 {
		t.Error("without a floor it does something")
	}
	r.init(time.Millisecond)
	r.arm(0)
	if got := r.earlier(1 << 60); got != 4e6 {
		t.Errorf("first probe after %d ns, want four floors", got)
	}
	r.start(100, 0xffffff)
	r.start(200, 5) // one at a time
	r.progress(300, 0xffffff)
	if r.known {
		t.Error("measured before the acknowledgement")
	}
	r.progress(1100, 0)
	if r.smooth != 1000 || r.probeAt != 1100+1e6 {
		t.Errorf("measured %v, probe at %d", r.smooth, r.probeAt)
	}
	r.start(2000, 3)
	r.discard() // sent again
	r.arm(1e9)
	r.progress(1e9, 4)
	if r.smooth != 1000 {
		t.Error("measured a packet that was sent again")
	}
	if r.expired(1e9+1e6-1, 1<<60) || !r.expired(1e9+1e6, 1<<60) || r.expired(1e9+1e6, 1e9) {
		t.Error("a probe is due a floor after progress, and before the deadline")
	}
	for range maxProbes {
		r.backOff()
		r.arm(0)
	}
	if r.earlier(1<<60) != 1<<60 {
		t.Error("probes without end")
	}
}

// TestRTTUnderLoad: where an answer takes longer than the floor, as with many queue pairs on a device, there is one probe too
// many at the most before that is known, whatever the time was before.
func TestRTTUnderLoad(t *testing.T) {
	t.Parallel()
	const floor, fast, slow = time.Millisecond, 20 * time.Microsecond, 30 * time.Millisecond
	var r rtt
	r.init(floor)
	now, psn, spurious := clock.Time(0), rocev2.PSN(0), 0
	for i := range 200 {
		answer := now.Add(fast)
		if i >= 100 {
			answer = now.Add(slow)
		}
		r.start(now, psn)
		r.arm(now)
		for r.expired(answer, 1<<60) {
			r.ask(r.probeAt)
			r.backOff()
			r.discard() // the packet goes again
			r.arm(r.probeAt)
			if i > 100 {
				spurious++
			}
		}
		psn = psn.Next()
		now = answer
		r.progress(now, psn)
	}
	if spurious > 1 {
		t.Errorf("%d packets were sent again for nothing after the first", spurious)
	}
}

// TestRTTPauses: a probe that found the peer late, and nothing lost, raises the wait to what that took; the answer to one
// that was needed does not. The memory of a pause fades.
func TestRTTPauses(t *testing.T) {
	t.Parallel()
	const floor, trip = time.Millisecond, 20 * time.Microsecond
	var r rtt
	r.init(floor)
	now, psn := clock.Time(0), rocev2.PSN(0)
	// silence sends a packet that is acknowledged after answer, or, with lost, a round trip after the last probe before.
	silence := func(answer time.Duration, lost bool) (probes int, spurious bool) {
		r.start(now, psn)
		r.arm(now)
		end := now.Add(answer)
		for at := r.probeAt; at < end; at = r.probeAt {
			probes++
			r.ask(at)
			r.backOff()
			r.discard()
			r.arm(at)
			if lost {
				end = at.Add(trip)
			}
		}
		now, psn = end, psn.Next()
		return probes, r.progress(now, psn)
	}
	wait := func() time.Duration { return time.Duration(r.probeAt - now) }
	silence(trip, false)
	for range 100 {
		if probes, spurious := silence(time.Second, true); probes != 1 || spurious || wait() != floor {
			t.Fatalf("a loss took %d probes, spurious %v; the next wait is %v", probes, spurious, wait())
		}
	}
	if probes, spurious := silence(9*time.Millisecond, false); probes == 0 || !spurious {
		t.Errorf("a pause of 9 ms met %d probes, spurious %v", probes, spurious)
	}
	for range 100 {
		if probes, _ := silence(9*time.Millisecond, false); probes != 0 {
			t.Fatalf("another pause met %d probes", probes)
		}
	}
	if got := r.pauses.expected(now); got < 9*time.Millisecond || got > 10*time.Millisecond {
		t.Errorf("the pause that is expected is %v", got)
	}
	now = now.Add(20 * pauseHalfLife)
	for range 100 {
		silence(trip, false)
	}
	if wait() != floor {
		t.Errorf("long after the last pause the wait is %v", wait())
	}
}

// TestRTTSlowAnswers: a peer that must be woken takes many round trips to answer a probe. Its losses are not taken for
// pauses, of which each would make the next wait longer.
func TestRTTSlowAnswers(t *testing.T) {
	t.Parallel()
	const floor, trip = time.Millisecond, 20 * time.Microsecond
	for _, slow := range []time.Duration{170 * time.Microsecond, 430 * time.Microsecond, 620 * time.Microsecond} {
		var r rtt
		r.init(floor)
		now, psn := clock.Time(0), rocev2.PSN(0)
		for i := range 500 {
			r.start(now, psn)
			r.arm(now)
			end := now.Add(trip)
			if i%5 == 4 { // lost
				r.ask(r.probeAt)
				r.backOff()
				r.discard()
				end = r.probeAt.Add(slow)
			}
			now, psn = end, psn.Next()
			r.progress(now, psn)
		}
		if wait := time.Duration(r.probeAt - now); wait > 8*floor {
			t.Errorf("answers after %v: the wait has grown to %v", slow, wait)
		}
	}
}

// TestOneProbeForAHost: of the queue pairs that share what is known of a host one asks when that falls silent, and the
// others when it has been heard again and has not answered them.
func TestOneProbeForAHost(t *testing.T) {
	t.Parallel()
	const floor = time.Millisecond
	var host Pauses
	var a, b rtt
	for _, r := range []*rtt{&a, &b} {
		r.init(floor)
		r.pauses = &host
		r.arm(0)
	}
	at := clock.Time(4 * floor)
	if a.postpone(at) {
		t.Fatal("the first question was put off")
	}
	a.ask(at)
	for range 3 {
		if !b.expired(b.probeAt, 1<<60) || !b.postpone(b.probeAt) || !b.late {
			t.Fatalf("the second question was not put off")
		}
	}
	if a.postpone(at.Add(floor)) {
		t.Error("who has asked may ask again")
	}
	host.heard = b.probeAt
	if b.postpone(b.probeAt) {
		t.Error("the host is there, and the question was put off")
	}
	b.ask(b.probeAt)
	if b.progress(b.probeAt.Add(floor), 1); b.late {
		t.Error("late after an answer")
	}
}

// TestRTTNoise: after a repaired loss a probe comes sooner, until none was seen for long.
func TestRTTNoise(t *testing.T) {
	t.Parallel()
	var r rtt
	r.init(8 * time.Millisecond)
	r.lossy()
	r.progress(0, 0)
	if r.probeAt != clock.Time(8*time.Millisecond/noiseFloor) {
		t.Errorf("probe after %d ns while losses are to be expected", r.probeAt)
	}
	r.start(0, 0)
	r.progress(1000, 1)
	for range noiseAcks {
		r.progress(1000, 1)
	}
	if r.probeAt != 1000+clock.Time(8*time.Millisecond) {
		t.Errorf("probe after %d ns when there were none for long", r.probeAt)
	}
}

// TestWindowRepairs: single losses that are repaired leave the window alone and let more be in flight meanwhile; many of
// them, or packets in a row, halve it once.
func TestWindowRepairs(t *testing.T) {
	t.Parallel()
	const packet, size = 1024 + PacketOverhead, 128 << 10
	fresh := func() *window {
		var w window
		w.init(WindowConfig{InitialBytes: size, MaxBytes: size, MaxPSNs: 1000})
		return &w
	}
	w := fresh()
	w.lost(packet, 0, size, false)
	if w.size != size || !w.admits(size, 100, packet, 1) || w.admits(size+size/spareShare, 100, packet, 1) {
		t.Errorf("after a single loss the size is %d", w.size)
	}
	if got := w.charge(size + size/spareShare); got != size {
		t.Errorf("a full window and its share are charged as %d bytes", got)
	}
	w.acked(size, size)
	if w.admits(size, 100, packet, 1) || w.charge(size) != size {
		t.Error("more is in flight though the loss is repaired")
	}
	w = fresh()
	for range 3 * burst {
		w.lost(packet, 0, size, false)
	}
	if w.size != size/2 || w.spare {
		t.Errorf("after many losses in a window the size is %d", w.size)
	}
	w = fresh()
	w.lost(packet, 0, size, true)
	w.lost(packet, 0, size, true)
	if w.size != size/2 || w.spare {
		t.Errorf("after losses in a row the size is %d", w.size)
	}
}

// TestRetryKept: going back for a probe does not put off the local ACK timeout.
func TestRetryKept(t *testing.T) {
	t.Parallel()
	var r retry
	r.configure(14, 1)
	r.start(0)
	r.stop()
	r.kept = true
	r.start(1000)
	if r.deadline != clock.Time(r.interval) {
		t.Errorf("deadline %d", r.deadline)
	}
	r.stop()
	r.start(1000)
	if r.deadline != 1000+clock.Time(r.interval) {
		t.Errorf("deadline %d after going back", r.deadline)
	}
}

// TestResponseOrder: the answer to a duplicate goes before answers with later PSNs, across the wrap too.
func TestResponseOrder(t *testing.T) {
	t.Parallel()
	var r responses
	r.resize(2)
	r.ack(0xfffffd, 1)
	r.push(response{kind: responseRead, res: 1, psn: 3, msn: 2})
	r.insert(response{kind: responseRead, res: 0, psn: 0xfffffe, msn: 5})
	r.insert(response{kind: responseAtomic, res: 2, psn: 9, msn: 5})
	for i, want := range []rocev2.PSN{0xfffffd, 0xfffffe, 3, 9} {
		if got := r.at(uint32(i)).psn; got != want {
			t.Errorf("answer %d has PSN %d, want %d", i, got, want)
		}
	}
	msns := func() (s string) {
		for i := r.head; i != r.tail; i++ {
			s += fmt.Sprint(r.at(i).msn, " ")
		}
		return s
	}
	r.insert(response{kind: responseRead, res: 3, psn: 2, msn: 7})
	if got := msns(); got != "1 5 7 7 7 " {
		t.Errorf("MSNs %s: they go back, or change before the inserted", got)
	}
	r.back(r.at(1), 0xfffffc, 8)
	if got := msns(); got != "1 8 8 8 8 " {
		t.Errorf("MSNs %s after going back", got)
	}
}
