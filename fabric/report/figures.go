package report

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gosoftroce/rocev2/fabric/lab"
	"github.com/gosoftroce/rocev2/fabric/plot"
)

// captions say how drawings are read, and where their numbers are.
var captions = map[string][2]string{
	"queues":    {"What waits in front of the busiest ports. A queue that stands is delay for all that pass it.", "queues.csv"},
	"rates":     {"Payload that has arrived. Where it is below what the cables carry, senders were paused, slowed down, or waited for timers.", "ports.csv"},
	"pauses":    {"Pause frames in each millisecond. Each holds up all flows of a class.", "pauses.csv"},
	"slowdowns": {"How many times as long as alone flows took.", "flows.csv"},
	"use":       {"The share of each step that the cables of the busiest ports were in use.", "ports.csv"},
	"windows":   {"How much the first sampled flows may have in flight.", "windows.csv"},
	"paces":     {"At which rate congestion control lets the first sampled flows send.", "windows.csv"},
}

// figures writes all drawings of a run.
func (p *page) figures(r *lab.Result, files []string) {
	p.heading("Drawings")
	all := r.Plots()
	for _, more := range []lab.Plot{use(r), windows(r, "windows", "windows of flows", "window_bytes", "window, KB", 1e3), windows(r, "paces", "rates of flows", "rate_bps", "Gb/s", 1e9)} {
		if len(more.Lines) > 0 {
			all = append(all, more)
		}
	}
	for _, x := range all {
		caption := captions[x.Name]
		file := caption[1]
		if !slices.Contains(files, file) {
			file = ""
		}
		p.figure(x.WriteSVG, caption[0], file)
	}
}

// use draws how far the cables of the busiest ports were in use.
func use(r *lab.Result) lab.Plot {
	p := &plot.Plot{Title: "cables in use", X: plot.Axis{Label: "time, ms"}, Y: plot.Axis{Label: "% of the rate"}}
	ports := slices.Clone(r.Ports)
	slices.SortStableFunc(ports, func(a, b lab.Port) int { return cmp.Compare(load(r.End, &b), load(r.End, &a)) })
	for i := range ports {
		x := &ports[i]
		s := r.Samples.Find(r.PortName(x.Node, x.Port), "sent_bytes")
		if len(p.Lines) == mostLines || x.Bytes == 0 {
			break
		}
		if s != nil {
			p.Lines = append(p.Lines, plot.Line{Name: s.Of, Points: r.Samples.Rate(s, 8e14/float64(x.Rate)), Steps: true})
		}
	}
	return lab.Plot{Name: "use", Plot: p}
}

// windows draws a quantity of the flows that were sampled, where it was ever
// above 0.
func windows(r *lab.Result, name, title, what, label string, unit float64) lab.Plot {
	p := &plot.Plot{Title: title, X: plot.Axis{Label: "time, ms"}, Y: plot.Axis{Label: label}}
	for _, x := range r.Samples.Series {
		if x.What != what || len(p.Lines) == mostLines || len(x.Values) == 0 || slices.Max(x.Values) <= 0 {
			continue
		}
		p.Lines = append(p.Lines, plot.Line{Name: "flow " + strings.TrimPrefix(x.Of, "f"), Points: r.Samples.Points(x, unit), Steps: true})
	}
	return lab.Plot{Name: name, Plot: p}
}
