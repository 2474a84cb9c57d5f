package sims

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/bench/internal/machine"
)

func sample() *Report {
	row := func(workload, player string, runs ...Run) *Row {
		return &Row{Workload: workload, What: "what " + workload + " is", Player: player, Runs: runs}
	}
	crashed := row("all-to-all-128", "htsim RoCE", Run{CPU: 2, Peak: 5e6, Last: 900, Mean: 700, DataHops: 2e6, Hops: 4e6})
	crashed.Crashes = 2
	failed := row("incast-16", "htsim RoCE", Run{CPU: 1, Last: 1030}) // its first seed
	failed.Failed = "no\nmemory"
	gone := row("permutation-1024", "ours")
	gone.Failed = "no tool"
	load := func(player string, p95 ...float64) *Row {
		r := row("websearch-hpcc", player)
		for i, v := range p95 {
			r.Runs = append(r.Runs, Run{Seed: uint64(i), CPU: v, Last: 5, Short: &Slowdowns{1, v, 3}})
		}
		return r
	}
	half := load("ns-3", 2)
	half.Workload, half.Failed = "websearch-dcqcn", "stopped"
	other := load("ours", 2, 3)
	other.Workload = "websearch-dcqcn"
	return &Report{
		Processor: machine.Processor{CPU: "Some CPU"}, Repeat: 2, Versions: map[string]string{"htsim": "abc"}, LeftOut: []string{"hpcc"},
		Rows: []*Row{
			row("all-to-all-128", "ours", Run{CPU: 1, Peak: 3e6, Last: 1000, Mean: 800, DataHops: 2e6, Hops: 3e6}, Run{CPU: 2, Peak: 4e6, Last: 1100, Mean: 800, DataHops: 2e6, Hops: 3e6}),
			crashed,
			row("incast-16", "ours", Run{CPU: 1, Last: 1030, Hops: 1}), failed,
			row("incast-64", "ours", Run{CPU: 1, Last: 1030, Hops: 1}), row("incast-64", "htsim RoCE", Run{CPU: 1, Last: 1000}),
			row("hadoop-hpcc", "ns-3", Run{CPU: 20, Last: 5, Short: &Slowdowns{1, 2, 3}, Long: 1.5}, Run{CPU: 20, Last: 5, Short: &Slowdowns{1, 2.5, 3}, Long: 1.5}),
			gone, load("ours", 2, 4, 6), load("ns-3", 1, 2, 3), other, half,
		},
	}
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	got := sample().Markdown()
	for _, want := range []string{
		"| `all-to-all-128` | ours | 1.50 (1.00 to 2.00) | 4 | 1050 (1000 to 1100) | 800 | 1.50 | 2.25 |\n",
		"|  | htsim RoCE | 2.00 | 5 | 900 | 700 | 1.00 | 2.00 |\n",
		"| `incast-16` | ours | 1.00 |  | 1030 |  |  | 0.00 |\n|  | htsim RoCE | failed |",
		"| `hadoop-hpcc` | ns-3 | 20.00 |  | 5 | 1.00 | 2.25 (2.00 to 2.50) | 3.00 | 1.50 |\n",
		"- `incast-64`: what incast-64 is\n",
		"- all-to-all-128, htsim RoCE: it crashed in 2 of 3 runs, which were tried again with another seed\n",
		"- incast-16, htsim RoCE failed: no; memory\n",
		"- left out: hpcc\n",
		"|  | ns-3 | failed |",
		"| `websearch-hpcc` | 1.000 (1.000 to 1.000) | 2.000 (2.000 to 2.000) | 1.000 (1.000 to 1.000) | | 2.000 (2.000 to 2.000) |\n",
		"| `websearch-dcqcn` | failed |",
		"- **not reached**: incast-16, the last flow: htsim RoCE has failed\n",
		"- **not reached**: permutation-1024, hops a second of one core: ours has failed\n",
		"- reached: all-to-all-128, hops a second of one core: 2.25 M, at least 0.50 M\n",
		"- **not reached**: incast-64, the last flow: 1030 µs, within 2 % of that of htsim RoCE, 1000 µs\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
	for _, not := range []string{"spray-128", "NaN", "Inf"} {
		if strings.Contains(got, not) {
			t.Errorf("%q is in\n%s", not, got)
		}
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	r := sample()
	if err := r.JSON(&b); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if back.Markdown() != r.Markdown() {
		t.Errorf("from JSON:\n%s", back.Markdown())
	}
}

// Each target names a workload, and a player of it.
func TestTargets(t *testing.T) {
	t.Parallel()
	for _, want := range targets {
		found := false
		for _, w := range Workloads() {
			for _, p := range w.players {
				found = found || w.Name == want.workload && p.name == want.near || want.near == "" && w.Name == want.workload
			}
		}
		if !found {
			t.Errorf("there is no %s of %q", want.workload, want.near)
		}
	}
}
