package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/gosoftroce/rocev2/fabric/lab"
	"github.com/gosoftroce/rocev2/fabric/record"
)

// Most rows and lines of what there may be many of.
const (
	slowFlows = 20
	busyPorts = 12
	mostLines = 8
)

// WriteRun writes the report of a run. text is the scenario as it was written.
// files are those beside the report, by name; it links to them.
func WriteRun(w io.Writer, r *lab.Result, text []byte, files []string) error {
	name := r.Scenario.Name
	if name == "" {
		name = "scenario"
	}
	p := newPage(name + ": what a run has come to")
	s := r.Summary()
	p.element("p", fmt.Sprintf("%d hosts, seed %d: %v of virtual time in %d events. Digest %s: equal digests are equal runs.", s.Hosts, s.Seed, r.End, s.Events, s.Digest))
	if s.Early != "" {
		p.element(`p class="wrong"`, "The run has ended early: "+s.Early)
	}
	p.heading("What to look at")
	p.list(Hints(r))
	p.scenario(text)
	p.heading("What came out")
	p.table("Of the whole run", nil, facts(r, &s))
	p.table("Slowdown by the size of flows: how many times as long as alone they took", []string{"flows", "number", "mean", "median", "95 %", "99 %", "most"}, bands(&s))
	header, rows := traffics(&s)
	p.table("What each traffic has come to", header, rows)
	p.figures(r, files)
	p.flows(r)
	p.ports(r)
	p.notes(r, files)
	return p.writeTo(w)
}

// facts are the numbers of a summary.
func facts(r *lab.Result, s *lab.Summary) (rows [][]string) {
	add := func(name string, format string, args ...any) {
		rows = append(rows, []string{name, fmt.Sprintf(format, args...)})
	}
	if s.Completed+s.Failed+s.Unfinished > 0 {
		add("flows", "%d completed, %d failed, %d unfinished", s.Completed, s.Failed, s.Unfinished)
		_, _, last := r.Done()
		add("the last flow ended", "%v", last)
	}
	if s.Rate > 0 {
		add("payload of flows without an end", "%.4g Gb/s together, Jain %.4f", s.Rate, s.Jain)
	}
	add("packets", "%d sent, %d delivered, %d dropped (%s)", s.Sent, s.Delivered, s.Dropped, share(s.Dropped, s.Sent))
	add("marked", "%d packets (%s of %d hops)", s.Marks, share(s.Marks, s.Hops), s.Hops)
	add("pauses", "%d", s.Pauses)
	add("recovery", "%d sent again, %d repairs, %d probes, %d timeouts", s.Retransmits, s.Repairs, s.Probes, s.Timeouts)
	if t := s.TCP; t != nil {
		add("TCP", "%d segments, %d sent again, %d fast recoveries, %d timeouts, %d cuts by marks", t.Segments, t.Again, t.Recoveries, t.Timeouts, t.Cuts)
	}
	add("congestion control", "%d notifications, %d window cuts, %d rate cuts", s.CNPs, s.WindowCuts, s.RateCuts)
	if s.LongestName != "" {
		add("longest queue", "%v at %s", lab.Bytes(s.LongestByte), s.LongestName)
	}
	return rows
}

func bands(s *lab.Summary) (rows [][]string) {
	for _, b := range s.Bands {
		row := []string{b.Sizes, strconv.Itoa(b.N)}
		for _, v := range []float64{b.Mean, b.P50, b.P95, b.P99, b.Max} {
			row = append(row, fmt.Sprintf("%.2f", v))
		}
		rows = append(rows, row)
	}
	return rows
}

