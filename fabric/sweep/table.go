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

// measure is what a table has of each run. One of completed flows is 0 where
// none has completed: that is no measurement, and would look like the fastest.
type measure struct {
	name  string
	of    func(*lab.Summary) float64
	there func(*lab.Summary) bool // nil: it is measured in each run
}

func (m *measure) measured(s *lab.Summary) bool { return m.there == nil || m.there(s) }

func anyCompleted(s *lab.Summary) bool { return s.Completed > 0 }

// tcp returns a counter of TCP, 0 where there is none.
func tcp(of func(*lab.TCPSummary) uint64) func(*lab.Summary) float64 {
	return func(s *lab.Summary) float64 {
		if s.TCP == nil {
			return 0
		}
		return float64(of(s.TCP))
	}
}

// measures are those of all flows of a run. Those that are 0 in all runs are
// left out.
var measures = []measure{
	{"last flow, us", func(s *lab.Summary) float64 { return s.LastUs }, anyCompleted},
	{"slowdown, mean", func(s *lab.Summary) float64 { return s.Slowdown.Mean }, anyCompleted},
	{"slowdown, p50", func(s *lab.Summary) float64 { return s.Slowdown.P50 }, anyCompleted},
	{"slowdown, p95", func(s *lab.Summary) float64 { return s.Slowdown.P95 }, anyCompleted},
	{"slowdown, p99", func(s *lab.Summary) float64 { return s.Slowdown.P99 }, anyCompleted},
	{"rate, Gb/s", func(s *lab.Summary) float64 { return s.Rate }, nil},
	{"Jain", func(s *lab.Summary) float64 { return s.Jain }, nil},
	{"dropped", func(s *lab.Summary) float64 { return float64(s.Dropped) }, nil},
	{"sent again", func(s *lab.Summary) float64 { return float64(s.Retransmits) }, nil},
	{"timeouts", func(s *lab.Summary) float64 { return float64(s.Timeouts) }, nil},
	{"pauses", func(s *lab.Summary) float64 { return float64(s.Pauses) }, nil},
	{"marks", func(s *lab.Summary) float64 { return float64(s.Marks) }, nil},
	{"window cuts", func(s *lab.Summary) float64 { return float64(s.WindowCuts) }, nil},
	{"rate cuts", func(s *lab.Summary) float64 { return float64(s.RateCuts) }, nil},
	{"longest queue, B", func(s *lab.Summary) float64 { return float64(s.LongestByte) }, nil},
	{"TCP: sent again", tcp(func(t *lab.TCPSummary) uint64 { return t.Again }), nil},
	{"TCP: timeouts", tcp(func(t *lab.TCPSummary) uint64 { return t.Timeouts }), nil},
	{"flows failed", func(s *lab.Summary) float64 { return float64(s.Failed) }, nil},
	{"flows unfinished", func(s *lab.Summary) float64 { return float64(s.Unfinished) }, nil},
}

// group is the runs of one combination of settings, by seed.
type group struct {
	name string
	runs map[uint64]*lab.Summary
}

// Group is the runs of one combination of settings. Measures that are 0 in all
// runs of all groups are left out, and so are those of completed flows where a
// group has none.
type Group struct {
	Name     string
	Runs     int
	Measures []Measure
	Pairs    int       // runs that have a seed in common with the first group; 0 of itself
	Ratios   []Measure // to those runs of the first group
}

// Measure is a number that was measured in several runs.
type Measure struct {
	Name      string
	Values    []float64 // sorted
	Median    float64
	Low, High float64 // the median of all seeds lies between with 95 % confidence, if Known
	Known     bool    // fewer than six runs tell nothing of that
}

func newMeasure(name string, values []float64) Measure {
	m := Measure{Name: name, Values: values, Median: median(values)}
	if k := outside(len(values)); k >= 0 {
		m.Low, m.High, m.Known = values[k], values[len(values)-1-k], true
	}
	return m
}

// Compare returns what the runs have come to, by their settings, all flows
// together and those of each traffic (see lab.Summary), and what is to be said
// of runs that could not be played, or have ended early. With more than one
// group each is compared with the first, seed by seed: by the median of the
// ratios.
func Compare(records []*Record) (all []Group, notes []string) {
	groups, notes := grouped(records)
	measures, left := measuresOf(groups)
	if left > 0 {
		notes = append(notes, fmt.Sprintf("%d more traffics have no measures of their own here; each run has them, as JSON", left))
	}
	for i, g := range groups {
		x := Group{Name: g.name, Runs: len(g.runs)}
		for _, m := range measures {
			var values []float64
			for _, s := range g.runs {
				if m.measured(s) {
					values = append(values, m.of(s))
				}
			}
			if used(groups, m.of) && len(values) > 0 {
				x.Measures = append(x.Measures, newMeasure(m.name, values))
			}
		}
		if i > 0 {
			x.compare(groups[0], g, measures)
		}
		all = append(all, x)
	}
	return all, notes
}

// compare compares a group with the first, by the seeds that both have.
func (x *Group) compare(first, g *group, measures []measure) {
	for seed := range g.runs {
		if first.runs[seed] != nil {
			x.Pairs++
		}
	}
	for _, m := range measures {
		var ratios []float64
		for seed, s := range g.runs {
			if f := first.runs[seed]; f != nil && m.of(f) != 0 && m.measured(s) && m.measured(f) {
				ratios = append(ratios, m.of(s)/m.of(f))
			}
		}
		if len(ratios) > 0 {
			x.Ratios = append(x.Ratios, newMeasure(m.name, ratios))
		}
	}
}

// Table writes what Compare returns: for each combination of settings the
// median of each measure, with the interval that holds the median of all seeds
// with 95 % confidence, and then the comparisons with the first. Runs that
// could not be played, or have ended early, are named.
func Table(w io.Writer, records []*Record) error {
	groups, notes := Compare(records)
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, g := range groups {
		fmt.Fprintf(tab, "%s: %d runs\tmedian\t95 %%\n", g.Name, g.Runs)
		for i := range g.Measures {
			m := &g.Measures[i]
			fmt.Fprintf(tab, "  %s\t%s\t%s\n", m.Name, Number(m.Median), m.Interval())
		}
	}
	for _, g := range groups[min(1, len(groups)):] {
		fmt.Fprintf(tab, "%s\n  / %s: %d pairs\tmedian\t95 %%\n", g.Name, groups[0].Name, g.Pairs)
		for i := range g.Ratios {
			m := &g.Ratios[i]
			fmt.Fprintf(tab, "  %s\t%.3f\t%s\n", m.Name, m.Median, m.Interval())
		}
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	for _, text := range notes {
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	return nil
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

// Number writes a number with the digits that say something.
func Number(v float64) string {
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

// Interval writes the interval in which the median of what the values are drawn
// from lies with at least 95 % confidence, by the binomial distribution of how
// many are below it. Fewer than six values tell none.
func (m *Measure) Interval() string {
	if !m.Known {
		return "-"
	}
	return Number(m.Low) + " to " + Number(m.High)
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
