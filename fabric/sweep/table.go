package sweep

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gosoftroce/rocev2/fabric/lab"
)

// measures are what a table has of each run. Those that are 0 in all runs are
// left out.
var measures = []struct {
	name string
	of   func(*lab.Summary) float64
}{
	{"last flow, us", func(s *lab.Summary) float64 { return s.LastUs }},
	{"slowdown, mean", func(s *lab.Summary) float64 { return s.Slowdown.Mean }},
	{"slowdown, p50", func(s *lab.Summary) float64 { return s.Slowdown.P50 }},
	{"slowdown, p95", func(s *lab.Summary) float64 { return s.Slowdown.P95 }},
	{"slowdown, p99", func(s *lab.Summary) float64 { return s.Slowdown.P99 }},
	{"rate, Gb/s", func(s *lab.Summary) float64 { return s.Rate }},
	{"Jain", func(s *lab.Summary) float64 { return s.Jain }},
	{"dropped", func(s *lab.Summary) float64 { return float64(s.Dropped) }},
	{"sent again", func(s *lab.Summary) float64 { return float64(s.Retransmits) }},
	{"timeouts", func(s *lab.Summary) float64 { return float64(s.Timeouts) }},
	{"pauses", func(s *lab.Summary) float64 { return float64(s.Pauses) }},
	{"marks", func(s *lab.Summary) float64 { return float64(s.Marks) }},
	{"window cuts", func(s *lab.Summary) float64 { return float64(s.WindowCuts) }},
	{"rate cuts", func(s *lab.Summary) float64 { return float64(s.RateCuts) }},
	{"longest queue, B", func(s *lab.Summary) float64 { return float64(s.LongestByte) }},
	{"flows failed", func(s *lab.Summary) float64 { return float64(s.Failed) }},
	{"flows unfinished", func(s *lab.Summary) float64 { return float64(s.Unfinished) }},
}

// group is the runs of one combination of settings, by seed.
type group struct {
	name string
	runs map[uint64]*lab.Summary
}

// Table writes what the runs have come to: for each combination of settings the
// median over the seeds of each measure, with the interval that holds the
// median of all seeds with 95 % confidence. With more than one combination it
// then compares each with the first, seed by seed: the median of the ratios.
// Runs that could not be played, or have ended early, are named.
func Table(w io.Writer, records []*Record) error {
	groups, wrong := grouped(records)
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, g := range groups {
		fmt.Fprintf(tab, "%s: %d runs\tmedian\t95 %%\n", g.name, len(g.runs))
		for _, m := range measures {
			var all []float64
			for _, s := range g.runs {
				all = append(all, m.of(s))
			}
			if used(groups, m.of) && len(all) > 0 {
				fmt.Fprintf(tab, "  %s\t%s\t%s\n", m.name, number(median(all)), interval(all))
			}
		}
	}
	for _, g := range groups[min(1, len(groups)):] {
		writeRatios(tab, groups[0], g)
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	for _, text := range wrong {
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	return nil
}

// writeRatios compares a group with the first, by the seeds that both have.
func writeRatios(w io.Writer, first, g *group) {
	n := 0
	for seed := range g.runs {
		if first.runs[seed] != nil {
			n++
		}
	}
	fmt.Fprintf(w, "%s\n  / %s: %d pairs\tmedian\t95 %%\n", g.name, first.name, n)
	for _, m := range measures {
		var ratios []float64
		for seed, s := range g.runs {
			if f := first.runs[seed]; f != nil && m.of(f) != 0 {
				ratios = append(ratios, m.of(s)/m.of(f))
			}
		}
		if len(ratios) > 0 {
			fmt.Fprintf(w, "  %s\t%.3f\t%s\n", m.name, median(ratios), interval(ratios))
		}
	}
}

// grouped returns the runs by their settings, in the order of the plan, and
// what is to be said of some.
func grouped(records []*Record) (groups []*group, wrong []string) {
	sorted := slices.Clone(records)
	slices.SortFunc(sorted, func(a, b *Record) int { return a.Run - b.Run })
	byName := map[string]*group{}
	for _, r := range sorted {
		name := r.settings()
		g := byName[name]
		if g == nil {
			g = &group{name: name, runs: map[uint64]*lab.Summary{}}
			byName[name] = g
			groups = append(groups, g)
		}
		switch {
		case r.Result == nil:
			wrong = append(wrong, fmt.Sprintf("%s, seed %d: not played: %s", name, r.Seed, r.Error))
			continue
		case r.Result.Early != "":
			wrong = append(wrong, fmt.Sprintf("%s, seed %d: ended early: %s", name, r.Seed, r.Result.Early))
		}
		g.runs[r.Seed] = r.Result
	}
	return groups, wrong
}

// settings says what a run had set.
func (r *Record) settings() string {
	if len(r.Settings) == 0 {
		return "as it is"
	}
	var parts []string
	for k, v := range r.Settings {
		parts = append(parts, k+"="+v)
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

// used reports whether a measure is not 0 in all runs.
func used(groups []*group, of func(*lab.Summary) float64) bool {
	for _, g := range groups {
		for _, s := range g.runs {
			if of(s) != 0 {
				return true
			}
		}
	}
	return false
}

// number writes a number with the digits that say something.
func number(v float64) string {
	if v == float64(int64(v)) {
		return fmt.Sprintf("%d", int64(v))
	}
	return fmt.Sprintf("%.4g", v)
}

// median sorts the numbers, and returns their median.
func median(v []float64) float64 {
	slices.Sort(v)
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// interval sorts the numbers, and writes the interval in which the median of
// what they are drawn from lies with at least 95 % confidence, by the binomial
// distribution of how many are below it. Fewer than six tell none.
func interval(v []float64) string {
	slices.Sort(v)
	k := outside(len(v))
	if k < 0 {
		return "-"
	}
	return number(v[k]) + " to " + number(v[len(v)-1-k])
}

// outside returns how many of n numbers may be left out at each end, so that
// the median lies between the others with at least 95 %; -1 if all are too few.
func outside(n int) int {
	p, sum := 1.0, 0.0
	for range n {
		p /= 2
	}
	if n > 1000 { // p may be 0: the normal distribution is close
		return int(float64(n)/2 - 0.98*math.Sqrt(float64(n)) - 1)
	}
	for k := 0; ; k++ { // p is the chance that exactly k are below the median
		if sum += p; sum > 0.025 {
			return k - 1
		}
		p *= float64(n-k) / float64(k+1)
	}
}
