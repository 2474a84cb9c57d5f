package server

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/web"
)

// pageList is a list of the page. Its parameters have its name and a dot before
// them in the page's address, as qps.sort=-tx_bytes.
type pageList struct {
	name       string
	parameters []string
	rows       int
	table      func(h *handlers, q url.Values, l *pageList) (web.Table, error)
}

var pageLists = []pageList{
	{"qps", []string{"sort", "offset", "find", "state"}, 50, func(h *handlers, q url.Values, l *pageList) (web.Table, error) {
		return tableOf(l, q, qpColumns, "no queue pairs", h.queuePairs)
	}},
	{"regions", []string{"sort"}, maxLimit, func(h *handlers, q url.Values, l *pageList) (web.Table, error) {
		return tableOf(l, q, regionColumns, "no regions: add a [[region]] to the configuration",
			func(own url.Values) (Page[regionInfo], error) { return paged(own, h.exports.list()) })
	}},
	{"connections", []string{"sort", "offset"}, 25, func(h *handlers, q url.Values, l *pageList) (web.Table, error) {
		return tableOf(l, q, connectionColumns, "no client is connected",
			func(own url.Values) (Page[Visit], error) { return paged(own, h.records.visits.all()) })
	}},
	{"leases", []string{"sort", "offset"}, 25, func(h *handlers, q url.Values, l *pageList) (web.Table, error) {
		return tableOf(l, q, leaseColumns, "no process shares a port", h.ratedLeases)
	}},
	{"peers", []string{"sort", "offset"}, 25, func(h *handlers, q url.Values, l *pageList) (web.Table, error) {
		return tableOf(l, q, peerColumns, "no client was here yet",
			func(own url.Values) (Page[Visit], error) { return paged(own, h.records.visits.over()) })
	}},
}

// ratedLeases is a page of the leases with their rates.
func (h *handlers) ratedLeases(q url.Values) (p Page[ratedLease], err error) {
	all := h.leases()
	rated := h.rates.of(time.Now(), all)
	plain, err := paged(q, all)
	p.Total, p.Offset = plain.Total, plain.Offset
	for i := range plain.Items {
		p.Items = append(p.Items, rated(&plain.Items[i]))
	}
	return p, err
}

// own returns the parameters of the list, as those of the JSON interface.
func (l *pageList) own(q url.Values) url.Values {
	own := url.Values{"limit": {strconv.Itoa(l.rows)}}
	for _, name := range l.parameters {
		if v := q.Get(l.name + "." + name); v != "" {
			own.Set(name, v)
		}
	}
	return own
}

// link is the address of the page with one parameter of the list changed. Where
// that changes the order, the list begins with its first page.
func (l *pageList) link(q url.Values, name, value string) string {
	to := maps.Clone(q)
	if name == "sort" {
		to.Del(l.name + ".offset")
	}
	to.Set(l.name+"."+name, value)
	return "/?" + to.Encode() + "#" + l.name
}

// tableOf makes the table of a list. A page past its end is its last one.
func tableOf[T any](l *pageList, q url.Values, columns []column[T], none string, ask func(url.Values) (Page[T], error)) (t web.Table, err error) {
	own := l.own(q)
	p, err := ask(own)
	if err == nil && len(p.Items) == 0 && p.Total > 0 {
		own.Set("offset", strconv.Itoa((p.Total-1)/l.rows*l.rows))
		p, err = ask(own)
	}
	if err != nil {
		return t, err
	}
	t = web.Table{Name: l.name, Total: strconv.Itoa(p.Total), None: none, Pages: slices.Contains(l.parameters, "offset"), Where: "none"}
	if p.Total > 0 {
		t.Where = fmt.Sprintf("%d–%d of %d", p.Offset+1, p.Offset+len(p.Items), p.Total)
	}
	if p.Offset > 0 {
		t.Back = l.link(q, "offset", strconv.Itoa(max(p.Offset-l.rows, 0)))
	}
	if next := p.Offset + len(p.Items); next < p.Total {
		t.Next = l.link(q, "offset", strconv.Itoa(next))
	}
	for i := range columns {
		t.Columns = append(t.Columns, columns[i].head(l, q, own.Get("sort")))
	}
	for i := range p.Items {
		var row []web.Cell
		for _, c := range columns {
			row = append(row, c.cell(&p.Items[i]))
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}

// head is the head of a column. Its link sorts by it, and the other way round
// where the list is sorted so: numbers begin with the largest.
func (c *column[T]) head(l *pageList, q url.Values, sort string) web.Column {
	w := web.Column{Title: c.title, Means: c.means, Number: c.number}
	if c.key == "" {
		return w
	}
	next := order{c.key, c.number}
	switch sort {
	case c.key:
		w.Sorted, next.down = "ascending", true
	case "-" + c.key:
		w.Sorted, next.down = "descending", false
	}
	w.Link = l.link(q, "sort", next.String())
	return w
}

// pageParameters reads the parameters of the page.
func pageParameters(r *http.Request) (url.Values, error) {
	var known []string
	for _, l := range pageLists {
		for _, name := range l.parameters {
			known = append(known, l.name+"."+name)
		}
	}
	return r.URL.Query(), knownParameters(r, "the page", known)
}

// page answers with the page. Its tables are empty for those that have not
// shown the token.
func (h *handlers) page(w http.ResponseWriter, r *http.Request) {
	q, err := pageParameters(r)
	p := web.Page{Find: q.Get("qps.find"), State: q.Get("qps.state"), States: qpStates}
	token := h.config().Admin.Token
	shown := token == "" || goodToken(r, token)
	tables := map[string]*web.Table{"qps": &p.QPs, "regions": &p.Regions, "connections": &p.Connections, "leases": &p.Leases, "peers": &p.Peers}
	for i := range pageLists {
		l := &pageLists[i]
		if err != nil {
			break
		}
		if shown {
			*tables[l.name], err = l.table(h, q, l)
		} else {
			*tables[l.name] = web.Table{Name: l.name, Columns: []web.Column{{}}, None: "the token is needed"}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if name != "qps.find" && name != "qps.state" && name != "qps.offset" {
			p.Others = append(p.Others, web.Parameter{Name: name, Value: q.Get(name)})
		}
	}
	writePage(w, err, p.Write)
}

// list answers with one table, as it is in the page.
func (h *handlers) list(l *pageList) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, err := pageParameters(r)
		var t web.Table
		if err == nil {
			t, err = l.table(h, q, l)
		}
		writePage(w, err, t.Write)
	}
}

// writePage answers with what write makes, or with why there is nothing.
func writePage(w http.ResponseWriter, err error, write func(io.Writer) error) {
	if err != nil {
		refuse(w, http.StatusBadRequest, "%s", clip(err.Error()))
		return
	}
	var b bytes.Buffer
	if err := write(&b); err != nil {
		refuse(w, http.StatusInternalServerError, "%s", clip(err.Error()))
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	_, _ = b.WriteTo(w) // the client is gone
}
