package report

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
)

// Plot is a file with a plot.
type Plot struct{ File, Title string }

var (
	blue   = color.RGBA{0x1f, 0x6f, 0xb4, 0xff}
	grey   = color.RGBA{0x9a, 0xa0, 0xa6, 0xff}
	orange = color.RGBA{0xe0, 0x7b, 0x1a, 0xff}
	green  = color.RGBA{0x2c, 0x8c, 0x4a, 0xff}
)

// drawing is a plot and how it is drawn: nil where the rows have too little for
// it.
type drawing struct {
	Plot
	draw func() (*plot.Plot, vg.Length)
}

// drawings lists the plots of the report.
func (r *Report) drawings() []drawing {
	rows := r.byName()
	return []drawing{
		{Plot{"throughput.svg", "1 MiB messages between two processes"}, func() (*plot.Plot, vg.Length) {
			return bars(rows, "Gb/s", []bar{
				{"raw/4140/icrc", "limit: raw UDP, rocev2's ICRC"}, {"raw/4140", "limit: raw UDP, hash/crc32"},
				{"ours/write/1MiB", "rocev2 WRITE"}, {"ours/send/1MiB", "rocev2 SEND"}, {"ours/read/1MiB", "rocev2 READ"},
				{"iperf3/tcp", "iperf3 TCP"}, {"ucx/am_bw/1MiB", "UCX tcp messages"}, {"ucx/put_bw/1MiB", "UCX tcp put"},
				{"quic-go/stream", "quic-go"},
				{"ours/send/1MiB/pingpong", "rocev2 SEND, one at a time"},
				{"fabric/tcp/1MiB", "libfabric tcp, one at a time"}, {"fabric/rxd/1MiB", "libfabric udp;ofi_rxd, one at a time"},
			})
		}},
		{Plot{"latency.svg", "Latency of 8 bytes, polling"}, func() (*plot.Plot, vg.Length) {
			return bars(rows, "µs: half a round trip, READ and fetch-and-add a whole one", []bar{
				{"raw/rtt/spin", "limit: raw UDP"}, {"ours/send/lat", "rocev2 SEND"}, {"ours/write/lat", "rocev2 WRITE"},
				{"ucx/put_lat/8B", "UCX tcp put"}, {"ours/read/lat", "rocev2 READ"}, {"ours/atomic/lat", "rocev2 fetch-and-add"},
			})
		}},
		{Plot{"rates.svg", "Messages of 8 bytes"}, func() (*plot.Plot, vg.Length) {
			return bars(rows, "million messages a second", []bar{
				{"ours/write/8B/qps=1", "rocev2 WRITE, 1 QP"}, {"ours/write/8B/qps=16", "rocev2 WRITE, 16 QPs"},
				{"ours/send/8B/qps=1", "rocev2 SEND"}, {"ours/read/8B/qps=1", "rocev2 READ"},
				{"ours/atomic/8B/qps=1", "rocev2 fetch-and-add"}, {"ucx/put_rate/8B", "UCX tcp put"}, {"ucx/am_rate/8B", "UCX tcp active message"},
			})
		}},
		{Plot{"sizes.svg", "Throughput over the message size, one queue pair"}, func() (*plot.Plot, vg.Length) {
			return curves(r.Rows, "sizes", "bytes of a message", func(c *cell.Cell) float64 { return float64(c.Size) })
		}},
		{Plot{"queue-pairs.svg", "WRITEs of 4 KiB on queue pairs in turn"}, func() (*plot.Plot, vg.Length) {
			return curves(r.Rows, "queue pairs", "queue pairs", func(c *cell.Cell) float64 { return float64(c.QPs) })
		}},
		{Plot{"loss.svg", "1 MiB messages under loss"}, func() (*plot.Plot, vg.Length) {
			return bars(rows, "Gb/s", []bar{
				{"ours/write/1MiB/loss=0%", "WRITE, no loss"}, {"ours/write/1MiB/loss=0.1%", "WRITE, 0.1 % lost"},
				{"ours/write/1MiB/loss=1%", "WRITE, 1 % lost"}, {"ours/write/1MiB/loss=5%", "WRITE, 5 % lost"},
				{"ours/read/1MiB/loss=0%", "READ, no loss"}, {"ours/read/1MiB/loss=0.1%", "READ, 0.1 % lost"},
				{"ours/read/1MiB/loss=1%", "READ, 1 % lost"}, {"ours/read/1MiB/loss=5%", "READ, 5 % lost"},
			})
		}},
	}
}

