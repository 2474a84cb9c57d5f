package adapter

import (
	"testing"

	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
)

// Classes of a host share its cable by their weights while they have packets,
// in packets and not in long turns, and a strict one goes first. Without shares
// the highest class does.
func TestShares(t *testing.T) {
	t.Parallel()
	const requests = 16
	for _, c := range []struct {
		shares *Shares
		want   [3]int // requests of classes 0, 3 and 5 that are over when one class has completed all
	}{
		{nil, [3]int{0, 0, 16}},
		{&Shares{}, [3]int{16, 16, 16}},
		{&Shares{Weight: [8]uint16{0: 4, 3: 8, 5: 2}}, [3]int{8, 16, 4}},
		{&Shares{Weight: [8]uint16{0: 65535, 3: 1, 5: 65535}}, [3]int{16, 0, 16}},
		{&Shares{Strict: 1 << 3, Weight: [8]uint16{0: 4}}, [3]int{0, 16, 0}},
	} {
		a := star(t, 4, 0, network.Switch{}, Config{Seed: 1, Shares: c.shares, Window: qp.WindowConfig{InitialBytes: 1 << 20, MaxBytes: 1 << 20}})
		var over, first [3]int
		for i, class := range []uint8{0, 3, 5} {
			x, _ := mustConnect(t, a, 0, 1+i, Connection{TrafficClass: class << 5})
			for range requests {
				must(t, x.Post(Request{Op: ib.OpWrite, Bytes: 256 << 10, Done: func(Completion) {
					if over[i]++; over[i] == requests && first == [3]int{} {
						first = over
					}
				}}))
			}
		}
		settle(t, a)
		for i, want := range c.want {
			if d := first[i] - want; d < -1 || d > 1 {
				t.Errorf("%+v: %v requests are over, want %v", c.shares, first, c.want)
				break
			}
		}
		if over != [3]int{requests, requests, requests} {
			t.Errorf("%+v: %v requests are over at the end", c.shares, over)
		}
	}
}
