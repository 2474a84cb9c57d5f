package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/lab"
	"github.com/gosoftroce/rocev2/fabric/record"
	"github.com/gosoftroce/rocev2/fabric/report"
	"github.com/gosoftroce/rocev2/fabric/sweep"
)

const scenario = `# <script>alert("a comment")</script> &amp;
name = "</title><script>alert(1)</script>"
seed = 5
[network]
topology = "leaf-spine"
leaves = 2
spines = 2
hosts_per_leaf = 4
rate = "40Gb/s"
profile = "dcqcn-paper"
alpha = -8
loss = 0.002
[adapter]
control = "dcqcn"
[[traffic]]
kind = "incast"
senders = 7
bytes = "300KB"
[[traffic]]
kind = "all-to-all"
bytes = "20KB"
op = "read"
`

func play(t *testing.T, text string, recorded bool) (*lab.Result, error) {
	t.Helper()
	s, err := lab.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s.Output.Record = recorded
	return lab.Run(t.Context(), s)
}

func reportOf(t *testing.T, r *lab.Result, text string) string {
	t.Helper()
	files := []string{"summary.json"}
	for _, table := range record.Tables() {
		files = append(files, table.Name)
	}
	var b bytes.Buffer
	if err := report.WriteRun(&b, r, []byte(text), files); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// page is what a reader of a page finds.
type page struct {
	elements map[string]int
	text     string
	links    []string
	levels   []string // of headings, in their order
}

// read reads a page as a strict reader does: each element that begins ends, in
// its order.
func read(t *testing.T, html string) (p page) {
	t.Helper()
	p.elements = map[string]int{}
	d := xml.NewDecoder(strings.NewReader(html))
	d.Strict = true
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return p
		}
		if err != nil {
			t.Fatalf("the page is not whole: %v", err)
		}
		switch e := tok.(type) {
		case xml.StartElement:
			p.elements[e.Name.Local]++
			if len(e.Name.Local) == 2 && e.Name.Local[0] == 'h' && e.Name.Local != "hr" {
				p.levels = append(p.levels, e.Name.Local)
			}
			for _, a := range e.Attr {
				if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "src" || a.Name.Local == "href" && strings.Contains(a.Value, ":") {
					t.Errorf("<%s %s=%q>", e.Name.Local, a.Name.Local, a.Value)
				}
				if a.Name.Local == "href" {
					p.links = append(p.links, a.Value)
				}
			}
		case xml.CharData:
			p.text += string(e)
		}
	}
}

// A report is a whole page that needs nothing else. Texts of a scenario are
// shown, and are nothing but texts; each drawing has a name.
func TestRunReport(t *testing.T) {
	t.Parallel()
	r, err := play(t, scenario, true)
	if err != nil {
		t.Fatal(err)
	}
	html := reportOf(t, r, scenario)
	p := read(t, html)
	if p.elements["script"]+p.elements["img"]+p.elements["link"]+p.elements["iframe"] > 0 || regexp.MustCompile(`url\(|@import|https?://`).MatchString(strings.ReplaceAll(html, `xmlns="http://www.w3.org/2000/svg"`, "")) {
		t.Errorf("the page loads something: %v", p.elements)
	}
	if n := p.elements["svg"]; n < 5 || p.elements["figure"] != n || p.elements["figcaption"] != n || strings.Count(html, `role="img"`) != n || p.elements["title"] != n+1 {
		t.Errorf("drawings without a name or a caption: %v", p.elements)
	}
	for _, want := range []string{scenario[:40], "</title><script>alert(1)</script>", "cables lose packets at random", "pause frames", "paused for longest: by s", "Flows took", "packets sent again", "its host was paused for ", "What to look at", "queues of switches", "cables in use"} {
		if !strings.Contains(p.text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	for _, want := range []string{"flows.csv", "pauses.csv", "summary.json"} {
		if !slices.Contains(p.links, want) {
			t.Errorf("the page has no link to %s", want)
		}
	}
	if p.levels[0] != "h1" || slices.Contains(p.levels[1:], "h1") || slices.Contains(p.levels, "h3") || !strings.Contains(html, `<html lang="en">`) {
		t.Errorf("headings %v", p.levels)
	}
	again, err := play(t, strings.Replace(scenario, "seed = 5", "seed = 5\ncores = 3", 1), true)
	if err != nil {
		t.Fatal(err)
	}
	if reportOf(t, again, scenario) != html {
		t.Error("on three cores the report is another one")
	}
}

// Hints name what has happened, and where nothing has, say so.
func TestHints(t *testing.T) {
	t.Parallel()
	quiet := "[network]\ntopology = \"star\"\nhosts = 3\n[[traffic]]\nkind = \"flow\"\nto = 1\nbytes = \"4KB\"\n"
	for _, c := range []struct {
		text  string
		early bool
		want  []string
	}{
		{quiet, false, []string{"Nothing: no packet was dropped"}},
		{quiet + "[[failure]]\ncable = 0\nat = \"1us\"\n", false, []string{"have failed: their queue pairs", "a cable was down", "Most of them, ", " at h0.", "Local ACK timeouts"}},
		{"limit = \"20us\"\n" + quiet + "[[traffic]]\nkind = \"incast\"\nsenders = 2\nbytes = \"9MB\"\n", true, []string{"2 flows have not completed. Of the first, h1 to h0: "}},
		{textOf(t, "deadlock"), false, []string{"Deadlock: since"}},
		{"until = \"50us\"\n" + quiet + "[[failure]]\nkind = \"pause-storm\"\nnode = \"h1\"\nat = \"1us\"\n", false, []string{"s0.1 was paused for longest: by h1", "asks for that itself"}},
		{quiet + "[[failure]]\nkind = \"host\"\nnode = \"h1\"\nat = \"0us\"\nuntil = \"5us\"\n", false, []string{"or a host had stopped"}},
		{textOf(t, "unfairness"), false, []string{"do not share fairly", "a port between switches", "Cables that were in use for 90 % of the run or more: s0.0."}},
	} {
		r, err := play(t, c.text, true)
		if (err != nil) != c.early {
			t.Fatal(err)
		}
		got := strings.Join(report.Hints(r), "\n")
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s\nhints:\n%s\nnone says %q", c.text, got, want)
			}
		}
		if p := read(t, reportOf(t, r, c.text)); c.early && !strings.Contains(p.text, "The run has ended early") {
			t.Error("the page does not say that the run has ended early")
		}
		r.Ports, r.Pauses, r.Samples.Series = nil, nil, r.Samples.Series[:2]
		read(t, reportOf(t, r, c.text)) // without a record
	}
}

