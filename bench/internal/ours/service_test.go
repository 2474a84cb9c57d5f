package ours

import (
	"testing"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/pair"
)

// TestDelivered checks that what an unreliable service lost does not count, and
// that the sample tells of it.
func TestDelivered(t *testing.T) {
	t.Parallel()
	values := func(name string, n float64) pair.Result {
		return pair.Result{Values: map[string]float64{name: n, "gbps": 8, "messages": 1000, "seconds": 1}}
	}
	c := Config{Test: Stream, Op: "send", Service: UD}
	s := sample(&c, values("received", 750), values("sent", 1000), "gbps")
	if !s.OK() || s.Value != 6 || s.Extra[cell.LostPercent] != 25 || s.Count["messages lost"] != 250 {
		t.Errorf("a quarter was lost: %+v", s)
	}
	if s := sample(&c, values("received", 1000), values("sent", 1000), "gbps"); !s.OK() || s.Value != 8 || s.Extra[cell.LostPercent] != 0 {
		t.Errorf("nothing was lost: %+v", s)
	}
	for got, sent := range map[float64]float64{0: 0, 11: 10} {
		if s := sample(&c, values("received", got), values("sent", sent), "gbps"); s.OK() {
			t.Errorf("%v of %v messages: %+v", got, sent, s)
		}
	}
	c.Service = RC
	if s := sample(&c, values("received", 0), values("sent", 1000), "gbps"); s.Value != 8 {
		t.Errorf("the reliable service: %+v", s)
	}
}
