package sims

import (
	"fmt"
	"math"
)

// target is something that ours is to reach.
type target struct {
	workload string
	what     string
	of       func(*Run) float64
	format   string
	least    float64 // 0: no bound
	most     float64 // 0: no bound
	near     string  // the player whose figure ours is to equal, within 2 %
}

const near = 0.02

var targets = []target{
	{workload: "permutation-1024", what: "hops a second of one core", of: hopRate, format: "%.2f M", least: .8},
	{workload: "all-to-all-128", what: "hops a second of one core", of: hopRate, format: "%.2f M", least: .5},
	{workload: "spray-128", what: "the last flow", of: last, format: "%.0f µs", most: 240},
	{workload: "flow", what: "the last flow", of: last, format: "%.1f µs", near: "htsim RoCE"},
	{workload: "incast-16", what: "the last flow", of: last, format: "%.0f µs", near: "htsim RoCE"},
	{workload: "incast-64", what: "the last flow", of: last, format: "%.0f µs", near: "htsim RoCE"},
}

// verdict says whether the target was reached, and why that cannot be said
// where a simulator has failed; "" where it was not played.
func (t *target) verdict(r *Report) string {
	mine, others := r.row(t.workload, "ours"), r.row(t.workload, t.near)
	if mine == nil || t.near != "" && others == nil {
		return ""
	}
	for _, row := range []*Row{mine, others} {
		if row != nil && !row.ok() {
			return fmt.Sprintf("**not reached**: %s, %s: %s has failed", t.workload, t.what, row.Player)
		}
	}
	got := mine.median(t.of)
	met, want := true, ""
	switch {
	case t.near != "":
		of := others.median(t.of)
		want = fmt.Sprintf("within %.0f %% of that of %s, "+t.format, near*100, t.near, of)
		met = math.Abs(got/of-1) <= near
	case t.least > 0:
		want, met = fmt.Sprintf("at least "+t.format, t.least), got >= t.least
	default:
		want, met = fmt.Sprintf("at most "+t.format, t.most), got > 0 && got <= t.most
	}
	verdict := "reached"
	if !met {
		verdict = "**not reached**"
	}
	return fmt.Sprintf("%s: %s, %s: "+t.format+", %s", verdict, t.workload, t.what, got, want)
}
