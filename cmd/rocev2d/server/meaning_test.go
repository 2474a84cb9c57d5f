package server

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/observe/metrics"
	"github.com/gosoftroce/rocev2/verbs"
)

// table returns the cells of the table under a heading of docs/operations.md.
func table(t *testing.T, heading string) (rows [][]string) {
	t.Helper()
	b, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(b), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("docs/operations.md has no %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n#")
	for line := range strings.Lines(text) {
		if cells := strings.Split(strings.TrimSpace(line), " | "); len(cells) == 3 && strings.HasPrefix(cells[0], "| `") {
			rows = append(rows, []string{strings.Trim(cells[0], "| `"), cells[1], strings.TrimSuffix(cells[2], " |")})
		}
	}
	return rows
}

// The page and the documentation explain counters in the same words, and the
// counters exist.
func TestCounterMeanings(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	var link verbs.LinkStats
	link.Each(func(name string, _ uint64) { known[name] = true })
	var qp verbs.QPStats
	qp.Each(func(name string, _ uint64) { known[name] = true })
	var guard verbs.GuardCounters
	guard.Each(func(name string, _ uint64) { known[name] = true })
	for _, before := range []string{"bad_icrc", "unknown_qpn", "wrong_source_port"} { // see verbs.Stats.Drops
		known["drop_"+before] = true
	}
	rows := table(t, "### What the counters mean")
	if len(rows) != len(CounterMeanings) {
		t.Fatalf("%d rows in the documentation, %d here", len(rows), len(CounterMeanings))
	}
	for i, m := range CounterMeanings {
		if rows[i][0] != m.Counter || rows[i][1] != m.Meaning || rows[i][2] != m.Remedy {
			t.Errorf("the documentation says %q, the page %q", rows[i], m)
		}
		if !known[m.Counter] {
			t.Errorf("there is no counter %s", m.Counter)
		}
		if strings.HasSuffix(m.Meaning, ".") || strings.HasSuffix(m.Remedy, ".") {
			t.Errorf("%s: the page adds the full stop", m.Counter)
		}
	}
}

// Every event has its words, or is none to worry about.
func TestEventMeanings(t *testing.T) {
	t.Parallel()
	seen := 0
	for e := range verbs.Event(255) {
		if regexp.MustCompile(`(?i)^event|\(`).MatchString(e.String()) || e.String() == "" {
			continue // not an event
		}
		seen++
		m, ok := eventMeanings[e]
		if !ok || !m.quiet && (m.meaning == "" || m.remedy == "") {
			t.Errorf("event %v has no words", e)
		}
	}
	if seen != len(eventMeanings) || seen < 10 {
		t.Errorf("saw %d events, %d have words", seen, len(eventMeanings))
	}
}

func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	rows := table(t, "### Metrics")
	if len(rows) != len(metrics.Known) {
		t.Fatalf("%d rows in the documentation, %d metrics", len(rows), len(metrics.Known))
	}
	for i, k := range metrics.Known {
		if rows[i][0] != "rocev2_"+k.Name+"_total" || rows[i][1] != k.From || rows[i][2] != k.Help {
			t.Errorf("the documentation says %q, the metric %+v", rows[i], k)
		}
	}
}
