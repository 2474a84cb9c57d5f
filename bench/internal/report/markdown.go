package report

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/grid"
	"github.com/gosoftroce/rocev2/bench/internal/losses"
	"github.com/gosoftroce/rocev2/bench/internal/stats"
)

// Report is a run with all that it gave.
type Report struct {
	Env      Environment
	Rows     []cell.Row
	Versions map[string]string // of the peers
	Notes    []string          // what was left out, and why
	Manual   string            // where bench/README.md is, seen from the report; "" if it is not known
}

// byName indexes the rows.
func (r *Report) byName() Rows {
	m := Rows{}
	for i := range r.Rows {
		m[r.Rows[i].Name] = &r.Rows[i]
	}
	return m
}

// Verdicts judges all targets.
func (r *Report) Verdicts() []Verdict {
	rows := r.byName()
	var out []Verdict
	for _, t := range Targets(r.Env.Processor) {
		out = append(out, t.Judge(rows))
	}
	return out
}

// Markdown writes the report. plots are the names of the plots' files and their
// captions.
func (r *Report) Markdown(w io.Writer, plots []Plot) error {
	var b strings.Builder
	r.head(&b)
	r.reach(&b)
	for _, p := range plots {
		fmt.Fprintf(&b, "\n![%s](%s)\n", p.Title, p.File)
	}
	r.tails(&b)
	r.tables(&b)
	r.failures(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) head(b *strings.Builder) {
	e := &r.Env
	manual := "bench/README.md"
	if r.Manual != "" {
		manual = "[bench/README.md](" + r.Manual + ")"
	}
	fmt.Fprintf(b, "# Measurements, %s\n\nWritten by `rocebench`, %s grid; what the figures mean and how to repeat them: %s.\n\n", e.Title(), e.Grid, manual)
	fmt.Fprintf(b, "| | |\n| --- | --- |\n| commit | `%s` |\n| machine | %s |\n", e.Commit, e.machine())
	if c := e.Cached(); c != "" {
		fmt.Fprintf(b, "| caches | %s |\n", c)
	}
	for _, k := range slices.Sorted(maps.Keys(e.Mitigations)) {
		fmt.Fprintf(b, "| mitigation: %s | %s |\n", k, escape(e.Mitigations[k]))
	}
	fmt.Fprintf(b, "| kernel | %s |\n| Go | %s |\n| when | %s |\n| a run | %v after %v of warm-up |\n",
		e.Kernel, e.Go, e.Time.Format("2006-01-02 15:04 UTC"), e.Measure, e.Warm)
	for _, k := range slices.Sorted(maps.Keys(r.Versions)) {
		fmt.Fprintf(b, "| %s | %s |\n", k, r.Versions[k])
	}
	var others []float64
	disturbed, paused := 0, 0
	for i := range r.Rows {
		disturbed += r.Rows[i].Disturbed
		for _, s := range r.Rows[i].Samples {
			if s.Count[losses.Needless] > 0 {
				paused++
			}
			others = append(others, s.Others)
		}
	}
	if s := stats.Of(others); s.N > 0 {
		fmt.Fprintf(b, "| other programs and the hypervisor | %s %% of one processor in the median run, at most %s %% |\n", number(s.Median), number(s.Max))
		fmt.Fprintf(b, "| runs repeated | %d: with errors while others used more than a tenth of a processor |\n", disturbed)
		if paused > 0 {
			fmt.Fprintf(b, "| runs with pauses | %d of %d: packets were sent again, though the kernel counted no loss |\n", paused, s.N)
		}
	}
	for _, n := range r.Notes {
		fmt.Fprintf(b, "\n%s\n", n)
	}
}

// machine names the processor and how much of it there is.
func (e *Environment) machine() string {
	s := fmt.Sprintf("%d × %s", e.CPUs, e.CPU)
	if n := e.Numbers(); n != "" {
		s += ", " + n
	}
	if e.Cores > 0 {
		s += fmt.Sprintf(", %d cores", e.Cores)
	}
	if e.Virtual {
		s += ", virtual"
	}
	return s
}

// tails writes what the latencies of single operations were.
func (r *Report) tails(b *strings.Builder) {
	first := true
	for i := range r.Rows {
		row := &r.Rows[i]
		p99, ok := row.Extra[cell.P99]
		if !ok || !row.OK() {
			continue
		}
		if first {
			b.WriteString("\n## Tails\n\nOf the single operations of a run, medians over the runs.\n\n" +
				"| cell | stack | what | p50 | p99 | p99.9 | unit |\n| --- | --- | --- | ---: | ---: | ---: | --- |\n")
			first = false
		}
		p999 := "—"
		if v, ok := row.Extra[cell.P999]; ok {
			p999 = number(v)
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s |\n", row.Name, row.Stack, row.What, number(row.Median), number(p99), p999, row.Unit)
	}
}

func (r *Report) reach(b *strings.Builder) {
	b.WriteString("\n## Targets\n\nRatios are medians over the rounds, in each of which both cells ran one after the other; in parentheses the smallest and the largest.\n\n")
	if r.referenced() {
		fmt.Fprintf(b, "Raw sockets were measured right before and right after each cell of their groups. "+
			"A round in which these readings differ by more than %d %% is left out.\n\n", int(100*steady))
	} else {
		b.WriteString("Raw sockets were not measured around each cell in this run, so no round is left out: where the machine changed its speed, the ratios spread.\n\n")
	}
	b.WriteString("| what | against | to reach | measured | |\n| --- | --- | --- | --- | --- |\n")
	for _, v := range r.Verdicts() {
		figure, met := v.Result()
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", v.What, v.Against, v.bound(), figure, escape(met))
	}
}

func (r *Report) tables(b *strings.Builder) {
	group := ""
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Group != group {
			group = row.Group
			fmt.Fprintf(b, "\n## %s%s\n\n", strings.ToUpper(group[:1]), group[1:])
			if group == grid.LoopbackGroup {
				b.WriteString("Both queue pairs are of one device in one process, and packets pass inside it: no socket, no ICRC, no second process. " +
					"These are copies in memory, comparable with no other figure here.\n\n")
			}
			b.WriteString("| cell | stack | what | median | unit | smallest … largest | runs | CPU µs/message (active, passive) |\n| --- | --- | --- | ---: | --- | --- | ---: | --- |\n")
		}
		value, spread, cpu := "—", "", ""
		switch {
		case row.Skipped != "":
			value = "skipped"
		case row.Failed != "":
			value = "**failed**"
		default:
			value, spread = number(row.Median), number(row.Min)+" … "+number(row.Max)
			if lost, ok := row.Extra[cell.LostPercent]; ok {
				spread += ", " + number(lost) + " % lost"
			}
			if a, ok := row.Extra["active_cpu_us_per_msg"]; ok {
				cpu = number(a) + ", " + number(row.Extra["passive_cpu_us_per_msg"])
			}
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %d | %s |\n", row.Name, row.Stack, row.What, value, row.Unit, spread, len(row.Samples), cpu)
	}
}

func (r *Report) failures(b *strings.Builder) {
	first := true
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Failed == "" && row.Skipped == "" {
			continue
		}
		if first {
			b.WriteString("\n## Failed and skipped\n\n")
			first = false
		}
		why := row.Failed
		if why == "" {
			why = "skipped: " + row.Skipped
		}
		fmt.Fprintf(b, "- `%s`: %s\n", row.Name, escape(why))
	}
}

// escape keeps a text within a cell of a table.
func escape(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s)
}

// number formats with three significant digits.
func number(v float64) string {
	if math.IsNaN(v) {
		return "—"
	}
	if math.Abs(v) >= 1000 {
		return strconv.FormatFloat(math.Round(v), 'f', -1, 64)
	}
	s := strconv.FormatFloat(v, 'g', 3, 64)
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return s
}
