package requester

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// TestRTT: srtt and rttvar follow the samples, and no retransmission is one
// (RFC 6298, sections 2 and 3).
func TestRTT(t *testing.T) {
	t.Parallel()
	var r rtt
	r.init(0)
	r.start(0, 1)
	r.watch(0, fewInFlight)
	if r.timing || r.expired(1<<60, 1<<61) || r.active() {
		t.Error("without a floor it does something")
	}
	r.init(time.Millisecond)
	r.watch(0, fewInFlight)
	if got := r.probeAt; !r.active() || got != 4e6 {
		t.Errorf("first probe after %d ns, want four floors", got)
	}
	r.start(100, 0xffffff)
	r.start(200, 5) // one at a time
	r.progress(300, 0xffffff, fewInFlight)
	if r.known {
		t.Error("measured before the acknowledgement")
	}
	r.progress(1100, 0, fewInFlight)
	if r.srtt != 1000 || r.probeAt != 1100+1e6 {
		t.Errorf("measured %v, probe at %d", r.srtt, r.probeAt)
	}
	r.start(2000, 3)
	r.discard() // sent again
	r.watch(1e9, fewInFlight)
	r.progress(1e9, 4, fewInFlight)
	if r.srtt != 1000 {
		t.Error("measured a packet that was sent again")
	}
	if r.expired(1e9+1e6-1, 1<<60) || !r.expired(1e9+1e6, 1<<60) || r.expired(1e9+1e6, 1e9) {
		t.Error("a probe is due a floor after progress, and before the deadline")
	}
	for range maxProbes {
		r.backOff()
		r.watch(0, fewInFlight)
	}
	if r.active() {
		t.Error("probes without end")
	}
}

// TestRTTUnderLoad: where an answer takes longer than the floor, as with many
// queue pairs on a device, there is at most one probe too many before that is
// known, whatever the time was before (RFC 6298, section 2).
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
		r.watch(now, fewInFlight)
		for r.expired(answer, 1<<60) {
			r.probe(r.probeAt)
			r.backOff()
			r.discard() // the packet goes again
			r.watch(r.probeAt, fewInFlight)
			if i > 100 {
				spurious++
			}
		}
		psn = psn.Next()
		now = answer
		r.progress(now, psn, fewInFlight)
	}
	if spurious > 1 {
		t.Errorf("%d packets were sent again for nothing after the first", spurious)
	}
}

