package requester

import (
	"testing"

	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// rate is a controller with a rate, which a notification halves.
type rate struct {
	*cc.Window
	perByte clock.Time // ns
	next    clock.Time
}

const paceBurst = 2 * (256 + cc.PacketOverhead)

func (c *rate) Limit() cc.Limit {
	l := c.Window.Limit()
	l.Burst, l.NotBefore = paceBurst, c.next
	return l
}

func (c *rate) Acked(now clock.Time, f *cc.Flight, n uint64) bool {
	c.Window.Acked(now, f, n)
	return true
}

func (c *rate) Sent(now clock.Time, bytes, _ int) {
	c.next = max(c.next, now) + clock.Time(bytes)*c.perByte
}

func (c *rate) Marked(clock.Time, *cc.Flight, cc.Mark) bool {
	c.perByte *= 2
	return true
}

// TestPacing: a requester sends nothing before the time that its controller
// says, neither for the first time nor again, and its deadline is that time as
// long as there is something to send (RFC 9002, section 7.7).
func TestPacing(t *testing.T) {
	t.Parallel()
	const packets, perByte = 20, 3
	control := &rate{Window: cc.NewWindow(cc.Config{}), perByte: perByte}
	e := newEnd(t, control)
	e.write(packets * 256)
	now, first := clock.Time(1000), rocev2.PSN(0xfffffe)
	run := func(n int) (took clock.Time) {
		t.Helper()
		began := now
		for sent := 0; sent < n; {
			got := len(e.poll(now))
			if got == 0 || got > 3 {
				t.Fatalf("%d packets at once, %d of %d are sent", got, sent, n)
			}
			if sent += got; sent == n {
				break
			}
			at, ok := e.r.Deadline()
			if !ok || at != control.next {
				t.Fatalf("the deadline is %d, %v; the next may go at %d", at, ok, control.next)
			}
			if early := e.poll(at - 1); len(early) > 0 {
				t.Fatalf("%v is sent too early", early)
			}
			now = at
			e.r.HandleTimeout(now)
		}
		return now - began
	}
	const all = packets * (256 + cc.PacketOverhead)
	if took := run(packets); took < (all-2*paceBurst)*perByte || took > all*perByte {
		t.Errorf("%d packets took %d ns at %d ns a byte", packets, took, perByte)
	}
	e.poll(now)
	if at, _ := e.r.Deadline(); at == control.next {
		t.Error("there is nothing to send and the deadline is that of the rate")
	}
	e.r.Marked(now, cc.Notified)
	now = control.next
	e.answer(now, first, rocev2.AETH{Syndrome: rocev2.NAKSequence})
	if took := run(packets); took < (all-2*paceBurst)*perByte*2 || took > all*perByte*2 {
		t.Errorf("again, at half the rate, it took %d ns", took)
	}
	e.answer(now, first.Add(packets-1), rocev2.AETH{Syndrome: rocev2.ACKNoCredits, MSN: 1})
	if _, ok := e.r.Deadline(); ok || e.done != 1 || e.c.Stats.Rare().WindowCuts != 2 {
		t.Errorf("a timer: %v; %d done, %d cuts", ok, e.done, e.c.Stats.Rare().WindowCuts)
	}
}
