package engine

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// An acknowledgement waits for the next message, and for one after that, but
// stands for a bounded number of them (IBTA 9.7.5.1).
func TestAckDelayIsBounded(t *testing.T) {
	t.Parallel()
	var p ackDelay
	now := clock.Time(1000)
	if !p.expired(now) {
		t.Error("something waits from the start")
	}
	for i := 1; i < MaxAckBatches; i++ {
		if !p.hold(now) || p.expired(now) {
			t.Fatalf("batch %d of a stream does not wait", i)
		}
		now += clock.Time(MaxAckDelay) - 1
		if p.expired(now) {
			t.Fatalf("the wait after batch %d is over before its time", i)
		}
	}
	if !p.hold(now) || !p.expired(now) {
		t.Errorf("after %d batches they still wait", MaxAckBatches)
	}
	for i := MaxAckBatches + 1; p.hold(now); i++ {
		if i > MaxAckBatches+MaxDelayed {
			t.Fatalf("batch %d still waits while there is always another one", i)
		}
	}
	p.sent()
	if !p.hold(now) || p.expired(now) {
		t.Error("after the acknowledgement was sent, the next one does not wait")
	}
	if p.batches != 1 {
		t.Errorf("it stands for %d batches", p.batches)
	}
}

// waits plays n messages of a peer that sends the next one only when it has the
// acknowledgement, and returns how many acknowledgements waited without result.
func (p *ackDelay) waits(now *clock.Time, n int) (wasted int) {
	for range n {
		*now += 10000
		start := *now
		p.hold(*now)
		for !p.expired(*now) {
			*now += 1000
		}
		p.sent()
		if waited := *now - start; waited >= clock.Time(MaxAckDelay) {
			wasted++
		}
	}
	return wasted
}

// A peer that waits for its acknowledgement pays for it once, and ever more
// rarely later.
func TestAckDelayWithAPeerThatWaits(t *testing.T) {
	t.Parallel()
	var p ackDelay
	now := clock.Time(1)
	if got := p.waits(&now, minImmediate-1); got != 1 {
		t.Errorf("%d of the first %d acknowledgements waited without result, want one", got, minImmediate-1)
	}
	if got := p.waits(&now, 16384); got > 11 {
		t.Errorf("%d of the next 16384 acknowledgements waited without result", got)
	}
	if got := p.waits(&now, 10*maxImmediate); got < 9 || got > 11 {
		t.Errorf("%d of %d waited without result in the long run, want one of %d", got, 10*maxImmediate, maxImmediate)
	}
}

// One that does not wait for it any more is found out in the end, and then has
// its acknowledgements together again, also if it pauses now and then.
func TestAckDelayComesBack(t *testing.T) {
	t.Parallel()
	var p ackDelay
	now := clock.Time(1)
	p.waits(&now, 1<<16)
	acks, messages := 0, 0
	for acks < maxImmediate+1 {
		now += 1000
		messages++
		if !p.hold(now) || p.expired(now) {
			p.sent()
			acks++
		}
	}
	for range 100 * MaxAckBatches {
		now += 1000
		messages++
		if !p.hold(now) || p.expired(now) {
			p.sent()
			acks++
		}
	}
	if most := maxImmediate + 1 + 101; acks > most {
		t.Errorf("%d acknowledgements for %d messages that did not wait for them, want at most %d", acks, messages, most)
	}
	// A pause costs a few, not thousands.
	for range 3 {
		now += 1000
		p.hold(now)
	}
	now += clock.Time(time.Second)
	if !p.expired(now) {
		t.Fatal("the wait does not end")
	}
	p.sent()
	at := 0
	for p.hold(now); p.expired(now); p.hold(now) {
		p.sent()
		at++
	}
	if at > minImmediate {
		t.Errorf("after one pause %d acknowledgements go at once, want at most %d", at, minImmediate)
	}
}
