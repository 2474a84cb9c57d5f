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
	columns []kind
	titles  map[kind]string
	results map[string]map[kind]result
	details map[string]string // of a package
}

type result struct{ outcome, note string }

func newTable(columns []kind, kernel string) *table {
	return &table{
		columns: columns, results: map[string]map[kind]result{}, details: map[string]string{},
		titles: map[kind]string{
			twoOwners: "two owners", oneOwner: "one owner",
			kernelServes: "us → " + kernel, kernelDials: kernel + " → us", kernels: "two kernels",
		},
	}
}

func (t *table) set(c *cell, k kind, r result, details string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.results[c.String()] == nil {
		t.results[c.String()] = map[kind]result{}
	}
	if c.known != "" && r.note == c.known {
		r = result{outcome: "KNOWN"}
		details = fmt.Sprintf("KNOWN: `%s` %s.", c.name, c.known)
	}
	t.results[c.String()][k] = r
	if details != "" {
		t.details[c.group] = details
	}
}

// groups are the packages in the order of the table.
func groups() (list []string) {
	for _, c := range cells() {
		if !slices.Contains(list, c.group) {
			list = append(list, c.group)
		}
	}
	return list
}

// whole reports whether all cells of a package have run.
func (t *table) whole(group string) bool {
	for _, c := range cells() {
		for _, k := range t.columns {
			if c.group == group && c.has(k) && t.results[c.String()][k].outcome == "" {
				return false
			}
		}
	}
	return true
}

// section is the part of a package. The caller holds the lock.
func (t *table) section(group string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\nVersion %s, run on %s.\n\n|", group, version(packageOf(group)), time.Now().UTC().Format("2006-01-02"))
	for _, k := range t.columns {
		fmt.Fprintf(&b, " | %s", t.titles[k])
	}
	fmt.Fprintf(&b, " |\n|%s\n", strings.Repeat(" --- |", len(t.columns)+1))
	for _, c := range cells() {
		if c.group != group || t.results[c.String()] == nil {
			continue
		}
		fmt.Fprintf(&b, "| %s |", c.name)
		for _, k := range t.columns {
			fmt.Fprintf(&b, " %s |", t.results[c.String()][k])
		}
		b.WriteByte('\n')
	}
	if d := t.details[group]; d != "" {
		fmt.Fprintf(&b, "\n%s\n", d)
	}
	return b.String()
}

// markdown is what has run.
func (t *table) markdown() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []string
	for _, g := range groups() {
		if s := t.section(g); strings.Count(s, "\n") > 6 {
			list = append(list, s)
		}
	}
	return strings.Join(list, "\n")
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
	for _, o := range []string{"PASS", "KNOWN", "FAIL", "SKIP"} {
		if n[o] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[o], o))
		}
	}
	return strings.Join(parts, ", ")
}

// write puts the table into a document. A package of which only some cells have
// run keeps the part that it has there.
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
	old := strings.Join(lines[from+1:to], "\n")
	lines = slices.Replace(lines, from+1, to, "", strings.TrimSpace(t.merge(old)), "")
	return os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o644)
}

// merge returns the parts of all packages: those that have run whole, and of
// the others what there is.
func (t *table) merge(old string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	had := map[string]string{}
	for _, s := range strings.Split("\n"+old, "\n### ")[1:] {
		name, _, _ := strings.Cut(s, "\n")
		had[name] = "### " + strings.TrimSpace(s) + "\n"
	}
	var list []string
	for _, g := range groups() {
		if s := had[g]; t.whole(g) {
			list = append(list, t.section(g))
		} else if s != "" {
			list = append(list, s)
		}
	}
	return strings.Join(list, "\n")
}
