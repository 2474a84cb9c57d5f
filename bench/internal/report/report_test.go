package report

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/grid"
	"github.com/gosoftroce/rocev2/bench/internal/machine"
)

var update = flag.Bool("update", false, "write the golden files")

func row(name, stack, unit string, values ...float64) cell.Row {
	r := cell.Row{Cell: cell.Cell{Name: name, Group: "bulk", Stack: stack, What: "what it is", Unit: unit}}
	for _, v := range values {
		s := cell.Sample{Value: v, Extra: map[string]float64{"active_cpu_us_per_msg": 1.5, "passive_cpu_us_per_msg": 2}}
		if v == 0 {
			s.Errors = map[string]uint64{"retransmissions": 3, "bad ICRC": 1}
		}
		r.Samples = append(r.Samples, s)
	}
	r.Summarise()
	return r
}

// processor is of a model that does not exist.
var processor = machine.Processor{
	CPU: "Example CPU", Vendor: machine.AMD, Family: "99", Model: "1", CPUs: 4, Cores: 2, Virtual: true,
	Caches:      []machine.Cache{{Level: 1, Bytes: 48 << 10, Shared: 1}, {Level: 2, Bytes: 2 << 20, Shared: 2}},
	Mitigations: map[string]string{"spectre_v1": "barriers", "mds": "Vulnerable"},
}

// tailed gives a row the percentiles of a latency.
func tailed(r cell.Row) cell.Row {
	for i := range r.Samples {
		r.Samples[i].Extra[cell.P99], r.Samples[i].Extra[cell.P999] = 10*r.Samples[i].Value, 100*r.Samples[i].Value
	}
	r.Summarise()
	return r
}

func example() *Report {
	skipped := row("ucx/put_rate/8B", "UCX tcp", cell.MsgRate)
	loopback := row("loopback/write/1MiB", "rocev2", cell.Gbps, 100)
	loopback.Group = grid.LoopbackGroup
	skipped.Skipped = "ucx_perftest (package ucx-utils) is not installed"
	return &Report{
		Env: Environment{
			Commit: "0123456789ab", Kernel: "linux 6.12", Processor: processor, Go: "go1.26.8",
			Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Grid: "full", Warm: time.Second / 4, Measure: time.Second,
		},
		Versions: map[string]string{"iperf3 TCP": "3.12"},
		Notes:    []string{"Left out: something."},
		Rows: []cell.Row{
			row("iperf3/tcp", "iperf3 TCP", cell.Gbps, 40, 20, 42),
			row("ours/write/1MiB", "rocev2", cell.Gbps, 60, 30, 50), // slow in the same round
			row("raw/4140/icrc", "raw UDP", cell.Gbps, 60, 60, 60),
			row("ours/send/1MiB", "rocev2", cell.Gbps, 60, 0, 50),
			row("ours/write/8B/qps=1", "rocev2", cell.MsgRate, 4.5, 4.25, 3),
			skipped,
			tailed(row("ours/send/lat", "rocev2", cell.Micros, 4, 5, 6)),
			row("ours/idle/qps=1000", "rocev2", cell.Percent, 0.75),
			row("ours/memory/depth=16", "rocev2", cell.BytesPer, 7000),
			row("ours/memory/depth=32", "rocev2", cell.BytesPer, 10000),
			loopback,
		},
	}
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	if err := example().Markdown(&got, []Plot{{"throughput.svg", "A plot"}}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "report.md")
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the report differs from %s (write it with -update):\n%s", file, got.String())
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	got := map[string]string{}
	for _, v := range example().Verdicts() {
		figure, met := v.Result()
		got[v.What+" / "+v.Against] = figure + " " + met
	}
	for what, want := range map[string]string{
		"WRITE 1 MiB / iperf3 TCP, one stream":                 "1.5 × (1.19 … 1.5) ",
		"WRITE 1 MiB / the raw limit":                          "0.833 × (0.5 … 1) **not met**",
		"SEND 1 MiB / the raw limit":                           "— ours/send/1MiB failed: 1 of 3 runs had errors; the first: bad ICRC 1, retransmissions 3",
		"READ 1 MiB / iperf3 TCP, one stream":                  "— not measured",
		"WRITE 8 B, 1 QP / Mmsg/s":                             "4.25 (3 … 4.5) **not met**", // 6 on AMD
		"WRITE 8 B, 1 QP / UCX tcp put":                        "— skipped: ucx_perftest (package ucx-utils) is not installed",
		"idle, 1000 connected QPs / % of a core":               "0.75 **not met**",
		"memory of an idle connected QP beyond its queues / B": "4000 met",
	} {
		if got[what] != want {
			t.Errorf("%s:\n got %q\nwant %q", what, got[what], want)
		}
	}
}

