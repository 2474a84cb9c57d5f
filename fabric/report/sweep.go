package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/gosoftroce/rocev2/fabric/plot"
	"github.com/gosoftroce/rocev2/fabric/sweep"
)

// WriteSweep writes the report of many runs of a scenario: for each combination
// of settings the median of each measure over the seeds with its confidence
// interval, the comparison with the first one, seed by seed, and a drawing of
// each measure.
func WriteSweep(w io.Writer, name string, text []byte, records []*sweep.Record, files []string) error {
	groups, notes := sweep.Compare(records)
	p := newPage(name + ": what many runs have come to")
	of := 0
	if len(records) > 0 {
		of = records[0].Of
	}
	p.element("p", fmt.Sprintf("%d of %d runs, %d combinations of settings.", len(records), of, len(groups)))
	if len(notes) > 0 {
		p.element(`p class="wrong"`, "Runs that were not played, or have ended early:")
		p.list(notes[:min(len(notes), slowFlows)])
		if n := len(notes) - slowFlows; n > 0 {
			p.element("p", fmt.Sprintf("and %d more", n))
		}
	}
	p.scenario(text)
	p.heading("What came out")
	if n := len(groups); n > mostGroups {
		p.element("p", fmt.Sprintf("The first %d of %d combinations are shown; the command prints all.", mostGroups, n))
		groups = groups[:mostGroups]
	}
	p.element(`p class="soft"`, "The interval holds the median of all possible seeds with 95 % confidence, by the binomial distribution. Fewer than six runs tell none.")
	for i := range groups {
		g := &groups[i]
		p.table(fmt.Sprintf("%s: %d runs", g.Name, g.Runs), []string{"measure", "median", "95 %"}, measureRows(g.Measures, sweep.Number))
	}
	if len(groups) > 1 {
		p.heading("Compared with the first, seed by seed")
		p.element(`p class="soft"`, "Both runs of a pair had the same flows. Where the interval does not contain 1, the difference is no chance.")
		for i := range groups[1:] {
			g := &groups[1+i]
			p.table(fmt.Sprintf("%s / %s: %d pairs", g.Name, groups[0].Name, g.Pairs), []string{"measure", "median of ratios", "95 %"},
				measureRows(g.Ratios, func(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }))
		}
	}
	p.measures(groups)
	if len(files) > 0 {
		p.heading("Files")
		p.raw("<ul>\n")
		for _, file := range files {
			p.raw("<li>" + p.link(file) + "</li>\n")
		}
		p.raw("</ul>\n")
	}
	return p.writeTo(w)
}

func measureRows(list []sweep.Measure, number func(float64) string) (rows [][]string) {
	for i := range list {
		m := &list[i]
		rows = append(rows, []string{m.Name, number(m.Median), m.Interval()})
	}
	return rows
}

const mostGroups = 64 // on a page

// measures draws each measure: a row for each combination of settings.
func (p *page) measures(groups []sweep.Group) {
	if len(groups) == 0 {
		return
	}
	p.heading("Drawings")
	p.element(`p class="soft"`, "A dot is a run, the mark the median, the bar its interval.")
	played := slices.IndexFunc(groups, func(g sweep.Group) bool { return len(g.Measures) > 0 })
	if played < 0 {
		return
	}
	for i := range groups[played].Measures {
		name := groups[played].Measures[i].Name
		r := &plot.Ranges{Title: name, X: plot.Axis{Label: name}}
		for j := range groups {
			row := plot.Range{Name: groups[j].Name, Low: 1}
			for k := range groups[j].Measures {
				if m := &groups[j].Measures[k]; m.Name == name {
					row.Values, row.Middle = m.Values, m.Median
					if m.Known {
						row.Low, row.High = m.Low, m.High
					}
				}
			}
			r.Rows = append(r.Rows, row)
		}
		p.figure(r.WriteSVG, name+", by the settings.", "")
	}
}
