package plot

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// Ranges is a drawing with a row for each of some things that are compared, in
// which a number was measured several times.
type Ranges struct {
	Title string
	X     Axis
	Rows  []Range
}

// Range is a row: a dot for each value, a bar from Low to High if High is not
// below it, and a mark at Middle.
type Range struct {
	Name              string
	Values            []float64
	Low, Middle, High float64
}

const (
	rowHeight = 44
	mostRows  = 64
	mostDots  = 1000 // of a row
)

const rangeStyle = style + `.dot{fill:#57606a;fill-opacity:.45}.bar{stroke:hsl(210 70% 48%);stroke-width:4}.middle{fill:hsl(25 70% 48%)}` +
	`@media(prefers-color-scheme:dark){.dot{fill:#8b949e}}`

// WriteSVG draws it. Rows without a value have their name alone; it is an error
// if there are none, or more than 64.
func (r *Ranges) WriteSVG(w io.Writer) error {
	if len(r.Rows) == 0 || len(r.Rows) > mostRows {
		return fmt.Errorf("plot: %d rows: there are 1 to %d", len(r.Rows), mostRows)
	}
	low, high := math.Inf(1), math.Inf(-1)
	for i := range r.Rows {
		for _, v := range r.Rows[i].Values {
			if r.X.shows(v) {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if high < low {
		return errNothing
	}
	if !r.X.Log {
		low, high = min(low, 0), high*1.05
	}
	x := r.X.scale(low, high, left/2, width-right)
	end := top + len(r.Rows)*rowHeight
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img">`+"\n", width, end+bottom)
	fmt.Fprintf(&b, "<title>%s</title>\n<style>%s</style>\n", html.EscapeString(r.Title), rangeStyle)
	fmt.Fprintf(&b, `<rect class="back" width="%d" height="%d"/>`+"\n", width, end+bottom)
	fmt.Fprintf(&b, `<text class="title" x="%d" y="24">%s</text>`+"\n", left/2, html.EscapeString(r.Title))
	for _, v := range x.ticks() {
		at, _ := x.at(v)
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, at, at, top, end+tickLength)
		fmt.Fprintf(&b, `<text text-anchor="middle" x="%.1f" y="%d">%s</text>`+"\n", at, end+textGap+10, number(v))
	}
	fmt.Fprintf(&b, `<text text-anchor="middle" x="%d" y="%d">%s</text>`+"\n", width/2, end+bottom-10, html.EscapeString(r.X.Label))
	for i := range r.Rows {
		r.Rows[i].draw(&b, x, top+i*rowHeight)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// draw draws a row that begins at a height.
func (r *Range) draw(b *strings.Builder, x *scale, y int) {
	fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`+"\n", left/2, y+16, html.EscapeString(r.Name))
	at := y + 30
	from, ok := x.at(r.Low)
	to, ok2 := x.at(r.High)
	if ok && ok2 && r.High >= r.Low {
		fmt.Fprintf(b, `<line class="bar" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`+"\n", from, max(to, from+1), at, at)
	}
	for _, v := range r.Values[:min(len(r.Values), mostDots)] {
		if px, ok := x.at(v); ok {
			fmt.Fprintf(b, `<circle class="dot" cx="%.1f" cy="%d" r="3"/>`, px, at)
		}
	}
	if px, ok := x.at(r.Middle); ok && len(r.Values) > 0 {
		fmt.Fprintf(b, `<rect class="middle" x="%.1f" y="%d" width="3" height="18"/>`+"\n", px-1.5, at-9)
	}
}
