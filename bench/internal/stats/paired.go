package stats

import (
	"math"
	"slices"
)

// Paired compares two things that were measured in turns.
type Paired struct {
	N     int     // rounds
	Ratio float64 // new by old: the Hodges-Lehmann estimate
	// Low and High bound the ratio with the confidence Level, which is as
	// near above 0.95 as N rounds allow. With five or fewer rounds it is
	// below 0.95.
	Low, High, Level float64
	// P is the probability of a difference at least as clear if old and new
	// were the same: the exact Wilcoxon signed-rank test, two-sided.
	P float64
}

// Compare compares samples that were taken in turns, the ith of one beside the
// ith of the other. It looks at the logarithms of the rounds' ratios: their
// signed ranks say whether the two differ, and the median of their pairwise
// means (Hodges-Lehmann) says by how much. That needs no normal distribution,
// and one wild round changes little. Rounds in which a sample is missing (NaN)
// or not positive are left out.
func Compare(before, after []float64) Paired {
	var d []float64
	for _, r := range Ratios(after, before) {
		if r > 0 {
			d = append(d, math.Log(r))
		}
	}
	n := len(d)
	p := Paired{N: n, Ratio: math.NaN(), Low: math.NaN(), High: math.NaN(), P: 1}
	if n == 0 {
		return p
	}
	means := walsh(d)
	p.Ratio = math.Exp(Median(means))
	k, level := cut(n)
	p.Low, p.High, p.Level = math.Exp(means[k]), math.Exp(means[len(means)-1-k]), level
	p.P = signedRank(d)
	return p
}

// walsh returns the means of all pairs, each with itself too, in order.
func walsh(d []float64) []float64 {
	out := make([]float64, 0, len(d)*(len(d)+1)/2)
	for i := range d {
		for j := range d[:i+1] {
			out = append(out, (d[i]+d[j])/2)
		}
	}
	slices.Sort(out)
	return out
}

// cut returns how many of the pairwise means lie outside of the interval at
// either end, and the confidence of that interval.
func cut(n int) (k int, level float64) {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = 2 * (i + 1)
	}
	dist := rankSums(ranks)
	below := dist[0] // P(W = 0)
	level = 1 - 2*below
	for w := 1; 2*w < len(dist)/2; w++ {
		if below += dist[2*w]; 1-2*below < 0.95 {
			break
		}
		k, level = w, 1-2*below
	}
	return k, level
}

// signedRank is the two-sided exact P value of the Wilcoxon signed-rank test.
// Ties get the mean of their ranks; differences of zero are left out.
func signedRank(d []float64) float64 {
	d = slices.DeleteFunc(slices.Clone(d), func(v float64) bool { return v == 0 })
	slices.SortFunc(d, func(a, b float64) int {
		switch x, y := math.Abs(a), math.Abs(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	ranks := make([]int, len(d)) // doubled, so that the mean of two is whole
	sum, all := 0, 0
	for i := 0; i < len(d); {
		j := i + 1
		for j < len(d) && math.Abs(d[j]) == math.Abs(d[i]) {
			j++
		}
		for k := i; k < j; k++ {
			ranks[k] = i + 1 + j // 2 · mean of i+1 … j
			all += ranks[k]
			if d[k] > 0 {
				sum += ranks[k]
			}
		}
		i = j
	}
	p, far := 0.0, abs(2*sum-all)
	for w, q := range rankSums(ranks) {
		if abs(2*w-all) >= far {
			p += q
		}
	}
	return min(p, 1)
}

// rankSums returns the distribution of the sum of ranks if each counts with
// probability one half.
func rankSums(ranks []int) []float64 {
	dist := []float64{1}
	for _, r := range ranks {
		next := make([]float64, len(dist)+r)
		for w, q := range dist {
			next[w] += q / 2
			next[w+r] += q / 2
		}
		dist = next
	}
	return dist
}

func abs(v int) int { return max(v, -v) }

// Holm adjusts P values of several comparisons, so that the probability that
// any of them is taken for real by mistake stays what one alone would have.
func Holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case p[a] < p[b]:
			return -1
		case p[a] > p[b]:
			return 1
		}
		return 0
	})
	out := make([]float64, len(p))
	highest := 0.0
	for i, o := range order {
		highest = max(highest, min(1, p[o]*float64(len(p)-i)))
		out[o] = highest
	}
	return out
}
