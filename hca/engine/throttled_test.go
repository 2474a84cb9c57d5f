package engine

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/rocev2"
)

// throttled is a host with n queue pairs whose rates notifications have brought
// to the least value, and which have data to send.
func throttled(t testing.TB, n int, profile cc.Profile) (*world, *host) {
	t.Helper()
	w := newWorld(t, 1)
	w.delay = time.Microsecond
	a, b := w.newPair(Config{Window: boundless, MinProbe: -1, Congestion: func(c qp.WindowConfig) qp.Controller {
		return cc.NewDCQCN(cc.NewStatic(0, c), &profile)
	}})
	a.held, b.held, a.slow = true, true, true // nothing is answered
	queues := make([]*QP, n)
	for i := range queues {
		queues[i], _ = connectPair(a, b, true)
	}
	for range 40 {
		w.now = w.now.Add(max(profile.CutPeriod, time.Microsecond))
		for _, q := range queues {
			a.forge(q, b.addr, rocev2.UDPPort, rocev2.CNP, 0)
		}
	}
	for i, q := range queues {
		w.now = w.now.Add(time.Duration(i % 7))
		a.post(q, ib.OpWrite, b, 64<<10)
	}
	w.fill(a)
	return w, a
}

// fill takes all that a host has to send, and returns how many packets.
func (w *world) fill(h *host) (packets int) {
	for {
		w.tx.Reset()
		h.e.Fill(w.now, w.tx, AllClasses)
		if w.tx.Len() == 0 {
			return packets
		}
		packets += w.tx.Len()
	}
}

// wakes runs a host's timers for a while, and returns how often it was woken,
// and what it has sent.
func (w *world) wakes(h *host, span time.Duration) (wakes, packets int) {
	for end := w.now.Add(span); ; wakes++ {
		at, ok := h.e.Deadline()
		if !ok || at > end {
			w.now = end
			return wakes, packets
		}
		w.now = max(w.now, at)
		h.e.Advance(w.now)
		packets += w.fill(h)
	}
}

// A queue pair that waits for its rate is woken when it may send, and not each
// time that its rate grows.
func TestThrottledWakes(t *testing.T) {
	t.Parallel()
	for _, profile := range []cc.Profile{cc.PaperProfile(10e9), cc.AdapterProfile(10e9)} {
		profile.Additive, profile.Hyper, profile.Burst = 1, 0, 1 // so that it stays slow
		profile.Min = 1e6
		w, a := throttled(t, 1, profile)
		span := 200 * time.Millisecond
		wakes, packets := w.wakes(a, span)
		if want := int(span / profile.IncreasePeriod); packets < 3 || wakes > 3*packets || wakes > want/5 {
			t.Errorf("%v: woken %d times for %d packets; the rate grows %d times", profile.IncreasePeriod, wakes, packets, want)
		}
	}
}

// BenchmarkThrottled measures what thousands of queue pairs cost that are
// throttled to the least rate, in nanoseconds of a processor for a millisecond
// of time.
func BenchmarkThrottled(b *testing.B) {
	for _, c := range []struct {
		name    string
		profile cc.Profile
	}{{"paper", cc.PaperProfile(100e9)}, {"adapter", cc.AdapterProfile(100e9)}} {
		b.Run(c.name, func(b *testing.B) {
			const pairs, span = 4096, 20 * time.Millisecond
			c.profile.Additive, c.profile.Hyper, c.profile.Burst = 1, 0, 1
			c.profile.Min = 10e6
			var wakes, packets int
			var spent time.Duration
			for b.Loop() {
				w, a := throttled(b, pairs, c.profile)
				begun := time.Now()
				k, n := w.wakes(a, span)
				spent += time.Since(begun)
				wakes, packets = wakes+k, packets+n
			}
			ms := float64(b.N) * float64(span/time.Millisecond)
			b.ReportMetric(float64(spent.Nanoseconds())/ms, "ns/ms")
			b.ReportMetric(float64(wakes)/ms, "wakes/ms")
			b.ReportMetric(float64(packets)/ms, "packets/ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}
