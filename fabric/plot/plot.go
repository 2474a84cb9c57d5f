package plot

import (
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// Point is a point of a line, in the units of the axes.
type Point struct{ X, Y float64 }

// Line is one line of a plot.
type Line struct {
	Name   string
	Points []Point // by X
	Steps  bool    // the value holds until the next point: a queue, a rate
}

// Plot is a drawing with one pair of axes.
type Plot struct {
	Title string
	X, Y  Axis
	Lines []Line
	Rules []Rule
}

// Axis describes an axis. Without bounds it shows all points. An axis with Log
// shows only what is above 0.
type Axis struct {
	Label    string // with the unit
	Log      bool   // to the base 10
	Min, Max float64
}

// Rule is a horizontal line that marks a value: a threshold, a link's rate.
type Rule struct {
	Name string
	Y    float64
}

// Size of a drawing, and of what is around the axes, in pixels.
const (
	width, height       = 720, 360
	left, right         = 72, 16
	top, bottom         = 40, 48
	legendLine          = 18
	legendGap           = 4
	innerWidth          = width - left - right
	maxPoints           = 20000 // of a line
	maxLines            = 24
	tickLength, textGap = 4, 8
)

var errNothing = errors.New("plot: no line has a point to show")

// WriteSVG draws the plot.
func (p *Plot) WriteSVG(w io.Writer) error {
	if len(p.Lines) > maxLines {
		return fmt.Errorf("plot: %d lines, more than the %d that can be told apart", len(p.Lines), maxLines)
	}
	x, y, err := p.scales()
	if err != nil {
		return err
	}
	var b strings.Builder
	legend := legendGap + (len(p.Lines)+2)/3*legendLine
	if len(p.Lines) == 1 && p.Lines[0].Name == "" {
		legend = 0
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img">`+"\n", width, height+legend)
	fmt.Fprintf(&b, "<title>%s</title>\n<style>%s</style>\n", html.EscapeString(p.Title), style)
	fmt.Fprintf(&b, `<rect class="back" width="%d" height="%d"/>`+"\n", width, height+legend)
	fmt.Fprintf(&b, `<text class="title" x="%d" y="24">%s</text>`+"\n", left, html.EscapeString(p.Title))
	p.drawAxes(&b, x, y)
	for i := range p.Rules {
		r := &p.Rules[i]
		if at, ok := y.at(r.Y); ok && at >= top && at <= height-bottom {
			fmt.Fprintf(&b, `<line class="rule" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`+"\n", left, width-right, at, at)
			fmt.Fprintf(&b, `<text class="note" x="%d" y="%.1f">%s</text>`+"\n", left+textGap, at-3, html.EscapeString(r.Name))
		}
	}
	for i := range p.Lines {
		drawLine(&b, &p.Lines[i], x, y, color(i))
	}
	if legend > 0 {
		p.drawLegend(&b)
	}
	b.WriteString("</svg>\n")
	_, err = io.WriteString(w, b.String())
	return err
}

const style = `text{font:12px sans-serif;fill:#24292f}.title{font-weight:600;font-size:14px}.back{fill:#fff}` +
	`.grid{stroke:#d0d7de;stroke-width:.5}.axis{stroke:#57606a}.rule{stroke:#57606a;stroke-dasharray:6 4}.note{font-size:11px;fill:#57606a}` +
	`.line{fill:none;stroke-width:1.5;stroke-linejoin:round}` +
	`@media(prefers-color-scheme:dark){text{fill:#e6edf3}.back{fill:#0d1117}.grid{stroke:#30363d}.axis,.rule{stroke:#8b949e}.note{fill:#8b949e}}`

// color returns the color of the ith line: hues far from each other, as bright
// on either background.
func color(i int) string {
	hues := [...]int{210, 25, 140, 330, 265, 50, 180, 0}
	return fmt.Sprintf("hsl(%d 70%% %d%%)", hues[i%len(hues)], 48-8*(i/len(hues)%3))
}

// drawLegend writes the names of the lines below, three in a row.
func (p *Plot) drawLegend(b *strings.Builder) {
	for i := range p.Lines {
		x, y := left+i%3*(innerWidth/3), height+legendGap+i/3*legendLine
		fmt.Fprintf(b, `<line class="line" stroke="%s" x1="%d" x2="%d" y1="%d" y2="%d"/>`, color(i), x, x+18, y, y)
		fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`+"\n", x+24, y+4, html.EscapeString(p.Lines[i].Name))
	}
}

// drawLine writes a line. Points that fall on one pixel are left out, but for
// the highest and the lowest.
func drawLine(b *strings.Builder, l *Line, x, y *scale, color string) {
	var d strings.Builder
	lastX, lastY, low, high := math.Inf(-1), 0.0, 0.0, 0.0
	n := 0
	put := func(cmd byte, x, y float64) {
		fmt.Fprintf(&d, "%c%.1f %.1f", cmd, x, y)
	}
	flush := func() {
		if high != low {
			put('L', lastX, low)
			put('L', lastX, high)
			put('L', lastX, lastY)
		}
	}
	for _, pt := range l.Points {
		px, ok := x.at(pt.X)
		py, ok2 := y.at(pt.Y)
		if !ok || !ok2 || n >= maxPoints {
			continue
		}
		px, py = math.Round(px*2)/2, math.Round(py*10)/10
		if n > 0 && px == lastX {
			low, high, lastY = min(low, py), max(high, py), py
			continue
		}
		if n == 0 {
			put('M', px, py)
		} else {
			flush()
			if l.Steps {
				put('L', px, lastY)
			}
			put('L', px, py)
		}
		lastX, lastY, low, high = px, py, py, py
		n++
	}
	if n == 0 {
		return
	}
	flush()
	fmt.Fprintf(b, `<path class="line" stroke="%s" d="%s"/>`+"\n", color, d.String())
}