// Plots draws what the rows allow into dir, and returns what it drew.
func (r *Report) Plots(dir string) ([]Plot, error) {
	var out []Plot
	for _, d := range r.drawings() {
		file := filepath.Join(dir, d.File)
		p, height := d.draw()
		if p == nil {
			if err := os.Remove(file); err != nil && !os.IsNotExist(err) { // of an earlier run
				return out, err
			}
			continue
		}
		p.Title.Text = d.Title
		p.Title.Padding = 3 * vg.Millimeter
		p.BackgroundColor = color.White
		if err := save(p, height, file); err != nil {
			return out, fmt.Errorf("%s: %w", d.File, err)
		}
		out = append(out, d.Plot)
	}
	return out, nil
}

// save draws a plot into a file.
func save(p *plot.Plot, height vg.Length, file string) error {
	c := newOutlines(18*vg.Centimeter, height)
	c.SetColor(p.BackgroundColor)
	c.Fill(c.Rectangle.Path())
	const margin = 2 * vg.Millimeter
	p.Draw(draw.Crop(c, margin, -margin, margin, -margin))
	var b bytes.Buffer
	if _, err := c.Canvas.(*outlines).WriteTo(&b); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// bar is the name of a cell and what stands beside its bar.
type bar struct{ cell, label string }

// bars draws the medians of cells below each other, this project's in colour.
// It returns nil if fewer than two have one.
func bars(rows Rows, axis string, wanted []bar) (*plot.Plot, vg.Length) {
	var labels []string
	var mine, others plotter.Values
	longest := 0.0
	for _, w := range slices.Backward(wanted) { // the first is drawn at the top
		r := rows[w.cell]
		if !r.OK() {
			continue
		}
		labels = append(labels, w.label+"  "+number(r.Median))
		longest = max(longest, r.Median)
		a, b := r.Median, 0.0
		if !strings.HasPrefix(r.Name, "ours/") {
			a, b = b, a
		}
		mine, others = append(mine, a), append(others, b)
	}
	if len(labels) < 2 {
		return nil, 0
	}
	p := newPlot()
	p.X.Label.Text = axis
	for _, s := range []struct {
		values plotter.Values
		color  color.Color
	}{{mine, blue}, {others, grey}} {
		c, err := plotter.NewBarChart(s.values, 12)
		if err != nil {
			return nil, 0
		}
		c.Horizontal, c.Color, c.LineStyle.Width = true, s.color, 0
		p.Add(c)
	}
	p.NominalY(labels...)
	p.Y.Tick.Label.Font.Size = vg.Points(9)
	p.Y.Padding = 4 * vg.Millimeter
	p.X.Min, p.X.Max = 0, 1.05*longest
	return p, vg.Length(len(labels))*0.75*vg.Centimeter + 2.5*vg.Centimeter
}

// curves draws a line for each operation of a group, over x on a logarithmic
// axis. Where a cell has no value the line has a gap.
func curves(rows []cell.Row, group, axis string, x func(*cell.Cell) float64) (*plot.Plot, vg.Length) {
	p := newPlot()
	p.X.Label.Text, p.Y.Label.Text = axis, "Gb/s"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Y.Min = 0
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	colors := []color.Color{blue, orange, green}
	drawn := 0
	for _, op := range []string{"write", "send", "read"} {
		lines := pieces(rows, group, op, x)
		n := 0
		for _, xy := range lines {
			n += len(xy)
		}
		if n < 3 {
			continue
		}
		for i, xy := range lines {
			l, s, err := plotter.NewLinePoints(xy)
			if err != nil {
				continue
			}
			l.Color, s.Color, l.Width = colors[drawn], colors[drawn], vg.Points(1.5)
			p.Add(l, s)
			if i == 0 {
				p.Legend.Add(strings.ToUpper(op), l, s)
			}
		}
		drawn++
	}
	if drawn == 0 {
		return nil, 0
	}
	return p, 9 * vg.Centimeter
}

// pieces returns the points of an operation in runs without a cell that has no
// value.
func pieces(rows []cell.Row, group, op string, x func(*cell.Cell) float64) []plotter.XYs {
	var lines []plotter.XYs
	gap := true
	for i := range rows {
		r := &rows[i]
		switch {
		case r.Group != group || r.Op != op:
		case !r.OK():
			gap = true
		default:
			if gap {
				lines = append(lines, nil)
				gap = false
			}
			last := &lines[len(lines)-1]
			*last = append(*last, plotter.XY{X: x(&r.Cell), Y: r.Median})
		}
	}
	return lines
}

// newPlot is plot.New with a font that is easily read on a screen.
func newPlot() *plot.Plot {
	p := plot.New()
	for _, f := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		f.Variant = "Sans"
	}
	return p
}
