package hca

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/ib"
)

// complete adds a completion as a shard does.
func complete(cq *CQ, c ib.WC) bool {
	s := cq.parker.dev.shards[0]
	s.lock()
	defer s.unlock()
	return cq.Complete(&c)
}

// A queue that is resized keeps what it holds, in order (IBTA 11.2.8.3). One
// that holds more than the new size stays as it is.
func TestCQResize(t *testing.T) {
	t.Parallel()
	o := newTestOwner(t)
	cq, err := o.CreateCQ(4, nil)
	if err != nil {
		t.Fatal(err)
	}
	var wc [16]ib.WC
	next, taken := uint64(0), uint64(0)
	fill := func(n int) {
		for range n {
			if !complete(cq, ib.WC{ID: next}) {
				t.Fatalf("completion %d finds no room in %d", next, cq.Cap())
			}
			next++
		}
	}
	take := func(n int) {
		if got := cq.Poll(wc[:n]); got != n {
			t.Fatalf("polled %d of %d", got, n)
		}
		for _, c := range wc[:n] {
			if c.ID != taken {
				t.Fatalf("completion %d instead of %d", c.ID, taken)
			}
			taken++
		}
	}
	fill(4)
	take(3)
	fill(3) // the ring wraps around
	for _, n := range []int{3, 1} {
		var bad *RangeError
		if err := cq.Resize(n); !errors.As(err, &bad) || bad.Min != 4 || cq.Cap() != 4 {
			t.Fatalf("to %d with 4 in it: %v, room for %d", n, err, cq.Cap())
		}
	}
	for _, n := range []int{0, -1, ib.MaxCQE + 1} {
		if err := cq.Resize(n); err == nil {
			t.Errorf("a size of %d", n)
		}
	}
	if err := cq.Resize(9); err != nil || cq.Cap() != 16 {
		t.Fatalf("to 9: %v, room for %d", err, cq.Cap())
	}
	fill(12)
	take(14)
	if err := cq.Resize(2); err != nil || cq.Cap() != 2 {
		t.Fatalf("to 2: %v, room for %d", err, cq.Cap())
	}
	take(2)
	fill(2)

	// An overflow is told once for each size.
	for round := range 2 {
		for range 3 {
			if complete(cq, ib.WC{QPN: 0x123}) {
				t.Fatal("a full queue takes more")
			}
		}
		want := Overrun{QPN: 0x123, Entries: 2 << round}
		if e, err := o.AsyncEvent(t.Context()); err != nil || e.CQ != cq || cq.Overrun() != want || o.events.n != 0 {
			t.Errorf("event %v (%v), %+v, %d more", e, err, cq.Overrun(), o.events.n)
		}
		if err := cq.Resize(4); err != nil || cq.Overrun() != (Overrun{}) {
			t.Fatalf("to 4: %v, %+v", err, cq.Overrun())
		}
		if round == 0 {
			fill(2)
		}
	}
	take(4)
	if err := cq.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cq.Resize(4); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := cq.SetModeration(Moderation{}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A completion that was put back comes first again, also when the queue has
// become full meanwhile.
func TestCQPutBack(t *testing.T) {
	t.Parallel()
	o := newTestOwner(t)
	cq, err := o.CreateCQ(2, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(2) {
		complete(cq, ib.WC{ID: i})
	}
	var wc [8]ib.WC
	cq.Poll(wc[:1])
	complete(cq, ib.WC{ID: 2})
	cq.PutBack(wc[0])
	if n := cq.Poll(wc[:]); n != 3 || wc[0].ID != 0 || wc[1].ID != 1 || wc[2].ID != 2 {
		t.Errorf("%d: %v", n, wc[:n])
	}
	cq.PutBack(ib.WC{ID: 7})
	if n, err := cq.Wait(t.Context(), wc[:]); n != 1 || err != nil || wc[0].ID != 7 {
		t.Errorf("%d %v: %v", n, wc[0], err)
	}
	if err := cq.Close(); err != nil {
		t.Fatal(err)
	}
	cq.PutBack(ib.WC{})
	if n := cq.Poll(wc[:]); n != 0 {
		t.Errorf("%d in a queue that is closed", n)
	}
}

// Timestamps are the time of the device's clock, and only where they are asked
// for.
func TestCQTimestamps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newTestOwner(t)
		with, err := o.CreateCQ(4, nil, WithTimestamps())
		if err != nil {
			t.Fatal(err)
		}
		without, err := o.CreateCQ(4, nil)
		if err != nil {
			t.Fatal(err)
		}
		first := o.dev.Now()
		for range 2 {
			time.Sleep(1234 * time.Nanosecond)
			complete(with, ib.WC{})
			complete(without, ib.WC{})
		}
		var wc [4]ib.WC
		if n := with.Poll(wc[:]); n != 2 || wc[0].Timestamp != first+1234 || wc[1].Timestamp != first+2468 || first == 0 {
			t.Errorf("%d at %d and %d, after %d", n, wc[0].Timestamp, wc[1].Timestamp, first)
		}
		if n := without.Poll(wc[:]); n != 2 || wc[0].Timestamp != 0 || wc[1].Timestamp != 0 {
			t.Errorf("%d at %d and %d", n, wc[0].Timestamp, wc[1].Timestamp)
		}
	})
}

