package stats

import (
	"math"
	"slices"
	"testing"
)

func TestOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   []float64
		want Summary
	}{
		{nil, Summary{}},
		{[]float64{7}, Summary{1, 7, 7, 7}},
		{[]float64{5, 1, 4}, Summary{3, 1, 4, 5}},
		{[]float64{4, 1, 2, 9}, Summary{4, 1, 3, 9}},
	} {
		in := slices.Clone(c.in)
		if got := Of(in); got != c.want {
			t.Errorf("Of(%v) = %+v, want %+v", c.in, got, c.want)
		}
		if !slices.Equal(in, c.in) {
			t.Errorf("Of changed its argument to %v", in)
		}
	}
	if !math.IsNaN(Median(nil)) {
		t.Error("the median of nothing is a number")
	}
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	hundred := make([]uint32, 100)
	for i := range hundred {
		hundred[i] = uint32(100 - i)
	}
	for _, c := range []struct {
		in   []uint32
		p    float64
		want float64
	}{
		{nil, 50, 0},
		{[]uint32{3}, 99, 3},
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 100, 100},
		{hundred, 0, 1},
	} {
		if got := Percentile(slices.Clone(c.in), c.p); got != c.want {
			t.Errorf("percentile %v of %d samples = %v, want %v", c.p, len(c.in), got, c.want)
		}
	}
}

func TestRatiosLeaveOutWhatIsMissing(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	got := Ratios([]float64{2, nan, 6, 8, 1}, []float64{1, 1, nan, 4, 0})
	if want := []float64{2, 2}; !slices.Equal(got, want) {
		t.Errorf("ratios %v, want %v", got, want)
	}
}
