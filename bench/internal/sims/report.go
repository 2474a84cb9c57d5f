package sims

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gosoftroce/rocev2/bench/internal/machine"
	"github.com/gosoftroce/rocev2/bench/internal/stats"
)

// Report is all that the command has to say.
type Report struct {
	Processor machine.Processor `json:"processor"`
	Versions  map[string]string `json:"versions"` // of simulators and compilers
	Repeat    int               `json:"repeat"`
	LeftOut   []string          `json:"left_out,omitempty"`
	Rows      []*Row            `json:"rows"`
}

// JSON writes it as one object.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Markdown returns it as tables.
func (r *Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. Seeds 1 to %d: medians, and the least and the most where they differ.\n", r.Processor.Title(), r.Repeat)
	var names []string
	for name := range r.Versions {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		names[i] = name + ": " + r.Versions[name]
	}
	fmt.Fprintf(&b, "%s.\n", strings.Join(names, "; "))
	if slices.ContainsFunc(r.Rows, func(row *Row) bool { return !row.load() }) {
		r.trees(&b)
	}
	if slices.ContainsFunc(r.Rows, (*Row).load) {
		r.loads(&b)
	}
	r.notes(&b)
	return b.String()
}

// ok reports whether the row has figures: a run of each seed.
func (row *Row) ok() bool { return row != nil && row.Failed == "" && len(row.Runs) > 0 }

// row returns that of a player, and nil if it was not played.
func (r *Report) row(workload, player string) *Row {
	for _, row := range r.Rows {
		if row.Workload == workload && row.Player == player {
			return row
		}
	}
	return nil
}

// load reports whether the row is of a Load.
func (row *Row) load() bool {
	return slices.ContainsFunc(Loads(), func(l Load) bool { return l.Name == row.Workload })
}

