package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gosoftroce/rocev2/fabric/lab"
)

var trafficHeader = []string{"traffic", "completed", "failed", "unfinished", "payload", "slowdown, mean", "99 %", "without an end, Gb/s", "iterations", "mean, µs", "most, µs"}

// traffics says what each traffic has come to. A cell is empty where there is
// nothing to say.
func traffics(s *lab.Summary) (rows [][]string) {
	for i := range s.Traffic {
		t := &s.Traffic[i]
		row := []string{fmt.Sprintf("%d, %s", i+1, cmp.Or(t.Name, t.Kind)),
			fmt.Sprint(t.Completed), fmt.Sprint(t.Failed), fmt.Sprint(t.Unfinished), fmt.Sprint(lab.Bytes(t.Bytes)), "", "", "", "", "", ""}
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
		rows = append(rows, row)
	}
	return rows
}
