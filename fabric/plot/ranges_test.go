package plot

import (
	"io"
	"math"
	"strings"
	"testing"
)

func TestRanges(t *testing.T) {
	t.Parallel()
	r := &Ranges{Title: "a < b", X: Axis{Label: "Gb/s"}, Rows: []Range{
		{Name: "x=\"1\"", Values: []float64{10, 20, 30}, Low: 10, Middle: 20, High: 30},
		{Name: "no interval", Values: []float64{40}, Low: 1, High: -1, Middle: 40},
		{Name: "nothing", Low: 1, High: -1},
	}}
	var b strings.Builder
	if err := r.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	n, text := elements(t, b.String())
	if n["circle"] != 4 || strings.Count(b.String(), `class="bar"`) != 1 || strings.Count(b.String(), `class="middle"`) != 2 {
		t.Errorf("%v\n%s", n, &b)
	}
	for _, want := range []string{"a < b", "Gb/s", "x=\"1\"", "nothing"} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("the drawing does not say %q", want)
		}
	}
	for _, r := range []*Ranges{{}, {Rows: make([]Range, mostRows+1)}, {Rows: make([]Range, 2)}, {Rows: []Range{{Values: []float64{math.NaN(), math.Inf(1)}}}}} {
		if err := r.WriteSVG(io.Discard); err == nil {
			t.Errorf("%d rows without a value were drawn", len(r.Rows))
		}
	}
}
