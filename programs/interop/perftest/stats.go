package perftest

import (
	"math"
	"math/bits"
	"time"
)

// Histogram counts times in buckets whose width is at most a thousandth of the
// time, in memory that does not grow. Below 2 µs it is exact to the
// nanosecond. The zero value is not ready: use NewHistogram.
type Histogram struct {
	counts   []uint64
	n        uint64
	min, max time.Duration
	sum, sq  float64
}

const (
	subBits = 10 // 1024 buckets for every power of two
	octaves = 64 - subBits
)

// NewHistogram makes an empty histogram.
func NewHistogram() *Histogram {
	return &Histogram{counts: make([]uint64, octaves<<subBits)}
}

func bucketOf(d time.Duration) int {
	v := uint64(d)
	if v < 2<<subBits {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return shift<<subBits + int(v>>shift)
}

// valueOf returns the middle of a bucket.
func valueOf(b int) time.Duration {
	if b < 2<<subBits {
		return time.Duration(b)
	}
	shift := b>>subBits - 1
	low := uint64(b-shift<<subBits) << shift
	return time.Duration(low + 1<<shift/2)
}

// Add counts one time. A negative one counts as 0.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.counts[bucketOf(d)]++
	if h.n == 0 || d < h.min {
		h.min = d
	}
	h.max = max(h.max, d)
	h.n++
	h.sum += float64(d)
	h.sq += float64(d) * float64(d)
}

// Reset empties the histogram.
func (h *Histogram) Reset() {
	clear(h.counts)
	*h = Histogram{counts: h.counts}
}

// Count returns how many times were counted.
func (h *Histogram) Count() uint64 { return h.n }

// Quantile returns the time that the fraction q of all times does not exceed.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := min(max(uint64(math.Ceil(q*float64(h.n))), 1), h.n)
	var seen uint64
	for b, c := range h.counts {
		if seen += c; seen >= rank {
			return min(max(valueOf(b), h.min), h.max)
		}
	}
	return h.max
}

// Latencies sums a latency test up.
type Latencies struct {
	Min, Max, Typical, Average, StdDev time.Duration // Typical is the median
	P99, P999                          time.Duration
}

// Latencies returns the summary with every time divided by div: 2 where half a
// round trip is asked for.
func (h *Histogram) Latencies(div int) Latencies {
	if h.n == 0 {
		return Latencies{}
	}
	d := time.Duration(div)
	mean := h.sum / float64(h.n)
	variance := max(h.sq/float64(h.n)-mean*mean, 0)
	return Latencies{
		Min: h.min / d, Max: h.max / d,
		Typical: h.Quantile(0.5) / d, P99: h.Quantile(0.99) / d, P999: h.Quantile(0.999) / d,
		Average: time.Duration(mean) / d, StdDev: time.Duration(math.Sqrt(variance)) / d,
	}
}