// flows shows those that have failed, and those that took longest, with what
// has held them up.
func (p *page) flows(r *lab.Result) {
	var failed, slow []int
	for i, f := range r.Flows {
		switch {
		case f.Slowdown() > 0:
			slow = append(slow, i)
		case f.Bytes > 0:
			failed = append(failed, i)
		}
	}
	slices.SortStableFunc(slow, func(a, b int) int { return cmp.Compare(r.Flows[b].Slowdown(), r.Flows[a].Slowdown()) })
	if len(failed)+len(slow) == 0 {
		return
	}
	p.heading("Flows")
	header := []string{"flow", "from", "to", "bytes", "began", "took", "slowdown", "what of it"}
	p.table(first("Flows that have not completed", len(failed), slowFlows), header, flowRows(r, failed))
	p.table(first("The flows that took longest, beside what they take alone", len(slow), slowFlows), header, flowRows(r, slow))
}

// first says how many of some a table has.
func first(caption string, n, most int) string {
	if n > most {
		return fmt.Sprintf("%s, %d of %d", caption, most, n)
	}
	return caption
}

func flowRows(r *lab.Result, list []int) (rows [][]string) {
	unfinished := map[*lab.Flow]string{}
	for i := range r.Unfinished {
		unfinished[r.Unfinished[i].Flow] = r.Unfinished[i].Where
	}
	for _, i := range list[:min(len(list), slowFlows)] {
		f := r.Flows[i]
		row := []string{strconv.Itoa(i), fmt.Sprintf("h%d", f.Src), fmt.Sprintf("h%d", f.Dst), lab.Bytes(f.Bytes).String(), f.Start.String(), "", "", cause(r, f)}
		if f.End > 0 {
			row[5] = (f.End - f.Start).String()
		}
		if s := f.Slowdown(); s > 0 {
			row[6] = fmt.Sprintf("%.2f", s)
		} else {
			row[6] = record.StatusOf(f)
			if where := unfinished[f]; where != "" {
				row[7] = where
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// ports shows the busiest ports, and those that were paused for longest.
func (p *page) ports(r *lab.Result) {
	if len(r.Ports) == 0 {
		return
	}
	p.heading("Ports")
	list := slices.Clone(r.Ports)
	slices.SortStableFunc(list, func(a, b lab.Port) int { return cmp.Compare(load(r.End, &b), load(r.End, &a)) })
	header := []string{"port", "to", "rate", "cable in use", "longest queue", "marked", "dropped", "paused for"}
	rows := func() (rows [][]string) {
		for i := range list[:min(len(list), busyPorts)] {
			x := &list[i]
			rows = append(rows, []string{r.PortName(x.Node, x.Port), r.NodeName(x.Peer), x.Rate.String(), fmt.Sprintf("%.1f %%", 100*load(r.End, x)),
				lab.Bytes(x.MaxQueued).String(), strconv.FormatUint(x.Marks, 10), strconv.FormatUint(x.Dropped(), 10), lab.Time(x.Paused).String()})
		}
		return rows
	}
	p.table(first("The ports whose cables were used most", len(list), busyPorts), header, rows())
	list = slices.DeleteFunc(list, func(x lab.Port) bool { return x.Paused == 0 })
	slices.SortStableFunc(list, func(a, b lab.Port) int { return cmp.Compare(b.Paused, a.Paused) })
	p.table(first("The ports that were paused for longest", len(list), busyPorts), header, rows())
}

// load is the share of a run that a port's cable was in use.
func load(run lab.Time, p *lab.Port) float64 {
	if run == 0 || p.Rate == 0 {
		return 0
	}
	return float64(p.Bytes) * 8e12 / (float64(p.Rate) * float64(run))
}

// notes links to the files, and says what is in none.
func (p *page) notes(r *lab.Result, files []string) {
	if len(files) > 0 {
		p.heading("Files")
		p.raw("<ul>\n")
		for _, file := range files {
			p.raw("<li>" + p.link(file))
			for _, t := range record.Tables() {
				if t.Name == file {
					p.raw(": each row is " + t.About)
				}
			}
			p.raw("</li>\n")
		}
		p.raw("</ul>\n")
	}
	if len(r.LeftOut) > 0 {
		p.heading("What was left out")
		p.list(r.LeftOut)
	}
}
