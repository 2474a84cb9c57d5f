//go:build linux

package programs

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// The table is between these lines of the document.
const (
	tableBegins = "<!-- cells: begin -->"
	tableEnds   = "<!-- cells: end -->"
)

// table is what came of the cells.
type table struct {
	mu      sync.Mutex
	version string // of what they were run with
	columns []kind
	titles  map[kind]string
	results map[string]map[kind]result
}

type result struct{ outcome, note string }

func newTable(version string, columns []kind, kernel string) *table {
	return &table{
		version: version, columns: columns, results: map[string]map[kind]result{},
		titles: map[kind]string{
			twoDaemons: "two daemons", oneDaemon: "one daemon",
			kernelServes: "us → " + kernel, kernelDials: kernel + " → us", kernels: "two kernels",
		},
	}
}

func (t *table) set(c *cell, k kind, r result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.results[c.String()] == nil {
		t.results[c.String()] = map[kind]result{}
	}
	t.results[c.String()][k] = r
}

// markdown is the table, a section for each package.
func (t *table) markdown() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "Run on %s with %s.\n", time.Now().UTC().Format("2006-01-02"), t.version)
	group := ""
	for _, c := range cells() {
		if t.results[c.String()] == nil {
			continue
		}
		if c.group != group {
			group = c.group
			fmt.Fprintf(&b, "\n### %s\n\n|", group)
			for _, k := range t.columns {
				fmt.Fprintf(&b, " | %s", t.titles[k])
			}
			fmt.Fprintf(&b, " |\n|%s\n", strings.Repeat(" --- |", len(t.columns)+1))
		}
		fmt.Fprintf(&b, "| %s |", c.name)
		for _, k := range t.columns {
			fmt.Fprintf(&b, " %s |", t.results[c.String()][k])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (r result) String() string {
	switch {
	case r.outcome == "":
		return "–"
	case r.note != "":
		return r.outcome + " (" + r.note + ")"
	}
	return r.outcome
}

// tally is one line: how many cells came out how.
func (t *table) tally() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := map[string]int{}
	for _, r := range t.results {
		for _, r := range r {
			n[r.outcome]++
		}
	}
	var parts []string
	for _, o := range []string{"PASS", "FAIL", "SKIP"} {
		if n[o] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[o], o))
		}
	}
	return strings.Join(parts, ", ")
}

// write puts the table into a document, in the place of the former one.
func (t *table) write(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines := strings.Split(string(b), "\n")
	from, to := slices.Index(lines, tableBegins), slices.Index(lines, tableEnds)
	if from < 0 || to < from {
		return fmt.Errorf("%s has no lines %s and %s", file, tableBegins, tableEnds)
	}
	lines = slices.Replace(lines, from+1, to, "", strings.TrimSpace(t.markdown()), "")
	return os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o644)
}
