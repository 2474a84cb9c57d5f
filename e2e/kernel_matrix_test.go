//go:build linux

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/e2e/guest"
)

// matrix collects the outcome of every cell: rows are tools with their
// parameters, columns are kernels and roles.
type matrix struct {
	mu     sync.Mutex
	guests []*guest.Guest
	us     string // our version
	result map[matrixKey]result
}

type matrixKey struct {
	line    string
	weServe bool
	cell    scenario
}

type result struct {
	outcome string
	faults  int // attempts that a fault of the kernel spoilt
	took    time.Duration
}

const faultNote = "repeated, after an attempt that a fault of the kernel or of its program spoilt (e2e/README.md)"

func (r result) mark() string {
	if r.faults > 0 {
		return r.outcome + "*"
	}
	return r.outcome
}

func newMatrix(guests []*guest.Guest, us string) *matrix {
	return &matrix{guests: guests, us: us, result: map[matrixKey]result{}}
}

func (m *matrix) set(line string, weServe bool, c scenario, r result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.result[matrixKey{line, weServe, c}] = r
}

// columns calls f for every column, in order.
func (m *matrix) columns(f func(line string, weServe bool)) {
	for _, g := range m.guests {
		f(g.Line, true)
		f(g.Line, false)
	}
}

func (m *matrix) get(line string, weServe bool, c scenario) result {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.result[matrixKey{line, weServe, c}]; ok {
		return r
	}
	if !c.playable(weServe) {
		return result{outcome: "–"}
	}
	return result{outcome: "SKIP"} // its test did not run
}

// group is a block of rows: the cells of one operation.
type group struct {
	title string
	cells []scenario
}

func groups() []group {
	var gs []group
	for _, c := range slices.Concat(cleanCells(), lossCells(), daemonCells()) {
		at := slices.IndexFunc(gs, func(g group) bool { return g.title == c.title() })
		if at < 0 {
			at = len(gs)
			gs = append(gs, group{title: c.title()})
		}
		gs[at].cells = append(gs[at].cells, c)
	}
	return gs
}

// rowName describes a cell for people.
func (c cell) rowName() string {
	var s []string
	if c.lossy || c.manager != "" {
		s = append(s, c.op)
	}
	if c.size > 0 {
		s = append(s, sizeName(c.size))
	}
	if c.op != "pingpong" || c.over != "UD" {
		s = append(s, fmt.Sprintf("MTU %d", c.mtu))
	}
	if c.ipv6 {
		s = append(s, "IPv6")
	} else {
		s = append(s, "IPv4")
	}
	if c.qps > 1 {
		s = append(s, fmt.Sprintf("%d QPs", c.qps))
	}
	return strings.Join(append(s, fmt.Sprintf("×%d", c.iters)), ", ")
}

func columnName(line string, weServe bool) string {
	if weServe {
		return line + " → us"
	}
	return "us → " + line
}

// text is the matrix for a terminal; "a → b" means a is the client of b.
func (m *matrix) text() string {
	var b strings.Builder
	count := map[string]int{}
	for _, g := range groups() {
		fmt.Fprintf(&b, "\n%-44s", g.title)
		m.columns(func(line string, weServe bool) { fmt.Fprintf(&b, "  %-12s", columnName(line, weServe)) })
		b.WriteByte('\n')
		for _, c := range g.cells {
			fmt.Fprintf(&b, "  %-42s", c.rowName())
			m.columns(func(line string, weServe bool) {
				r := m.get(line, weServe, c)
				count[r.outcome]++
				fmt.Fprintf(&b, "  %-5s%5.1f s", r.mark(), r.took.Seconds())
			})
			b.WriteByte('\n')
		}
	}
	fmt.Fprintf(&b, "\n%d cells PASS, %d FAIL, %d SKIP; * = %s\n", count["PASS"], count["FAIL"], count["SKIP"], faultNote)
	return b.String()
}

// markdown is the matrix for a document.
func (m *matrix) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Run on %s.\n\n- us: %s\n", time.Now().UTC().Format(time.DateOnly), m.us)
	for _, g := range m.guests {
		fmt.Fprintf(&b, "- %s: %s; tools of %s (%s)\n", g.Line, g.Image.Package, g.Image.Userland, guest.Tools())
	}
	fmt.Fprintf(&b, "\n\"a → b\": a is the client, b the server; – = there is no such role; * = %s.\n", faultNote)
	for _, g := range groups() {
		fmt.Fprintf(&b, "\n### %s\n\n| |", g.title)
		m.columns(func(line string, weServe bool) { fmt.Fprintf(&b, " %s |", columnName(line, weServe)) })
		fmt.Fprintf(&b, "\n| --- |%s\n", strings.Repeat(" --- |", 2*len(m.guests)))
		for _, c := range g.cells {
			fmt.Fprintf(&b, "| %s |", c.rowName())
			m.columns(func(line string, weServe bool) {
				fmt.Fprintf(&b, " %s |", m.get(line, weServe, c).mark())
			})
			b.WriteByte('\n')
		}
	}
	return b.String()
}
