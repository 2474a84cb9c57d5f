package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gosoftroce/rocev2/fabric/lab"
)

// traffics says what each traffic has come to. A column in which no traffic has
// anything is left out.
func traffics(s *lab.Summary) (header []string, rows [][]string) {
	header = []string{"traffic", "completed", "failed", "unfinished", "payload", "slowdown, mean", "99 %", "without an end, Gb/s", "iterations", "mean, µs", "most, µs"}
	for i := range s.Traffic {
		rows = append(rows, trafficRow(i, &s.Traffic[i]))
	}
	for c := len(header) - 1; c > 0; c-- {
		if slices.ContainsFunc(rows, func(row []string) bool { return row[c] != "" }) {
			continue
		}
		header = slices.Delete(header, c, c+1)
		for i := range rows {
			rows[i] = slices.Delete(rows[i], c, c+1)
		}
	}
	return header, rows
}

// trafficRow has an empty cell where there is nothing to say.
func trafficRow(i int, t *lab.TrafficSummary) []string {
	row := make([]string, 11)
	row[0] = fmt.Sprintf("%d, %s", i+1, cmp.Or(t.Name, t.Kind))
	for c, n := range []int{t.Completed, t.Failed, t.Unfinished} {
		if n > 0 {
			row[1+c] = fmt.Sprint(n)
		}
	}
	if t.Bytes > 0 {
		row[4] = fmt.Sprint(lab.Bytes(t.Bytes))
	}
	if t.Slowdown.N > 0 {
		row[5], row[6] = fmt.Sprintf("%.2f", t.Slowdown.Mean), fmt.Sprintf("%.2f", t.Slowdown.P99)
	}
	if t.Rate > 0 {
		row[7] = fmt.Sprintf("%.4g", t.Rate)
	}
	if n := len(t.Iterations); n > 0 {
		sum := 0.0
		for _, us := range t.Iterations {
			sum += us
		}
		row[8], row[9], row[10] = fmt.Sprint(n), fmt.Sprintf("%.1f", sum/float64(n)), fmt.Sprintf("%.1f", slices.Max(t.Iterations))
	}
	return row
}
