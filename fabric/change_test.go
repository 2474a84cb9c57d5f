package fabric

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/transport"
)

// A cut takes what is on the cable, in both directions, and what follows; what
// has arrived and what comes after Plug is there.
func TestCutCable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const delay = time.Millisecond
		la, lb := Pair(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"),
			Config{Port: PortConfig{Delay: delay, Rate: 1e9}})
		defer la.Close()
		defer lb.Close()
		a, b := la.(*Port), lb.(*Port)
		to := func(l transport.Link) transport.Path { return transport.Path{Dst: l.Addr()} }
		psns := func(l transport.Link) (got []int) {
			for _, p := range drain(t, l, time.Now()) {
				got = append(got, p.psn)
			}
			return got
		}
		send(t, a, to(b), 0, 2, 64) // arrive
		time.Sleep(2 * delay)
		send(t, a, to(b), 2, 4, 64) // on the way to b
		time.Sleep(delay / 2)
		b.Cut()
		b.Cut()
		send(t, a, to(b), 4, 6, 64) // meet a cut cable
		send(t, b, to(a), 4, 6, 64) // do not get away
		time.Sleep(delay / 4)
		b.Plug() // before those under way would have arrived
		time.Sleep(2 * delay)
		if got := psns(b); !equal(got, []int{0, 1}) {
			t.Errorf("arrived at the cut cable: %v", got)
		}
		if got := psns(a); got != nil {
			t.Errorf("arrived from the cut cable: %v", got)
		}
		send(t, a, to(b), 6, 8, 64)
		send(t, b, to(a), 6, 8, 64)
		time.Sleep(2 * delay)
		if ga, gb := psns(a), psns(b); !equal(ga, []int{6, 7}) || !equal(gb, []int{6, 7}) {
			t.Errorf("arrived after the cable was plugged in: %v and %v", ga, gb)
		}
		// Its own uplink: what is on the cable is the sender's to lose.
		send(t, b, to(a), 8, 60, 4096)
		b.Cut()
		time.Sleep(delay)
		b.Plug()
		time.Sleep(5 * delay)
		if got := psns(a); len(got) != 0 {
			t.Errorf("arrived from the uplink that was cut: %v", got)
		}
		if n := b.Counters().Cut; n != 6+52 || a.Counters().Cut != 0 {
			t.Errorf("%d and %d packets counted", n, a.Counters().Cut)
		}
	})
}

// A port is changed in the middle of everything.
func TestChangePort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		la, lb := Pair(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"))
		defer la.Close()
		defer lb.Close()
		b := lb.(*Port)
		path := transport.Path{Dst: lb.Addr()}
		for i, loss := range []float64{0, 1, 0} {
			b.SetLoss(loss)
			send(t, la, path, 100*i, 100*i+50, 64)
			if got, want := len(drain(t, lb, time.Now())), int(50*(1-loss)); got != want {
				t.Errorf("loss %v: %d arrive, want %d", loss, got, want)
			}
		}
		c := b.Config()
		c.Delay, c.RecvBuffer = time.Second, 0
		b.SetConfig(c)
		start := time.Now()
		send(t, la, path, 7, 8, 64)
		c.Delay = 0
		b.SetConfig(c)
		send(t, la, path, 8, 9, 64)
		got := collect(t, lb, start, 2)
		if got[0].psn != 8 || got[0].at != 0 || got[1].psn != 7 || got[1].at != time.Second {
			t.Errorf("a delay that changed: %v after %v, %v after %v", got[0].psn, got[0].at, got[1].psn, got[1].at)
		}
		if b.Capabilities().RecvBuffer != defaultRecvBuffer || b.Counters().Lost != 50 {
			t.Errorf("buffer of %d, %+v", b.Capabilities().RecvBuffer, b.Counters())
		}
	})
}
