package diff

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/grid"
	"github.com/gosoftroce/rocev2/bench/internal/stats"
)

// alpha is the probability, of the whole report, that a difference is called
// real though there is none.
const alpha = 0.05

// Verdict says what a comparison has found.
type Verdict string

// Verdicts. A difference is real if it stands after Holm's correction for the
// number of cells; it is likely if it would, had its cell been the only one.
const (
	Better       Verdict = "BETTER"
	Worse        Verdict = "WORSE"
	LikelyBetter Verdict = "better?"
	LikelyWorse  Verdict = "worse?"
	Same         Verdict = "no difference seen"
	Errors       Verdict = "errors"
)

// Line is a cell of the report.
type Line struct {
	Name, Unit string
	stats.Paired
	Old, New float64 // medians
	Verdict  Verdict
	Why      string // what was wrong with a cell that has no value
}

// Lines compares the cells, in the order in which they were measured first.
func (s *Samples) Lines() []Line {
	var out []Line
	seen := map[string]bool{}
	for i := range s.Rounds {
		if r := &s.Rounds[i]; !seen[r.Name] {
			seen[r.Name] = true
			out = append(out, s.line(r.Name, r.Unit))
		}
	}
	judge(out)
	return out
}

// line compares the rounds of a cell. A cell with an error in any run has no
// value.
func (s *Samples) line(name, unit string) Line {
	before, after, old, fresh := s.pairs(name)
	l := Line{Name: name, Unit: unit, Old: math.NaN(), New: math.NaN()}
	if old.bad+fresh.bad > 0 {
		l.Verdict, l.P = Errors, 1
		var why []string
		for _, side := range []struct {
			name string
			faults
		}{{"old", old}, {"new", fresh}} {
			if side.bad > 0 {
				why = append(why, fmt.Sprintf("%d of %d %s runs had errors; the first: %s", side.bad, side.runs, side.name, side.first))
			}
		}
		l.Why = strings.Join(why, "; ")
		return l
	}
	l.Old, l.New, l.Paired = stats.Median(before), stats.Median(after), stats.Compare(before, after)
	return l
}

// judge fills in the verdicts of the lines that have a value.
func judge(lines []Line) {
	var with []*Line
	var p []float64
	for i := range lines {
		if lines[i].Verdict != Errors {
			with, p = append(with, &lines[i]), append(p, lines[i].P)
		}
	}
	for i, adjusted := range stats.Holm(p) {
		l := with[i]
		better := (l.Ratio > 1) != lowerIsBetter(l.Unit)
		switch {
		case l.P > alpha:
			l.Verdict = Same
		case adjusted > alpha && better:
			l.Verdict = LikelyBetter
		case adjusted > alpha:
			l.Verdict = LikelyWorse
		case better:
			l.Verdict = Better
		default:
			l.Verdict = Worse
		}
	}
}

func lowerIsBetter(unit string) bool {
	switch unit {
	case cell.Gbps, cell.MsgRate, cell.PerSecond:
		return false
	}
	return true
}

// needed is how many rounds it takes until a difference in that many cells can
// be real at all: 2/2^n must be at most alpha/cells.
func needed(cells int) int {
	n := 1
	for p := 1.0; p > alpha/float64(max(cells, 1)); n++ {
		p /= 2
	}
	return n
}

// others is the most that other programs used in any run, in percent of a
// processor.
func (s *Samples) others() (most float64) {
	for i := range s.Rounds {
		most = max(most, s.Rounds[i].Old.Others, s.Rounds[i].New.Others)
	}
	return most
}

// Print writes the report.
func (s *Samples) Print(out io.Writer) error {
	lines := s.Lines()
	var b strings.Builder
	fmt.Fprintf(&b, "old: %s\nnew: %s\n\n", s.Builds.Old, s.Builds.New)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "cell\tunit\told\tnew\tnew / old\tinterval\trounds\tP\t")
	rounds, level, values := math.MaxInt, 1.0, 0
	for i := range lines {
		l := &lines[i]
		if l.Verdict == Errors || l.N == 0 {
			fmt.Fprintf(t, "%s\t%s\t—\t—\t—\t—\t%d\t—\t%s\n", l.Name, l.Unit, s.Done(l.Name), l.Verdict)
			continue
		}
		rounds, level, values = min(rounds, l.N), min(level, l.Level), values+1
		fmt.Fprintf(t, "%s\t%s\t%.4g\t%.4g\t%.3f ×\t%.3f … %.3f\t%d\t%.2g\t%s\n", l.Name, l.Unit, l.Old, l.New, l.Ratio, l.Low, l.High, l.N, l.P, l.Verdict)
	}
	t.Flush()
	for i := range lines {
		if why := lines[i].Why; why != "" {
			fmt.Fprintf(&b, "\n%s has no value: %s\n", lines[i].Name, why)
		}
	}
	if values > 0 {
		fmt.Fprintf(&b, "\nold and new are medians; the ratio is the Hodges-Lehmann estimate over the rounds, its interval holds with at least %.1f %%\n"+
			"(exact Wilcoxon signed-rank test, two-sided). BETTER and WORSE are real: at most %.0f %% to be wrong about any of the cells (Holm).\n"+
			"With a question mark: only if that cell alone had been looked at.\n", 100*level, 100*alpha)
		if others := s.others(); others >= grid.BusyPercent {
			fmt.Fprintf(&b, "Other programs used up to %.0f %% of a processor meanwhile: this machine is not quiet.\n", others)
		}
		if n := needed(values); rounds < n {
			fmt.Fprintf(&b, "Nothing can be real here: %d cells with a value take %d rounds, and there are %d.\n", values, n, rounds)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}
