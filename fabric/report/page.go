package report

import (
	"fmt"
	"html"
	"io"
	"strings"
)

// page is a page of HTML that is being written.
type page struct {
	b strings.Builder
}

const style = `:root{color-scheme:light dark;--text:#1f2328;--soft:#57606a;--line:#d0d7de;--back:#fff;--panel:#f6f8fa;--link:#0969da}
@media(prefers-color-scheme:dark){:root{--text:#e6edf3;--soft:#9198a1;--line:#30363d;--back:#0d1117;--panel:#161b22;--link:#58a6ff}}
body{font:16px/1.5 sans-serif;color:var(--text);background:var(--back);max-width:60rem;margin:2rem auto;padding:0 1rem}
h1,h2{line-height:1.25}h2{margin-top:2.5rem;border-bottom:1px solid var(--line);padding-bottom:.3rem}
a{color:var(--link)}p.soft,figcaption{color:var(--soft)}
pre{background:var(--panel);padding:1rem;overflow:auto;border-radius:6px}
.wide{overflow-x:auto}table{border-collapse:collapse;margin:1rem 0}caption{text-align:left;color:var(--soft);padding-bottom:.3rem}
th,td{border:1px solid var(--line);padding:.25rem .6rem;text-align:left;vertical-align:top}td.n{text-align:right;font-variant-numeric:tabular-nums}
thead th{background:var(--panel)}figure{margin:1.5rem 0}figure svg{width:100%;height:auto;border:1px solid var(--line);border-radius:6px}
li{margin:.4rem 0}.wrong{border-left:4px solid #cf222e;padding-left:1rem}`

// newPage begins a page. title is a text, as all arguments here are.
func newPage(title string) *page {
	p := new(page)
	p.raw("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n")
	p.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n")
	p.raw("<title>" + html.EscapeString(title) + "</title>\n<style>\n" + style + "\n</style>\n</head>\n<body>\n<main>\n<h1>" + html.EscapeString(title) + "</h1>\n")
	return p
}

func (p *page) raw(text string) { p.b.WriteString(text) }

func (p *page) element(tag, text string) {
	name, _, _ := strings.Cut(tag, " ")
	p.raw("<" + tag + ">" + html.EscapeString(text) + "</" + name + ">\n")
}

func (p *page) heading(text string) { p.element("h2", text) }

// link writes a link to a file beside the page.
func (p *page) link(file string) string {
	return `<a href="` + html.EscapeString(file) + `">` + html.EscapeString(file) + `</a>`
}

// table writes a table, whose first column has the names of its rows. Cells
// that are numbers are set to the right.
func (p *page) table(caption string, header []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	p.raw("<div class=\"wide\"><table>\n<caption>" + html.EscapeString(caption) + "</caption>\n")
	if len(header) > 0 {
		p.raw("<thead><tr>")
		for _, h := range header {
			p.raw(`<th scope="col">` + html.EscapeString(h) + "</th>")
		}
		p.raw("</tr></thead>\n")
	}
	p.raw("<tbody>\n")
	for _, row := range rows {
		p.raw("<tr>")
		for i, cell := range row {
			text := html.EscapeString(cell)
			switch {
			case i == 0:
				p.raw(`<th scope="row">` + text + "</th>")
			case cell != "" && strings.ContainsRune("0123456789-", rune(cell[0])) && !strings.Contains(strings.TrimSuffix(cell, " %"), " "):
				p.raw(`<td class="n">` + text + "</td>")
			default:
				p.raw("<td>" + text + "</td>")
			}
		}
		p.raw("</tr>\n")
	}
	p.raw("</tbody>\n</table></div>\n")
}

// list writes a list of paragraphs.
func (p *page) list(items []string) {
	if len(items) == 0 {
		return
	}
	p.raw("<ul>\n")
	for _, text := range items {
		p.element("li", text)
	}
	p.raw("</ul>\n")
}

// figure writes a drawing, whose title is its name for those who do not see it,
// with a caption and perhaps the file of its numbers.
func (p *page) figure(draw func(io.Writer) error, caption, file string) {
	var svg strings.Builder
	if draw(&svg) != nil {
		return // there is nothing to draw
	}
	p.raw("<figure>\n" + svg.String() + "<figcaption>" + html.EscapeString(caption))
	if file != "" {
		p.raw(" Numbers: " + p.link(file) + ".")
	}
	p.raw("</figcaption>\n</figure>\n")
}

// scenario shows the text of a scenario.
func (p *page) scenario(text []byte) {
	p.heading("What was asked")
	p.raw("<details>\n<summary>The scenario</summary>\n<pre>" + html.EscapeString(string(text)) + "</pre>\n</details>\n")
}

// writeTo ends the page.
func (p *page) writeTo(w io.Writer) error {
	p.raw("</main>\n</body>\n</html>\n")
	_, err := io.WriteString(w, p.b.String())
	return err
}

func share(part, of uint64) string {
	if of == 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.3g %%", 100*float64(part)/float64(of))
}
