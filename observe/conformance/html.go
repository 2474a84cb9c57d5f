package conformance

import (
	"fmt"
	"html"
	"io"
	"strings"
	"time"
)

// htmlHead needs no other file and no script.
const htmlHead = `<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>RoCEv2 conformance of %[1]s</title>
<style>
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100%% }
th, td { text-align: left; vertical-align: top; padding: .25rem .6rem; border-bottom: 1px solid #8884 }
td:first-child, td:nth-child(2) { white-space: nowrap }
pre { overflow-x: auto; padding: .6rem; background: #8882 }
dt { font-weight: 600 } dd { overflow-wrap: anywhere }
.pass { color: light-dark(#176b2c, #6fd08c) } .fail { color: light-dark(#b3261e, #ff8a80); font-weight: 700 }
.known { color: light-dark(#8a5a00, #ffca5f) } .not { color: #888 }
</style>
<h1>RoCEv2 conformance of %[1]s</h1>
`

// htmlClass names the style of a verdict.
var htmlClass = [...]string{NotTested: "not", Pass: "pass", Fail: "fail", Known: "known"}

// WriteHTML writes the report as a page that needs no other file. Captures are
// links beside it.
func (r *Report) WriteHTML(w io.Writer) error {
	var b strings.Builder
	text := html.EscapeString
	fmt.Fprintf(&b, htmlHead, text(r.Target.Name()))
	fmt.Fprintf(&b, "<p><strong>%s.</strong>\n", r.Summary())
	fmt.Fprintf(&b, "<p>Device %s, %v, path MTU up to %d; services: %s. From %v, %s.\n", text(r.Target.Device), r.Target.Addr, r.Target.MTU,
		text(strings.Join(r.Target.Services, ", ")), r.Local, r.Started.UTC().Format(time.DateOnly))
	chapter := ""
	for _, res := range r.Results {
		if res.Chapter != chapter {
			if chapter != "" {
				b.WriteString("</table>\n")
			}
			chapter = res.Chapter
			fmt.Fprintf(&b, "<h2>%s</h2>\n<table>\n<tr><th>verdict<th>rule<th><th>standard\n", text(chapter))
		}
		fmt.Fprintf(&b, "<tr><td class=\"%s\">%v<td><code>%s</code><td>%s<td>%v, %s\n",
			htmlClass[res.Verdict], res.Verdict, text(res.ID), res.htmlText(), res.Severity, text(res.Spec))
	}
	if chapter != "" {
		b.WriteString("</table>\n")
	}
	b.WriteString("</html>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// htmlText is what the rule asks for, and below it, folded unless it is a
// failure, what went wrong.
func (r *Result) htmlText() string {
	details := r.details()
	if len(details) == 0 {
		return html.EscapeString(r.Rule.Text)
	}
	var b strings.Builder
	open := ""
	if r.Verdict == Fail {
		open = " open"
	}
	fmt.Fprintf(&b, "<details%s><summary>%s</summary>\n<dl>\n", open, html.EscapeString(r.Rule.Text))
	for _, l := range details {
		text := html.EscapeString(l[1])
		if l[0] == "capture" {
			text = fmt.Sprintf("<a href=\"%[1]s\">%[1]s</a>", text)
		}
		fmt.Fprintf(&b, "<dt>%s<dd>%s\n", l[0], text)
	}
	b.WriteString("</dl>\n")
	if len(r.Steps) > 0 {
		fmt.Fprintf(&b, "<pre>%s</pre>\n", html.EscapeString(strings.Join(r.Steps, "\n")))
	}
	b.WriteString("</details>")
	return b.String()
}