func textOf(t *testing.T, name string) string {
	t.Helper()
	text, err := lab.Text(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The report of many runs has the table that the command prints, the comparison
// and a drawing of each measure.
func TestSweepReport(t *testing.T) {
	t.Parallel()
	set, err := sweep.ParseSetting("adapter.recovery=selective,go-back-n")
	if err != nil {
		t.Fatal(err)
	}
	p := &sweep.Plan{Name: "<b>", Text: []byte(scenario), Settings: []sweep.Setting{set}, Seeds: []uint64{1, 2, 3, 4, 5, 6}}
	var records []*sweep.Record
	if err := sweep.Play(t.Context(), p, p.Runs(1, 1), 2, func(r *sweep.Record) error { records = append(records, r); return nil }); err != nil {
		t.Fatal(err)
	}
	write := func(records []*sweep.Record) string {
		var b bytes.Buffer
		if err := report.WriteSweep(&b, p.Name, p.Text, records, []string{"runs.jsonl"}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	html := write(records)
	found := read(t, html)
	groups, _ := sweep.Compare(records)
	if found.elements["svg"] != len(groups[0].Measures) || found.elements["table"] != 3 || found.elements["script"] > 0 {
		t.Errorf("%v, of %d measures", found.elements, len(groups[0].Measures))
	}
	for _, want := range []string{"adapter.recovery=go-back-n / adapter.recovery=selective: 6 pairs", "slowdown, p99", "<b>: what many runs", "12 of 12 runs", groups[0].Measures[0].Interval()} {
		if !strings.Contains(found.text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	slices.Reverse(records)
	if write(records) != html {
		t.Error("in another order the runs have another report")
	}
	records[0] = &sweep.Record{Run: records[0].Run, Of: 12, Seed: records[0].Seed, Settings: records[0].Settings, Error: "<i>no</i>"}
	if found := read(t, write(records)); !strings.Contains(found.text, "not played: <i>no</i>") {
		t.Error("a run that was not played is not named")
	}
	read(t, write(records[:1]))
	read(t, write(nil))
	var many []*sweep.Record
	for i := range 100 {
		many = append(many, &sweep.Record{Run: i, Of: 100, Settings: map[string]string{"seed": strconv.Itoa(1000 + i)}, Result: &lab.Summary{Completed: 1, LastUs: float64(i + 1)}})
	}
	if found := read(t, write(many)); found.elements["table"] != 64+63 || found.elements["svg"] != 1 || !strings.Contains(found.text, "The first 64 of 100 combinations") {
		t.Errorf("of 100 combinations: %v", found.elements)
	}
}
