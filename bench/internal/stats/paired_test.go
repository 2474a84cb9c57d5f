package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// The numbers of the smallest cases can be counted by hand: 2^n signs.
func TestSignedRank(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why  string
		d    []float64
		want float64
	}{
		{"nothing", nil, 1},
		{"all the same", []float64{0, 0, 0}, 1},
		{"one sign of five", []float64{1, 2, 3, 4, 5}, 2.0 / 32},
		{"one sign of six, downward", []float64{-6, -1, -2, -5, -3, -4}, 2.0 / 64},
		{"the smallest of five is against", []float64{-1, 2, 3, 4, 5}, 4.0 / 32},
		{"the largest of five is against", []float64{1, 2, 3, 4, -5}, 20.0 / 32},
		{"balanced", []float64{1, -1}, 1},
		{"ties share a rank: 1.5, 1.5, 3", []float64{1, -1, 3}, 6.0 / 8},
		{"zeros do not count", []float64{0, 1, 2, 3, 4, 5, 0}, 2.0 / 32},
	} {
		if got := signedRank(c.d); !near(got, c.want) {
			t.Errorf("%s: %v, want %v", c.why, got, c.want)
		}
	}
}

// Tables of the signed-rank test have the number of pairwise means to leave out
// at either end for 95 %: 0 of 6, 8 of 10, 52 of 20.
func TestCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n, k  int
		level float64
	}{{1, 0, 0}, {5, 0, 0.9375}, {6, 0, 0.96875}, {8, 3, 0.9609375}, {10, 8, 0.951171875}, {20, 52, 0.951554}} {
		k, level := cut(c.n)
		if k != c.k || math.Abs(level-c.level) > 1e-5 {
			t.Errorf("%d rounds: %d, %v, want %d, %v", c.n, k, level, c.k, c.level)
		}
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	before := []float64{10, 20, 10, 40, 10, 10}
	after := make([]float64, len(before))
	for i := range before {
		after[i] = before[i] * 1.5
	}
	p := Compare(before, after)
	if !near(p.Ratio, 1.5) || !near(p.Low, 1.5) || !near(p.High, 1.5) || p.N != 6 || !near(p.P, 2.0/64) {
		t.Errorf("half as much again in every round: %+v", p)
	}

	nan := math.NaN()
	if p := Compare([]float64{1, nan, 2, 0, 3}, []float64{2, 3, nan, 1, 0}); p.N != 1 || !near(p.Ratio, 2) {
		t.Errorf("only the first round has both: %+v", p)
	}
	if p := Compare([]float64{nan}, []float64{1}); p.N != 0 || !math.IsNaN(p.Ratio) || p.P != 1 {
		t.Errorf("no round at all: %+v", p)
	}

	// A wild round hardly matters.
	before = []float64{100, 101, 99, 100, 102, 98, 100, 101, 99, 100}
	after = []float64{110, 111, 109, 111, 112, 108, 20, 111, 109, 110}
	if p := Compare(before, after); math.Abs(p.Ratio-1.1) > 0.01 || p.Low <= 1 && p.P < 0.05 {
		t.Errorf("one round of ten is wild: %+v", p)
	}
}

// The interval and the test agree, and both hold what they promise: of things
// that are the same, about one in twenty is found to differ.
func TestIntervalAndTestAgree(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	const tries = 4000
	found := 0
	for range tries {
		before, after := make([]float64, 10), make([]float64, 10)
		for i := range before {
			shared := math.Exp(r.NormFloat64()) // the machine is slow in this round
			before[i] = shared * math.Exp(0.02*r.NormFloat64())
			after[i] = shared * math.Exp(0.02*r.NormFloat64())
		}
		p := Compare(before, after)
		outside := p.Low > 1 || p.High < 1
		if outside != (p.P < 1-p.Level+1e-9) {
			t.Fatalf("the interval %v … %v and P = %v disagree", p.Low, p.High, p.P)
		}
		if outside {
			found++
		}
	}
	if share := float64(found) / tries; share < 0.035 || share > 0.065 {
		t.Errorf("%v of the comparisons of the same are found to differ, want about 0.049", share)
	}
}

func TestHolm(t *testing.T) {
	t.Parallel()
	got := Holm([]float64{0.04, 0.01, 0.03, 0.005})
	for i, want := range []float64{0.06, 0.03, 0.06, 0.02} {
		if !near(got[i], want) {
			t.Errorf("Holm: %v", got)
		}
	}
	if got := Holm([]float64{0.6, 0.7}); got[0] != 1 || got[1] != 1 {
		t.Errorf("above 1: %v", got)
	}
	if len(Holm(nil)) != 0 {
		t.Error("of nothing")
	}
}
