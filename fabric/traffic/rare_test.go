package traffic

import (
	"math"
	"testing"
)

// Arrivals that are minutes apart are on the mean as far apart as was asked.
func TestRareArrivals(t *testing.T) {
	t.Parallel()
	s, err := Load{Hosts: 2, Sizes: WebSearch, Rate: 100e6, Load: 1000, Until: math.MaxInt64 / 2}.Stream(seeded(1))
	if err != nil {
		t.Fatal(err)
	}
	const flows = 10_000
	var last Flow
	for range flows {
		last, _ = s.Next()
	}
	want := 1_711_250 * 8 / 200e6 * 1000 // seconds
	if got := float64(last.At) / 1e12 / flows; !near(got, want, 30) {
		t.Errorf("%.3f s between two flows, want %.3f", got, want)
	}
}