func TestJSONComesBack(t *testing.T) {
	t.Parallel()
	r := example()
	r.Notes = nil // not stored
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{`"commit":"0123456789ab"`, `"kernel":"linux 6.12"`, `"cpu":"Example CPU"`, `"go":"go1.26.8"`, `"errors":{"bad ICRC":1,"retransmissions":3}`} {
		if !strings.Contains(b.String(), word) {
			t.Errorf("the JSON lacks %s", word)
		}
	}
	back, err := ReadJSON(&b)
	if err != nil {
		t.Fatal(err)
	}
	var one, two bytes.Buffer
	if err := r.Markdown(&one, nil); err != nil {
		t.Fatal(err)
	}
	if err := back.Markdown(&two, nil); err != nil {
		t.Fatal(err)
	}
	if one.String() != two.String() {
		t.Errorf("the report of what was read differs:\n%s\nfrom\n%s", two.String(), one.String())
	}
}

func TestPlotsAreSVG(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stale := filepath.Join(dir, "loss.svg")
	if err := os.WriteFile(stale, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	plots, err := example().Plots(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(plots) != 1 || plots[0].File != "throughput.svg" {
		t.Fatalf("plots %v, want the one with at least two bars", plots)
	}
	b, err := os.ReadFile(filepath.Join(dir, plots[0].File))
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(b)); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if bytes.Contains(b, []byte("<text")) || bytes.Contains(b, []byte("font-family")) {
		t.Error("the plot needs a font of the viewer's")
	}
	if _, err := os.Stat(stale); err == nil {
		t.Error("a plot without data was left from an earlier run")
	}
}

// A cell without a value is a gap in the line, not a stroke across it.
func TestFailedCellIsAGap(t *testing.T) {
	t.Parallel()
	var rows []cell.Row
	for i, failed := range []bool{true, false, false, true, false, true} {
		r := row(fmt.Sprintf("ours/write/%d", i), "rocev2", cell.Gbps, float64(i+1))
		r.Group, r.Op, r.Size = "sizes", "write", i
		if failed {
			r.Failed = "why"
		}
		rows = append(rows, r)
	}
	lines := pieces(rows, "sizes", "write", func(c *cell.Cell) float64 { return float64(c.Size) })
	if len(lines) != 2 || len(lines[0]) != 2 || len(lines[1]) != 1 || lines[1][0].X != 4 {
		t.Errorf("lines %v", lines)
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 0.01234: "0.0123", 1.005: "1", 12.345: "12.3", 999.6: "1000", 123456.7: "123457", 0.00001: "0.00001"} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %s, want %s", v, got, want)
		}
	}
}

// Every cell that a target names exists in the full grid, and the two of a
// ratio take turns.
func TestTargetsNameCellsOfTheGrid(t *testing.T) {
	t.Parallel()
	for _, quick := range []bool{false, true} {
		groups := map[string]string{}
		for _, c := range grid.Plan(grid.Options{Quick: quick, Repeat: 5}) {
			if groups[c.Name] != "" {
				t.Errorf("two cells are named %s", c.Name)
			}
			groups[c.Name] = c.Group
		}
		for _, target := range Targets(machine.Processor{}) {
			for _, name := range []string{target.Cell, target.Peer} {
				elsewhere := strings.HasPrefix(name, "kernel/") || quick && strings.HasPrefix(name, "path/100Mb/")
				if name != "" && !elsewhere && groups[name] == "" {
					t.Errorf("quick=%v: %s: there is no cell %s", quick, target.What, name)
				}
			}
			if target.Peer != "" && groups[target.Cell] != groups[target.Peer] {
				t.Errorf("%s and %s are in different groups", target.Cell, target.Peer)
			}
		}
	}
}
