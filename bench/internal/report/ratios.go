package report

import (
	"math"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/grid"
	"github.com/gosoftroce/rocev2/bench/internal/stats"
)

// steady is how much the readings of the reference around the cells of a ratio
// may differ, as a share of the largest.
const steady = 0.15

// ratiosOf divides the samples of two cells that took turns, round by round. It
// leaves out, and counts, the rounds in which the reference around them gave
// readings that differ. Where one of the two is the reference itself, the mean
// of the readings around the other one stands for it.
func ratiosOf(a, b *cell.Row) (ratios []float64, unsteady int) {
	for i := range min(len(a.Samples), len(b.Samples)) {
		x, y := &a.Samples[i], &b.Samples[i]
		num, den := x.Value, y.Value
		var readings []float64
		if measured(a) {
			readings = append(readings, x.Before, x.After)
		}
		if measured(b) {
			readings = append(readings, y.Before, y.After)
		}
		switch {
		case len(readings) == 0:
		case !stats.Steady(steady, readings...):
			unsteady++
			continue
		case b.Name == grid.Reference(a.Group):
			den = (x.Before + x.After) / 2
		case a.Name == grid.Reference(b.Group):
			num = (y.Before + y.After) / 2
		}
		if r := num / den; x.OK() && y.OK() && !math.IsNaN(r) && !math.IsInf(r, 0) {
			ratios = append(ratios, r)
		}
	}
	return ratios, unsteady
}

// measured reports whether the reference was measured around the cell.
func measured(r *cell.Row) bool {
	for i := range r.Samples {
		if r.Samples[i].Before != 0 || r.Samples[i].After != 0 {
			return true
		}
	}
	return false
}

// referenced reports whether any cell of the run has readings around it.
func (r *Report) referenced() bool {
	for i := range r.Rows {
		if measured(&r.Rows[i]) {
			return true
		}
	}
	return false
}
