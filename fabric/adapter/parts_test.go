package adapter

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric/cores"
	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
)

// A permutation has one digest with any number of parts, at the same time and
// one after the other.
func TestPermutationInParts(t *testing.T) {
	t.Parallel()
	window := Config{Window: qp.WindowConfig{InitialBytes: 256 << 10, MaxBytes: 256 << 10}}
	var want string
	for _, parts := range []int{1, 2, 3, 4, 8} {
		for _, parallel := range []bool{false, true} {
			c := cores.New(parts)
			do := c.Do
			if !parallel {
				do = nil
			}
			a := leafSpineOf(t, 4, 4, 4, window, network.ECMP, parts, do)
			permutation(t, a, 1<<20, Connection{})
			settle(t, a)
			c.Close()
			if got := min(parts, 4); a.net.Parts() != got && parts <= 4 {
				t.Errorf("%d parts, want %d", a.net.Parts(), got)
			}
			got := fmt.Sprintf("%x %+v %+v", a.net.Digest(), a.net.Totals(), a.Stats())
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("%d parts, parallel %v:\n%s, want\n%s", parts, parallel, got, want)
			}
		}
	}
}

// Packets with bytes come through between parts, ICRC and all, and their memory
// comes back.
func TestRealInParts(t *testing.T) {
	t.Parallel()
	c := cores.New(3)
	defer c.Close()
	a := starOf(t, 4, 5e6, network.Switch{}, Config{Real: true, Seed: 1}, 3, c.Do)
	want := make([]byte, 300_000)
	for i := range want {
		want[i] = byte(i * i >> 8)
	}
	var got [4][]byte
	var done [4]bool
	for from := range got {
		to := (from + 2) % 4
		x, y := mustConnect(t, a, from, to, Connection{})
		here, err := x.Host().Register(want)
		must(t, err)
		got[to] = make([]byte, len(want))
		there, err := y.Host().Register(got[to])
		must(t, err)
		must(t, x.Post(Request{Op: ib.OpWrite, Local: here.All(), Remote: ib.RemoteAddr{Addr: there.Addr(), RKey: there.RKey()},
			Done: func(c Completion) { done[from] = c.Status == ib.StatusSuccess && c.End == x.Host().Now() }}))
	}
	settle(t, a)
	for i := range got {
		if !bytes.Equal(got[i], want) || !done[i] {
			t.Errorf("host %d has got something else, done %v", i, done[i])
		}
	}
	if a.net.Totals().Dropped() == 0 {
		t.Error("nothing was lost")
	}
}

// Records of packets come back to the part that has made them, also where one
// part sends most.
func TestRecordsComeBack(t *testing.T) {
	t.Parallel()
	a := starOf(t, 2, 0, network.Switch{}, Config{}, 2, nil)
	x, _ := mustConnect(t, a, 0, 1, Connection{})
	for range 20 {
		must(t, x.Post(Request{Op: ib.OpWrite, Bytes: 8 << 20}))
		a.Network().Run(a.Now() + event.Millisecond)
	}
	for i, p := range a.parts {
		if n := p.records.all.n; n > 4*pieceLen {
			t.Errorf("part %d has made %d records, of %d packets in all", i, n, a.net.Totals().Sent)
		}
	}
	settle(t, a)
}

// parallelMeter measures the time of the threads that parts run on.
type parallelMeter struct {
	cores  *cores.Cores
	each   []padded
	busy   time.Duration
	inside time.Duration // of do, on the goroutine that calls Run
}

type padded struct {
	time.Duration
	_ [56]byte
}

func (m *parallelMeter) do(n int, turn func(int)) {
	entered := threadTime()
	defer func() { m.inside += threadTime() - entered }()
	m.cores.Do(n, func(i int) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		begun := threadTime()
		turn(i)
		m.each[i].Duration = threadTime() - begun
	})
	for i := range n {
		m.busy += m.each[i].Duration
	}
}

// BenchmarkParts is the permutation of BenchmarkPermutation, in parts: what the
// clock says, and the time that all threads have run, or looked for others to
// come on.
func BenchmarkParts(b *testing.B) {
	for _, c := range []struct{ leaves, spines, hosts int }{{8, 16, 16}, {32, 32, 32}} {
		for _, parts := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("%d/%d", c.leaves*c.hosts, parts), func(b *testing.B) {
				m := &parallelMeter{cores: cores.New(parts), each: make([]padded, parts)}
				defer m.cores.Close()
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				var events uint64
				var spent, own time.Duration
				for b.Loop() {
					a := leafSpineOf(b, c.leaves, c.spines, c.hosts, Config{Window: qp.WindowConfig{InitialBytes: 256 << 10, MaxBytes: 256 << 10}}, network.ECMP, parts, m.do)
					begun, ran := time.Now(), threadTime()
					permutation(b, a, 4<<20, Connection{})
					spent, own = spent+time.Since(begun), own+threadTime()-ran
					events += a.Network().Totals().Events
				}
				each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(events) }
				b.ReportMetric(each(spent), "wall-ns/event")
				b.ReportMetric(each(m.busy+own-m.inside), "cpu-ns/event")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
