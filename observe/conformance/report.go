package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/observe/conformance/rules"
)

// Report is what came of all rules.
type Report struct {
	Target  Target        `json:"target"`
	Local   netip.Addr    `json:"local"`
	Started time.Time     `json:"started"`
	Elapsed time.Duration `json:"elapsed_ns"`
	Results []*Result     `json:"results"`
}

// Count returns how many rules have a verdict.
func (r *Report) Count(v Verdict) int {
	n := 0
	for _, res := range r.Results {
		if res.Verdict == v {
			n++
		}
	}
	return n
}

// Summary counts the verdicts.
func (r *Report) Summary() string {
	text := fmt.Sprintf("%d rules: %d pass, %d fail, %d deviations known, %d not tested",
		len(r.Results), r.Count(Pass), r.Count(Fail), r.Count(Known), r.Count(NotTested))
	later := 0
	for _, res := range r.Results {
		if res.Verdict == Pass && len(res.Before) > 0 {
			later++
		}
	}
	if later > 0 {
		text += fmt.Sprintf("; %d of those that pass failed at first", later)
	}
	return text
}

// Peer says what was tested.
func (r *Report) Peer() string {
	return fmt.Sprintf("%s (%s, %v)", r.Target.Name(), r.Target.Device, r.Target.Addr)
}

// Text is the line of a rule in a terminal, with what went wrong below it.
func (r *Result) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-15s %-30s %s\n", r.Verdict, r.ID, r.Rule.Text)
	for _, l := range r.details() {
		fmt.Fprintf(&b, "%15s %-9s %s\n", "", l[0], l[1])
	}
	return b.String()
}

// details are the lines that say what was not as it should be.
func (r *Result) details() (lines [][2]string) {
	for _, b := range r.Before {
		lines = append(lines, [2]string{"at first", b})
	}
	for _, l := range [][2]string{{"why", r.Why}, {"sent", r.Sent}, {"expected", r.Expected}, {"came", r.Came}, {"capture", r.Capture}} {
		if l[1] != "" && (r.Verdict != NotTested || l[0] == "why") {
			lines = append(lines, l)
		}
	}
	return lines
}

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteTo writes the report in the form of Markdown.
func (r *Report) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "# RoCEv2 conformance of %s\n\n", cell(r.Target.Name()))
	fmt.Fprintf(&b, "%s.\n\n", r.Summary())
	fmt.Fprintf(&b, "- device: %s, %v, path MTU up to %d\n- services: %s\n- from: %v, %s\n",
		cell(r.Target.Device), r.Target.Addr, r.Target.MTU, cell(strings.Join(r.Target.Services, ", ")), r.Local, r.Started.UTC().Format(time.DateOnly))
	chapter := ""
	for _, res := range r.Results {
		if res.Chapter != chapter {
			chapter = res.Chapter
			fmt.Fprintf(&b, "\n## %s\n\n| rule | | verdict | standard |\n| --- | --- | --- | --- |\n", chapter)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s, %s |\n", res.ID, cell(res.Rule.Text), res.verdictLink(), res.Severity, res.Spec)
	}
	r.writeFindings(&b)
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

// verdictLink is the verdict, with a link to what went wrong.
func (r *Result) verdictLink() string {
	if r.Verdict == Pass && len(r.Before) == 0 {
		return "pass"
	}
	return fmt.Sprintf("[%v](#%s)", r.Verdict, r.anchor())
}

func (r *Result) anchor() string { return strings.ReplaceAll(r.ID, "/", "") }

// writeFindings writes what was not as it should be.
func (r *Report) writeFindings(b *strings.Builder) {
	for _, v := range []struct {
		verdict Verdict
		title   string
	}{{Fail, "Failures"}, {Known, "Known deviations"}, {NotTested, "Not tested"}, {Pass, "Passed, but not at first"}} {
		title := fmt.Sprintf("\n## %s\n", v.title)
		for _, res := range r.Results {
			if res.Verdict != v.verdict || v.verdict == Pass && len(res.Before) == 0 {
				continue
			}
			b.WriteString(title)
			title = ""
			fmt.Fprintf(b, "\n### %s\n\n%s.\n\n", res.ID, res.Rule.Text)
			for _, l := range res.details() {
				text := cell(l[1])
				if l[0] == "capture" {
					text = fmt.Sprintf("[%s](%s)", text, text)
				}
				fmt.Fprintf(b, "- %s: %s\n", l[0], text)
			}
			if len(res.Steps) > 0 {
				fmt.Fprintf(b, "\n```text\n%s\n```\n", strings.ReplaceAll(strings.Join(res.Steps, "\n"), "```", "'''"))
			}
		}
	}
}

// cell makes text that a peer may have chosen fit for a table: it is no markup,
// and no link.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;", "`", "'", "](", "]&#40;").Replace(s)
}

// WriteDir writes report.html, report.md, report.json, and a capture for each
// rule that has not passed into a directory, which it makes. Captures of an
// earlier report there are removed.
func (r *Report) WriteDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, rule := range rules.All() {
		old := Result{Rule: rule}
		if err := os.Remove(filepath.Join(dir, old.fileName(captureExt))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, res := range r.Results {
		if len(res.capture) == 0 {
			continue
		}
		res.Capture = res.fileName(captureExt)
		if err := os.WriteFile(filepath.Join(dir, res.Capture), res.capture, 0o644); err != nil {
			return err
		}
	}
	for _, file := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{"report.json", r.WriteJSON},
		{"report.md", func(w io.Writer) error { _, err := r.WriteTo(w); return err }},
		{"report.html", r.WriteHTML},
	} {
		var b bytes.Buffer
		if err := file.write(&b); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file.name), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

const captureExt = ".pcapng"