func (r *Report) trees(b *strings.Builder) {
	b.WriteString("\n| traffic | simulator | processor, s | memory, MB | last flow, µs | mean flow, µs | hops of data, M/s | all hops, M/s |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	before := ""
	for _, row := range r.Rows {
		if row.load() {
			continue
		}
		fmt.Fprintf(b, "| %s | %s ", name(row.Workload, &before), row.Player)
		if !row.ok() {
			b.WriteString("| failed | | | | | |\n")
			continue
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", row.around("%.2f", cpu), row.memory(), row.around("%.0f", last), row.around("%.0f", mean),
			row.middle("%.2f", func(r *Run) float64 { return float64(r.DataHops) / r.CPU / 1e6 }), row.middle("%.2f", hopRate))
	}
}

func (r *Report) loads(b *strings.Builder) {
	b.WriteString("\n| traffic | simulator | processor, s | memory, MB | last flow, µs | slowdown up to 10 KB: median | 95 % | 99 % | above 1 MB: mean |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	before := ""
	for _, row := range r.Rows {
		if !row.load() {
			continue
		}
		fmt.Fprintf(b, "| %s | %s ", name(row.Workload, &before), row.Player)
		if !row.ok() {
			b.WriteString("| failed | | | | | | |\n")
			continue
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s |\n", row.around("%.2f", cpu), row.memory(), row.around("%.0f", last),
			row.middle("%.2f", short50), row.around("%.2f", short95), row.around("%.2f", short99), row.around("%.2f", long))
	}
	r.paired(b)
}

// paired compares the players of each load seed by seed, in which both had the
// same flows.
func (r *Report) paired(b *strings.Builder) {
	var lines strings.Builder
	level := 1.0
	for _, l := range Loads() {
		mine, others := r.row(l.Name, "ours"), r.row(l.Name, "ns-3")
		if mine == nil || others == nil {
			continue
		}
		fmt.Fprintf(&lines, "| `%s` ", l.Name)
		if !mine.ok() || !others.ok() {
			lines.WriteString("| failed | | | | |\n")
			continue
		}
		for _, of := range []func(*Run) float64{short50, short95, short99, long, cpu} {
			if p := compared(mine, others, of); p.N > 0 {
				fmt.Fprintf(&lines, "| %.3f (%.3f to %.3f) ", p.Ratio, p.Low, p.High)
				level = min(level, p.Level)
			} else {
				lines.WriteString("| ")
			}
		}
		lines.WriteString("|\n")
	}
	if lines.Len() > 0 {
		fmt.Fprintf(b, "\nOurs by ns-3, seed by seed, with intervals of %.1f %% or more:\n\n| traffic | up to 10 KB: median | 95 %% | 99 %% | above 1 MB: mean | processor |\n| --- | ---: | ---: | ---: | ---: | ---: |\n%s", 100*level, &lines)
	}
}

// compared compares a figure of the seeds that both rows have.
func compared(mine, others *Row, of func(*Run) float64) stats.Paired {
	var x, y []float64
	for i := range mine.Runs {
		for k := range others.Runs {
			if mine.Runs[i].Seed == others.Runs[k].Seed {
				x, y = append(x, of(&mine.Runs[i])), append(y, of(&others.Runs[k]))
			}
		}
	}
	return stats.Compare(y, x)
}

// notes says what the workloads are, what has crashed or failed, what was left
// out, and what was to be reached.
func (r *Report) notes(b *strings.Builder) {
	b.WriteString("\n")
	before := ""
	for _, row := range r.Rows {
		if row.Workload != before {
			fmt.Fprintf(b, "- `%s`: %s\n", row.Workload, row.What)
			before = row.Workload
		}
	}
	for _, row := range r.Rows {
		if row.Crashes > 0 {
			fmt.Fprintf(b, "- %s, %s: it crashed in %d of %d runs, which were tried again with another seed\n", row.Workload, row.Player, row.Crashes, row.Crashes+len(row.Runs))
		}
		if row.Failed != "" {
			fmt.Fprintf(b, "- %s, %s failed: %s\n", row.Workload, row.Player, strings.ReplaceAll(row.Failed, "\n", "; "))
		}
	}
	for _, s := range r.LeftOut {
		fmt.Fprintf(b, "- left out: %s\n", s)
	}
	for _, t := range targets {
		if s := t.verdict(r); s != "" {
			fmt.Fprintf(b, "- %s\n", s)
		}
	}
}

// name returns the name of a workload for the first of its rows.
func name(workload string, before *string) string {
	if workload == *before {
		return ""
	}
	*before = workload
	return "`" + workload + "`"
}

// Figures of runs. Those that a simulator or a seed does not have are 0.
func cpu(r *Run) float64     { return r.CPU }
func last(r *Run) float64    { return r.Last }
func mean(r *Run) float64    { return r.Mean }
func long(r *Run) float64    { return r.Long }
func hopRate(r *Run) float64 { return float64(r.Hops) / r.CPU / 1e6 }

// short returns a figure of the slowdowns of short flows.
func short(of func(*Slowdowns) float64) func(*Run) float64 {
	return func(r *Run) float64 {
		if r.Short == nil {
			return 0
		}
		return of(r.Short)
	}
}

var (
	short50 = short(func(s *Slowdowns) float64 { return s.P50 })
	short95 = short(func(s *Slowdowns) float64 { return s.P95 })
	short99 = short(func(s *Slowdowns) float64 { return s.P99 })
)

// figures returns a figure of all runs that have it, sorted.
func (row *Row) figures(of func(*Run) float64) []float64 {
	var v []float64
	for i := range row.Runs {
		if x := of(&row.Runs[i]); x > 0 {
			v = append(v, x)
		}
	}
	slices.Sort(v)
	return v
}

// median returns the median of a figure; of no runs 0.
func (row *Row) median(of func(*Run) float64) float64 {
	v := row.figures(of)
	if len(v) == 0 {
		return 0
	}
	return stats.Median(v)
}

// middle writes the median; a simulator that does not have the figure has none.
func (row *Row) middle(format string, of func(*Run) float64) string {
	if m := row.median(of); m > 0 {
		return fmt.Sprintf(format, m)
	}
	return ""
}

// around writes the median, the least and the most.
func (row *Row) around(format string, of func(*Run) float64) string {
	v := row.figures(of)
	if len(v) == 0 {
		return ""
	}
	least, most := fmt.Sprintf(format, v[0]), fmt.Sprintf(format, v[len(v)-1])
	if least == most {
		return row.middle(format, of)
	}
	return fmt.Sprintf("%s (%s to %s)", row.middle(format, of), least, most)
}

// memory writes the most of all runs.
func (row *Row) memory() string {
	v := row.figures(func(r *Run) float64 { return float64(r.Peak) / 1e6 })
	if len(v) == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f", v[len(v)-1])
}
