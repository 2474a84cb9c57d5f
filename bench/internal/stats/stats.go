// Package stats has the few statistics that the figures need: medians with
// their range, percentiles, and ratios of samples that were taken in turns.
package stats

import (
	"math"
	"slices"
)

// Summary describes the repeats of one cell.
type Summary struct {
	N      int     `json:"repeats"`
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

// Of summarises samples; without any, all is zero.
func Of(samples []float64) Summary {
	if len(samples) == 0 {
		return Summary{}
	}
	return Summary{N: len(samples), Min: slices.Min(samples), Median: Median(samples), Max: slices.Max(samples)}
}

// Median returns the middle of samples, the mean of the two in the middle if
// there is an even number of them, and NaN if there is none.
func Median(samples []float64) float64 {
	s := slices.Sorted(slices.Values(samples))
	n := len(s)
	if n == 0 {
		return math.NaN()
	}
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}

// Percentile returns the smallest sample that at least p percent of the samples
// do not exceed, and 0 if there is none. It sorts samples in place.
func Percentile(samples []uint32, p float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	slices.Sort(samples)
	i := int(math.Ceil(p/100*float64(len(samples)))) - 1
	return float64(samples[min(max(i, 0), len(samples)-1)])
}

// Ratios divides samples that were taken in turns, the ith of one by the ith of
// the other: what slows the machine down for a while slows both. Pairs in which
// one is missing (NaN) or the divisor is zero are left out.
func Ratios(num, den []float64) []float64 {
	var out []float64
	for i := range min(len(num), len(den)) {
		if r := num[i] / den[i]; !math.IsNaN(r) && !math.IsInf(r, 0) {
			out = append(out, r)
		}
	}
	return out
}

// Steady reports whether all values are there, and lie within a share of the
// largest.
func Steady(share float64, values ...float64) bool {
	low, high := slices.Min(values), slices.Max(values)
	return low > 0 && high-low <= share*high
}