// notified reports whether the channel has a notification of the queue.
func notified(t *testing.T, ch *CompChannel, cq *CQ) bool {
	t.Helper()
	got, err := ch.take()
	if err != nil || got != nil && got != cq {
		t.Fatalf("notification of %p (%v)", got, err)
	}
	return got != nil
}

// What an armed queue notifies of (IBTA 11.4.2.2): the next completion; or the
// next solicited one or error. To ask for any completion overrides to ask for
// solicited ones, in whatever order. One notification for each time.
func TestCQArm(t *testing.T) {
	t.Parallel()
	plain, solicited, failed := ib.WC{}, ib.WC{Solicited: true}, ib.WC{Status: ib.StatusWRFlushErr}
	for _, c := range []struct {
		name string
		arm  []bool // solicited only
		wc   ib.WC
		want bool
	}{
		{"not armed", nil, failed, false},
		{"any", []bool{false}, plain, true},
		{"solicited, plain", []bool{true}, plain, false},
		{"solicited, solicited", []bool{true}, solicited, true},
		{"solicited, error", []bool{true}, failed, true},
		{"solicited, then any", []bool{true, false}, plain, true},
		{"any, then solicited", []bool{false, true}, plain, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := newTestOwner(t)
			ch, _ := o.CreateCompChannel(false)
			cq, err := o.CreateCQ(8, ch)
			if err != nil {
				t.Fatal(err)
			}
			complete(cq, failed) // what is there raises none
			for _, only := range c.arm {
				cq.Arm(only)
			}
			if notified(t, ch, cq) {
				t.Error("notified of what was there")
			}
			complete(cq, c.wc)
			if got := notified(t, ch, cq); got != c.want {
				t.Errorf("notified: %v", got)
			}
			complete(cq, failed)
			if got, want := notified(t, ch, cq), !c.want && c.arm != nil; got != want {
				t.Errorf("notified again: %v, want %v", got, want)
			}
		})
	}
}

