package lab

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gosoftroce/rocev2/fabric/plot"
)

// Plot is a drawing of a result, with a name fit for a file.
type Plot struct {
	Name string
	*plot.Plot
}

const (
	plottedQueues = 6
	leastQueue    = 50 // no queue is drawn that is this many times shorter than the longest
	fewFlows      = 50 // with fewer there is no distribution
	sizeGroups    = 12
)

// PlotNames are those that plots of results have.
var PlotNames = []string{"queues", "rates", "pauses", "slowdowns"}

// Plots draws the result: queues, rates, pauses and slowdowns, as far as there
// were any.
func (r *Result) Plots() (all []Plot) {
	for _, p := range []Plot{r.plotQueues(), r.plotRates(), r.plotPauses(), r.plotSlowdowns()} {
		if p.Plot != nil && slices.ContainsFunc(p.Lines, func(l plot.Line) bool { return len(l.Points) > 0 }) {
			if name := r.Scenario.Name; name != "" {
				p.Title = name + ": " + p.Title
			}
			all = append(all, p)
		}
	}
	return all
}

var timeAxis = plot.Axis{Label: "time, ms"}

// plotQueues draws the longest queues, of those that were sampled.
func (r *Result) plotQueues() Plot {
	p := &plot.Plot{Title: "queues of switches", X: timeAxis, Y: plot.Axis{Label: "queue, KB"}}
	for _, q := range r.Queues {
		if len(p.Lines) == plottedQueues || q.Max < r.Queues[0].Max/leastQueue {
			break
		}
		if x := r.Samples.Find(portName(r.Hosts, q.Node, q.Port), "queued_bytes"); x != nil {
			p.Lines = append(p.Lines, plot.Line{Name: fmt.Sprintf("switch %d, port %d", q.Node-r.Hosts, q.Port), Points: r.Samples.Points(x, 1000)})
		}
	}
	return Plot{"queues", p}
}

// plotRates draws the payload that has arrived in each step: by flow, if these
// are few and have no end, and else of all together.
func (r *Result) plotRates() Plot {
	p := &plot.Plot{Title: "payload", X: timeAxis, Y: plot.Axis{Label: "Gb/s"}}
	for i, f := range r.Flows {
		if f.Bytes != 0 {
			continue
		}
		x := r.Samples.Find(flowName(i), "received_bytes")
		if x == nil {
			break
		}
		p.Lines = append(p.Lines, plot.Line{Name: fmt.Sprintf("host %d to %d", f.Src, f.Dst), Points: r.Samples.Rate(x, 8e3), Steps: true})
	}
	if len(p.Lines) == 0 {
		p.Lines = []plot.Line{{Points: r.Samples.Rate(r.Samples.Find("", "received_bytes"), 8e3), Steps: true}}
	}
	return Plot{"rates", p}
}

// plotPauses draws how many pause frames there were in each millisecond.
func (r *Result) plotPauses() Plot {
	if r.Totals.XOFFs == 0 {
		return Plot{}
	}
	p := &plot.Plot{Title: "pauses", X: timeAxis, Y: plot.Axis{Label: "XOFF per ms"}}
	p.Lines = []plot.Line{{Points: r.Samples.Rate(r.Samples.Find("", "pauses"), 1e9), Steps: true}}
	return Plot{"pauses", p}
}

// plotSlowdowns draws slowdowns by the sizes of flows, in groups of as many.
func (r *Result) plotSlowdowns() Plot {
	var flows []*Flow
	for _, f := range r.Flows {
		if f.Slowdown() > 0 {
			flows = append(flows, f)
		}
	}
	if len(flows) < fewFlows {
		return Plot{}
	}
	slices.SortStableFunc(flows, func(a, b *Flow) int { return cmp.Compare(a.Bytes, b.Bytes) })
	if flows[0].Bytes == flows[len(flows)-1].Bytes {
		return r.plotCompletions(flows)
	}
	p := &plot.Plot{Title: "slowdown of flows by their size", X: plot.Axis{Label: "bytes", Log: true}, Y: plot.Axis{Label: "times as long as alone", Log: true}}
	p.Lines = []plot.Line{{Name: "median"}, {Name: "95 %"}, {Name: "99 %"}}
	for g := range sizeGroups {
		group := flows[len(flows)*g/sizeGroups : len(flows)*(g+1)/sizeGroups]
		var v []float64
		for _, f := range group {
			v = append(v, f.Slowdown())
		}
		s, x := spreadOf(v), float64(group[len(group)/2].Bytes)
		for i, y := range []float64{s.P50, s.P95, s.P99} {
			p.Lines[i].Points = append(p.Lines[i].Points, plot.Point{X: x, Y: y})
		}
	}
	return Plot{"slowdowns", p}
}

// plotCompletions draws which share of equal flows had completed after which
// slowdown.
func (r *Result) plotCompletions(flows []*Flow) Plot {
	var v []float64
	for _, f := range flows {
		v = append(v, f.Slowdown())
	}
	slices.Sort(v)
	p := &plot.Plot{Title: "slowdown of flows", X: plot.Axis{Label: "times as long as alone"}, Y: plot.Axis{Label: "share of flows", Min: 0, Max: 1}}
	l := plot.Line{Steps: true}
	for i, x := range v {
		l.Points = append(l.Points, plot.Point{X: x, Y: float64(i+1) / float64(len(v))})
	}
	p.Lines = []plot.Line{l}
	return Plot{"slowdowns", p}
}