// TestRTTPauses: a probe that found the peer late, and nothing lost, raises the
// wait to what that took; the answer to one that was needed does not. The
// memory of a pause fades (RFC 4015).
func TestRTTPauses(t *testing.T) {
	t.Parallel()
	const floor, trip = time.Millisecond, 20 * time.Microsecond
	var r rtt
	r.init(floor)
	now, psn := clock.Time(0), rocev2.PSN(0)
	// silence sends a packet that is acknowledged after answer, or, with
	// lost, a round trip after the last probe before.
	silence := func(answer time.Duration, lost bool) (probes int, spurious bool) {
		r.start(now, psn)
		r.watch(now, fewInFlight)
		end := now.Add(answer)
		for at := r.probeAt; at < end; at = r.probeAt {
			probes++
			r.probe(at)
			r.backOff()
			r.discard()
			r.watch(at, fewInFlight)
			if lost {
				end = at.Add(trip)
			}
		}
		now, psn = end, psn.Next()
		return probes, r.progress(now, psn, fewInFlight)
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
	if got := r.pauses.Expected(now); got < 9*time.Millisecond || got > 10*time.Millisecond {
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

// TestRTTSlowAnswers: a peer that must be woken takes many round trips to
// answer a probe. Its losses are not taken for pauses, of which each would make
// the next wait longer.
func TestRTTSlowAnswers(t *testing.T) {
	t.Parallel()
	const floor, trip = time.Millisecond, 20 * time.Microsecond
	for _, slow := range []time.Duration{170 * time.Microsecond, 430 * time.Microsecond, 620 * time.Microsecond} {
		var r rtt
		r.init(floor)
		now, psn := clock.Time(0), rocev2.PSN(0)
		for i := range 500 {
			r.start(now, psn)
			r.watch(now, fewInFlight)
			end := now.Add(trip)
			if i%5 == 4 { // lost
				r.probe(r.probeAt)
				r.backOff()
				r.discard()
				end = r.probeAt.Add(slow)
			}
			now, psn = end, psn.Next()
			r.progress(now, psn, fewInFlight)
		}
		if wait := time.Duration(r.probeAt - now); wait > 8*floor {
			t.Errorf("answers after %v: the wait has grown to %v", slow, wait)
		}
	}
}

// TestOneProbeForAHost: of the queue pairs that share what is known of a host
// one asks when that falls silent, and the others when it has been heard again
// and has not answered them.
func TestOneProbeForAHost(t *testing.T) {
	t.Parallel()
	const floor = time.Millisecond
	var host Pauses
	var a, b rtt
	for _, r := range []*rtt{&a, &b} {
		r.init(floor)
		r.pauses = &host
		r.watch(0, fewInFlight)
	}
	at := clock.Time(4 * floor)
	if a.postpone(at) {
		t.Fatal("the first question was put off")
	}
	a.probe(at)
	for range 3 {
		if !b.expired(b.probeAt, 1<<60) || !b.postpone(b.probeAt) || !b.postponed {
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
	b.probe(b.probeAt)
	if b.progress(b.probeAt.Add(floor), 1, fewInFlight); b.postponed {
		t.Error("late after an answer")
	}
}

// TestRTTNoise: after a repaired loss a probe comes sooner, until none was seen
// for long.
func TestRTTNoise(t *testing.T) {
	t.Parallel()
	var r rtt
	r.init(8 * time.Millisecond)
	r.lossy()
	r.progress(0, 0, fewInFlight)
	if r.probeAt != clock.Time(8*time.Millisecond/noiseFloor) {
		t.Errorf("probe after %d ns while losses are to be expected", r.probeAt)
	}
	r.start(0, 0)
	r.progress(1000, 1, fewInFlight)
	for range noiseAcks {
		r.progress(1000, 1, fewInFlight)
	}
	if r.probeAt != 1000+clock.Time(8*time.Millisecond) {
		t.Errorf("probe after %d ns when there were none for long", r.probeAt)
	}
}

// TestProbeKeepsTheTimeout: going back for a probe does not put off the local
// ACK timeout (IBTA 9.7.6.1.3).
func TestProbeKeepsTheTimeout(t *testing.T) {
	t.Parallel()
	var r retry
	r.configure(14, 1)
	r.start(0)
	r.stop()
	r.holds = true
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

// TestProbesWaitForAnAnswer: where a path loses packets and a round trip is
// longer than the guess, it shows by how much when an answer comes, even if all
// is sent again: probes do not go on until then, so that there would be nothing
// to measure.
func TestProbesWaitForAnAnswer(t *testing.T) {
	t.Parallel()
	const trip = 20 * time.Millisecond
	var r rtt
	r.init(time.Millisecond)
	r.lossy()
	r.watch(0, fewInFlight)
	now := clock.Time(0)
	for r.probeAt < clock.Time(trip) {
		now = r.probeAt
		r.probe(now)
		r.discard()
		r.backOff()
		r.watch(now, fewInFlight)
	}
	now = clock.Time(trip)
	r.guess(now, false)
	r.progress(now, 1, fewInFlight)
	if r.known {
		t.Error("measured a packet that was sent again")
	}
	if r.probeAt < now.Add(trip) {
		t.Errorf("a probe %v after an answer that took %v", time.Duration(r.probeAt-now), trip)
	}
}

// TestAnswerSoonAfterTheFirstProbe: the answer to a probe is no round trip as
// long as the silence was that the probe ended.
func TestAnswerSoonAfterTheFirstProbe(t *testing.T) {
	t.Parallel()
	const trip = 10 * time.Microsecond
	for _, reads := range []bool{false, true} {
		var r rtt
		r.init(100 * time.Microsecond)
		r.watch(0, fewInFlight)
		r.probe(r.probeAt)
		r.discard()
		r.backOff()
		r.watch(r.probedAt, fewInFlight)
		now := r.probedAt.Add(trip)
		r.guess(now, reads)
		r.progress(now, 1, fewInFlight)
		if wait := time.Duration(r.probeAt - now); wait > time.Millisecond != reads {
			t.Errorf("reads %v: the next probe comes %v after the answer to the first, which took %v", reads, wait, trip)
		}
	}
}
