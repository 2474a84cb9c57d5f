// Package web has the page of the daemon: plain HTML, CSS and JavaScript,
// inside the program. It needs no other host, and its policy allows none. The
// tables are made here, so they are there without JavaScript, too.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

//go:embed index.html table.html style.css app.js icon.svg
var files embed.FS

// templates are parsed when the page is first asked for.
var templates = sync.OnceValue(func() *template.Template { return template.Must(template.ParseFS(files, "index.html", "table.html")) })

// Table is a list as the page shows it.
type Table struct {
	Name, Total string
	Pages       bool   // it has a pager
	Where       string // 1–50 of 1002
	Back, Next  string // links; "" where there is no such page
	Columns     []Column
	Rows        [][]Cell
	None        string // what is there instead of rows
}

// Column is the head of one. Without a link the table cannot be sorted by it.
type Column struct {
	Title, Means string
	Number       bool
	Link         string
	Sorted       string // ascending, descending, or ""
}

// Cell is a text, or a time in the form of RFC 3339 with a text.
type Cell struct {
	Text, Time string
	Class      string
	Code       bool
	Tag, Tone  string // before the text
}

// Page is what the page shows at first.
type Page struct {
	QPs, Regions, Connections, Leases, Peers Table

	Find, State string // what of the queue pairs is shown
	States      []string
	Others      []Parameter // that a search keeps
}

// Parameter is one of the page's address.
type Parameter struct{ Name, Value string }

// Write writes the page. Every text is escaped.
func (p *Page) Write(w io.Writer) error { return templates().ExecuteTemplate(w, "index.html", p) }

// Write writes the table alone, as it is in the page.
func (t *Table) Write(w io.Writer) error { return templates().ExecuteTemplate(w, "list", t) }

// Policy is the Content-Security-Policy of the page: nothing from elsewhere, no
// script or style inside of the page, and no frame around it.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

var names = map[string]struct{ file, kind string }{
	"/style.css": {"style.css", "text/css; charset=utf-8"},
	"/app.js":    {"app.js", "text/javascript; charset=utf-8"},
	"/icon.svg":  {"icon.svg", "image/svg+xml"},
}

// Paths returns the paths of what the page needs.
func Paths() (list []string) {
	for p := range names {
		list = append(list, p)
	}
	return list
}

// file is what is sent.
type file struct {
	kind, tag   string
	plain, gzip []byte
}

// load reads and compresses the files when the page is first asked for: most
// daemons are never looked at.
var load = sync.OnceValue(func() map[string]file {
	all := map[string]file{}
	for path, n := range names {
		b, err := files.ReadFile(n.file)
		if err != nil {
			panic(err) // they are in the program
		}
		var z bytes.Buffer
		w, _ := gzip.NewWriterLevel(&z, gzip.BestCompression) // the level is right
		w.Write(b)
		w.Close()
		sum := sha256.Sum256(b)
		all[path] = file{n.kind, `"` + hex.EncodeToString(sum[:8]) + `"`, b, z.Bytes()}
	}
	return all
})

// Handler serves the files.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := load()[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", f.kind)
		h.Set("Cache-Control", "no-cache") // ask again, by the tag
		h.Set("ETag", f.tag)
		h.Set("Vary", "Accept-Encoding")
		if r.Header.Get("If-None-Match") == f.tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		b := f.plain
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
			b = f.gzip
		}
		h.Set("Content-Length", strconv.Itoa(len(b)))
		w.Write(b)
	})
}