// Moderation holds a notification back until a number of completions have come,
// or a time has passed.
func TestCQModeration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newTestOwner(t)
		ch, _ := o.CreateCompChannel(false)
		cq, err := o.CreateCQ(256, ch)
		if err != nil {
			t.Fatal(err)
		}
		set := func(count int, period time.Duration) {
			t.Helper()
			if err := cq.SetModeration(Moderation{count, period}); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(want bool, when string) {
			t.Helper()
			synctest.Wait()
			if got := notified(t, ch, cq); got != want {
				t.Errorf("%s: notified %v", when, got)
			}
		}
		plain, solicited, failed := ib.WC{}, ib.WC{Solicited: true}, ib.WC{Status: ib.StatusWRFlushErr}
		const period = 50 * time.Microsecond
		set(3, period)

		cq.Arm(false)
		complete(cq, plain)
		complete(cq, plain)
		expect(false, "2 of 3")
		complete(cq, plain)
		expect(true, "3 of 3")
		complete(cq, plain)
		time.Sleep(2 * period)
		expect(false, "not armed again")

		cq.Arm(false)
		time.Sleep(2 * period) // the time counts from the first completion
		complete(cq, plain)
		time.Sleep(period - time.Nanosecond)
		expect(false, "too early")
		time.Sleep(time.Nanosecond)
		expect(true, "after the period")

		// What the timer still has of a notification that is given says
		// nothing of the next.
		cq.Arm(false)
		for range 3 {
			complete(cq, plain)
		}
		expect(true, "by count")
		time.Sleep(period / 2)
		cq.Arm(false)
		complete(cq, plain)
		time.Sleep(period - time.Nanosecond)
		expect(false, "too early, with an older entry")
		time.Sleep(time.Nanosecond)
		expect(true, "after the period, with an older entry")

		cq.Arm(false)
		complete(cq, plain)
		complete(cq, failed)
		expect(true, "an error")

		cq.Arm(true)
		for range 4 {
			complete(cq, plain)
		}
		time.Sleep(period)
		expect(false, "none solicited")
		complete(cq, solicited)
		time.Sleep(period)
		expect(true, "one solicited, after the period")

		cq.Arm(false)
		complete(cq, plain)
		set(0, period)
		expect(true, "moderation goes")
		cq.Arm(false)
		complete(cq, plain)
		expect(true, "a count of 0")
		set(9, 0)
		cq.Arm(false)
		complete(cq, plain)
		expect(true, "a period of 0")

		set(9, period)
		cq.Arm(false)
		complete(cq, plain)
		if err := cq.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(period)
		expect(false, "closed")
		if n := o.dev.moderator.heap.Len(); n != 0 {
			t.Errorf("the timer has %d entries", n)
		}
	})
	o := newTestOwner(t)
	cq, err := o.CreateCQ(1, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []Moderation{{-1, 0}, {MaxModerationCount + 1, 0}, {0, -1}, {0, MaxModerationPeriod + 1}} {
		var bad *RangeError
		if err := cq.SetModeration(m); !errors.As(err, &bad) {
			t.Errorf("%+v: %v", m, err)
		}
	}
}

// A completion queue takes memory for what it has held, and not for what it
// might hold: many connections have one each.
func TestCQGrowsAsItFills(t *testing.T) {
	t.Parallel()
	cq, err := newTestOwner(t).CreateCQ(100, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(cq.ring) != 0 || cq.Cap() != 128 {
		t.Errorf("a new queue has %d entries, and room for %d", len(cq.ring), cq.Cap())
	}
	var wc [128]ib.WC
	next, taken := uint64(0), uint64(0)
	for _, n := range []int{1, 3, 4, 7, 33, 128} { // from places in the middle of the ring
		for range n {
			if !complete(cq, ib.WC{ID: next}) {
				t.Fatalf("no room for %d", n)
			}
			next++
		}
		size := 1 // of the first entry
		if n > 1 {
			size = ringSize(max(n, fewEntries))
		}
		if len(cq.ring) != size {
			t.Errorf("%d entries for %d completions, want %d", len(cq.ring), n, size)
		}
		for _, c := range wc[:cq.Poll(wc[:])] {
			if c.ID != taken {
				t.Fatalf("%d instead of %d", c.ID, taken)
			}
			taken++
		}
	}
	if taken != next {
		t.Errorf("took %d of %d", taken, next)
	}
}
