package plot

import (
	"encoding/xml"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
)

// elements returns how many elements of each name a drawing has, and its text.
func elements(t *testing.T, svg string) (map[string]int, string) {
	t.Helper()
	n, text := map[string]int{}, ""
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		tok, err := d.Token()
		if err == io.EOF {
			return n, text
		}
		if err != nil {
			t.Fatalf("the drawing is no XML: %v\n%s", err, svg)
		}
		switch e := tok.(type) {
		case xml.StartElement:
			n[e.Name.Local]++
		case xml.CharData:
			text += string(e) + "\n"
		}
	}
}

func draw(t *testing.T, p *Plot) string {
	t.Helper()
	var b strings.Builder
	if err := p.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestDrawing(t *testing.T) {
	t.Parallel()
	p := &Plot{
		Title: "a < b", X: Axis{Label: "ms"}, Y: Axis{Label: "KB"},
		Lines: []Line{
			{Name: "queue & co", Points: []Point{{0, 0}, {1, 80}, {2, 40}}, Steps: true},
			{Name: "rate", Points: []Point{{0, 10}, {2, 10}}},
		},
		Rules: []Rule{{"Kmax", 200}},
	}
	n, text := elements(t, draw(t, p))
	if n["path"] != 3 { // the axes and two lines
		t.Errorf("%d paths, want 3", n["path"])
	}
	for _, s := range []string{"a < b", "queue & co", "Kmax", "ms", "KB", "200"} {
		if !strings.Contains(text, s+"\n") {
			t.Errorf("the drawing does not say %q", s)
		}
	}
	p.Y.Log = true
	if _, text := elements(t, draw(t, p)); !strings.Contains(text, "100\n") || strings.Contains(text, "\n0.01\n") {
		t.Errorf("the logarithmic axis says %q", text)
	}
}

// Where lines lie can be read off: a value is where its tick is.
func TestPlaces(t *testing.T) {
	t.Parallel()
	p := &Plot{Lines: []Line{{Points: []Point{{0, 0}, {10, 100}}}}, Y: Axis{Min: 0, Max: 100}}
	svg := draw(t, p)
	if want := `d="M72.0 312.0L704.0 40.0"`; !strings.Contains(svg, want) {
		t.Errorf("no line %s in\n%s", want, svg)
	}
	p.Lines[0].Steps = true
	if want := `d="M72.0 312.0L704.0 312.0L704.0 40.0"`; !strings.Contains(draw(t, p), want) {
		t.Errorf("no steps %s", want)
	}
}

// A line with more points than pixels keeps its peaks.
func TestPeaks(t *testing.T) {
	t.Parallel()
	var l Line
	for i := range 100000 {
		y := 1.0
		if i == 54321 {
			y = 100
		}
		l.Points = append(l.Points, Point{float64(i), y})
	}
	svg := draw(t, &Plot{Lines: []Line{l}, Y: Axis{Min: 0, Max: 100}})
	if !strings.Contains(svg, " 40.0") {
		t.Error("the peak is gone")
	}
	if len(svg) > 64<<10 {
		t.Errorf("%d bytes for one line", len(svg))
	}
}

func TestTicks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s    scale
		want []float64
	}{
		{scale{min: 0, max: 10}, []float64{0, 2, 4, 6, 8, 10}},
		{scale{min: 0, max: 1}, []float64{0, .2, .4, .6, .8, 1}},
		{scale{min: 0, max: 40}, []float64{0, 10, 20, 30, 40}},
		{scale{min: -1, max: 2, log: true}, []float64{.1, 1, 10, 100}},
	} {
		got := c.s.ticks()
		if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
			t.Errorf("ticks of %v to %v: %v, want %v", c.s.min, c.s.max, got, c.want)
		}
	}
	for v, want := range map[float64]string{0: "0", 1500: "1.5k", 2e6: "2M", 1e9: "1G", .25: "0.25", -40000: "-40k"} {
		if got := number(v); got != want {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
}

// What cannot be drawn is left out, or refused.
func TestNothingToDraw(t *testing.T) {
	t.Parallel()
	nan := Line{Points: []Point{{math.NaN(), 1}, {1, math.Inf(1)}, {-1, 1}, {0, 2}}}
	for _, p := range []*Plot{{}, {Lines: []Line{{}}}, {Lines: []Line{nan}, X: Axis{Log: true}}, {Lines: make([]Line, maxLines+1)}} {
		if err := p.WriteSVG(io.Discard); err == nil {
			t.Errorf("%+v was drawn", p)
		}
	}
	one := Line{Points: append(nan.Points, Point{5, 5})}
	svg := draw(t, &Plot{Lines: []Line{one}, X: Axis{Log: true}, Y: Axis{Log: true}})
	if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
		t.Errorf("%s", svg)
	}
}
