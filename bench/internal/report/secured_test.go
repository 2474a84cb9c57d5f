package report

import (
	"testing"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
)

// What sealing adds to a latency is the median of the rounds' differences, and
// not the difference of the medians: a slow round slows both.
func TestMore(t *testing.T) {
	t.Parallel()
	one := func(values ...float64) cell.Row { return row("x", "rocev2", cell.Micros, values...) }
	sealed, clear, failed := one(11, 21, 6), one(10, 20.5, 5.75), one(1, 0)
	rows := Rows{"sealed": &sealed, "clear": &clear, "failed": &failed}
	if f := more("sealed", "clear")(rows); f.Value != 0.5 || f.Min != 0.25 || f.Max != 1 || f.Why != "" {
		t.Errorf("%+v", f)
	}
	for _, c := range [][2]string{{"sealed", "failed"}, {"failed", "clear"}, {"sealed", "absent"}} {
		if f := more(c[0], c[1])(rows); f.Why == "" {
			t.Errorf("%v: %+v", c, f)
		}
	}
}
