package plot

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// scale maps values to pixels.
type scale struct {
	log      bool
	min, max float64 // of the axis; the logarithms with log
	from, to float64 // pixels
}

// at returns the pixel of a value, within the axis.
func (s *scale) at(v float64) (px float64, ok bool) {
	if math.IsNaN(v) || math.IsInf(v, 0) || s.log && v <= 0 {
		return 0, false
	}
	if s.log {
		v = math.Log10(v)
	}
	v = min(max(v, s.min), s.max)
	return s.from + (v-s.min)/(s.max-s.min)*(s.to-s.from), true
}

// scales returns those of both axes: so wide that all points are to be seen.
func (p *Plot) scales() (x, y *scale, err error) {
	lowX, highX, lowY, highY := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for i := range p.Lines {
		for _, pt := range p.Lines[i].Points {
			if !p.X.shows(pt.X) || !p.Y.shows(pt.Y) {
				continue
			}
			lowX, highX = min(lowX, pt.X), max(highX, pt.X)
			lowY, highY = min(lowY, pt.Y), max(highY, pt.Y)
		}
	}
	if highX < lowX {
		return nil, nil, errNothing
	}
	for _, r := range p.Rules {
		if p.Y.shows(r.Y) {
			lowY, highY = min(lowY, r.Y), max(highY, r.Y)
		}
	}
	if !p.Y.Log {
		lowY, highY = min(lowY, 0), highY*1.05
	}
	return p.X.scale(lowX, highX, left, width-right), p.Y.scale(lowY, highY, height-bottom, top), nil
}

// shows reports whether the axis can show a value.
func (a *Axis) shows(v float64) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && (!a.Log || v > 0)
}

func (a *Axis) scale(low, high, from, to float64) *scale {
	if a.Min != a.Max {
		low, high = a.Min, a.Max
	}
	if a.Log {
		low, high = math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	}
	if high <= low {
		high = low + 1
	}
	return &scale{a.Log, low, high, from, to}
}

// ticks returns values that a person would mark: 4 to 10 of them.
func (s *scale) ticks() (values []float64) {
	if s.log {
		for e := s.min; e <= s.max; e++ {
			values = append(values, math.Pow(10, e))
		}
		return values
	}
	step := math.Pow(10, math.Floor(math.Log10((s.max-s.min)/4)))
	for _, f := range []float64{5, 2} {
		if (s.max-s.min)/(f*step) >= 4 {
			step *= f
			break
		}
	}
	for i := math.Ceil(s.min / step); i*step <= s.max*(1+1e-9); i++ {
		values = append(values, i*step)
	}
	return values
}

// number writes a value as people do: with k, M and G.
func number(v float64) string {
	for _, u := range []struct {
		of   float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(v) >= u.of {
			return strconv.FormatFloat(v/u.of, 'g', 4, 64) + u.name
		}
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// drawAxes writes both axes with their grid.
func (p *Plot) drawAxes(b *strings.Builder, x, y *scale) {
	for _, v := range x.ticks() {
		at, _ := x.at(v)
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, at, at, top, height-bottom+tickLength)
		fmt.Fprintf(b, `<text text-anchor="middle" x="%.1f" y="%d">%s</text>`+"\n", at, height-bottom+textGap+10, number(v))
	}
	for _, v := range y.ticks() {
		at, _ := y.at(v)
		fmt.Fprintf(b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, left-tickLength, width-right, at, at)
		fmt.Fprintf(b, `<text text-anchor="end" x="%d" y="%.1f">%s</text>`+"\n", left-textGap, at+4, number(v))
	}
	fmt.Fprintf(b, `<path class="axis" fill="none" d="M%d %dV%dH%d"/>`+"\n", left, top, height-bottom, width-right)
	fmt.Fprintf(b, `<text text-anchor="middle" x="%d" y="%d">%s</text>`+"\n", left+innerWidth/2, height-10, html.EscapeString(p.X.Label))
	fmt.Fprintf(b, `<text text-anchor="middle" transform="translate(16 %d) rotate(-90)">%s</text>`+"\n", (top+height-bottom)/2, html.EscapeString(p.Y.Label))
}
