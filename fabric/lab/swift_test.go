package lab

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/rocev2"
)

// The target of Swift has in it what cables take beyond what each hop adds, and
// what a scenario says stays as it is.
func TestSwiftTargetOfAPath(t *testing.T) {
	t.Parallel()
	hop := func(rate Rate, delay Time) hop { return hop{rate: int64(rate), delay: delay} }
	short, long := hop(100*Gbps, 1*us), hop(10*Gbps, 500*us)
	const added = 20 * time.Microsecond * 100 / 655 // 3.053 µs
	// 1000 µs of light, and 4194 and 86 bytes at 10 Gb/s.
	const more = 1000*time.Microsecond + 3355*time.Nanosecond + 69*time.Nanosecond - added
	for _, c := range []struct {
		path path
		said cc.SwiftConfig
		want time.Duration
		hops int
	}{
		{path{short}, cc.SwiftConfig{}, 20 * time.Microsecond, 0},
		{path{short, short, short, short}, cc.SwiftConfig{}, 20 * time.Microsecond, 3},
		{path{short, long}, cc.SwiftConfig{}, 20*time.Microsecond + more, 1},
		{path{long, long, short}, cc.SwiftConfig{Hops: 7}, 20*time.Microsecond + 2*more, 7},
		{path{short, long}, cc.SwiftConfig{Hop: time.Millisecond}, 20*time.Microsecond + more + added - time.Millisecond, 1},
		{path{short, long}, cc.SwiftConfig{Target: 50 * time.Microsecond}, 50 * time.Microsecond, 1},
		{path{hop(Gbps, 1_000_000*us), short}, cc.SwiftConfig{}, time.Second, 1},
		{nil, cc.SwiftConfig{}, 20 * time.Microsecond, 0},
	} {
		got := c.path.swift(c.said, rocev2.MTU4096)
		if d := got.Target - c.want; d < -2 || d > 2 || got.Hops != c.hops || got.Check() != nil {
			t.Errorf("%v, %+v: %+v, want a target of %v, and %d hops", c.path, c.said, got, c.want, c.hops)
		}
		if c.said == (cc.SwiftConfig{}) && (got.Hop != added || got.Range != 100*time.Microsecond) {
			t.Errorf("%v: %+v", c.path, got)
		}
	}
}

// Over cables of 100 µs, where the round trip alone is twenty times 20 µs,
// Swift keeps the queue that it keeps over short ones, less what one hop adds
// more than it takes there, and the link is full.
func TestSwiftOverLongCables(t *testing.T) {
	t.Parallel()
	r := play(t, Scenario{Until: 300_000 * us, Warm: 200_000 * us, Network: Network{Topology: "star", Hosts: 5, Rate: 25 * Gbps, Profile: "hpcc-sim", Delay: 100 * us, Lossy: true},
		Adapter: Adapter{Control: "swift", Window: 4 << 20}, Traffic: []Traffic{{Kind: "incast", Senders: 4}}})
	if _, sum, jain := r.Rates(); sum < 24*Gbps || jain < .98 {
		t.Errorf("%v together, Jain %.4f", sum, jain)
	}
	// The target is 20 and 3.05 µs, and for each of the two cables what it
	// takes less 3.05. Windows of 78 packets add 0.43.
	const want = (20 - 3.05 + .43) * 3125
	if got := float64(r.Queues[0].Mean); got < want*.9 || got > want*1.1 {
		t.Errorf("a mean queue of %.0f bytes, want %.0f", got, want)
	}
}
