package server_test

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
)

// The page has its tables without a script, in the order that its address says,
// and what peers say is text in it.
func TestPageIsMadeHere(t *testing.T) {
	t.Parallel()
	f := newFake("rping")
	d := start(t, nil, f.target())
	h := <-f.hosts
	equip(t, h.Device, 120)
	const evil = `<img src=x onerror=alert(1)>"'javascript:&amp;`
	guest, err := h.Begin(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 5})
	must(t, err)
	guest.Is(evil, 0)
	guest.End("", errors.New(evil))
	qpn := regexp.MustCompile(`<td><code>(0x[0-9a-f]{6})</code></td>`)
	numbers := func(body string) (list []string) {
		for _, m := range qpn.FindAllStringSubmatch(body, -1) {
			list = append(list, m[1])
		}
		return list
	}
	for _, path := range []string{"/?qps.sort=-qpn&qps.offset=50", "/lists/qps?qps.sort=-qpn&qps.offset=50", "/lists/qps?qps.sort=-qpn&qps.offset=50&peers.sort=-peer"} {
		code, header, body := d.ask("GET", path, "")
		list := numbers(body)
		if code != http.StatusOK || !strings.HasPrefix(header.Get("Content-Type"), "text/html") || len(list) != 50 || !slices.IsSortedFunc(list, func(a, b string) int { return strings.Compare(b, a) }) {
			t.Errorf("%s: %d, %v, %d numbers", path, code, header, len(list))
		}
		for _, want := range []string{`51–100 of 1`, `aria-sort="descending"`, `data-list="qps"`, "qps.offset=0", "qps.offset=100"} {
			if !strings.Contains(body, want) {
				t.Errorf("%s lacks %s", path, want)
			}
		}
	}
	_, _, body := d.ask("GET", "/", "")
	if strings.Contains(body, "<img src=x") || !strings.Contains(body, "&lt;img src=x onerror=alert(1)&gt;") {
		t.Error("what a peer says is not escaped")
	}
	if _, _, body := d.ask("GET", "/?qps.find="+url.QueryEscape(evil), ""); strings.Contains(body, "<img src=x") || !strings.Contains(body, "no queue pairs") {
		t.Error("what is searched for is not escaped, or found")
	}
	if _, _, body := d.ask("GET", "/lists/qps?qps.offset=9999", ""); !strings.Contains(body, "101–12") {
		t.Error("past the end is not the last page")
	}
}

// Every link of the page leads somewhere.
func TestPageLinks(t *testing.T) {
	t.Parallel()
	f := newFake("rping")
	d := start(t, nil, f.target())
	equip(t, (<-f.hosts).Device, 60)
	_, _, body := d.ask("GET", "/", "")
	links := regexp.MustCompile(`href="(/\?[^"]*)"`).FindAllStringSubmatch(body, -1)
	if len(links) < 30 {
		t.Fatalf("%d links", len(links))
	}
	for _, l := range links {
		path, _, _ := strings.Cut(strings.ReplaceAll(l[1], "&amp;", "&"), "#")
		if code, _, body := d.ask("GET", path, ""); code != http.StatusOK {
			t.Errorf("%s: %d, %s", path, code, body)
		}
	}
}

func TestPageRefuses(t *testing.T) {
	t.Parallel()
	d := start(t, nil)
	for _, path := range []string{"/?sort=qpn", "/?qps.sort=nonsense", "/?qps.sort=", "/?qps.offset=-1", "/?qps.state=x", "/?qps.sort=qpn&qps.sort=qpn", "/?regions.offset=1",
		"/?qps.find=%zz", "/lists/peers?peers.sort=nonsense", "/lists/peers?x=y", "/lists/qps?peers.offset=x"} {
		want := http.StatusBadRequest
		if path == "/?qps.sort=" || strings.HasPrefix(path, "/lists/qps") { // it says nothing, and it is another list's
			want = http.StatusOK
		}
		if code, _, body := d.ask("GET", path, ""); code != want {
			t.Errorf("%s: %d, %.200s", path, code, body)
		}
	}
	if code, _, _ := d.ask("GET", "/lists/nonsense", ""); code != http.StatusNotFound {
		t.Errorf("a list that there is not: %d", code)
	}
}

// Without the token the page has no rows, and the lists are refused.
func TestPageNeedsTheToken(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	f := newFake("rping")
	d := start(t, func(c *config.Config) { c.Admin.Token = token }, f.target())
	equip(t, (<-f.hosts).Device, 3)
	code, _, body := d.ask("GET", "/", "")
	if code != http.StatusOK || strings.Contains(body, d.addr.String()) || strings.Contains(body, "<code>0x") || !strings.Contains(body, "the token is needed") {
		t.Errorf("%d: %s", code, body)
	}
	for _, list := range []string{"qps", "regions", "connections", "leases", "peers"} {
		if code, _, body := d.ask("GET", "/lists/"+list, ""); code != http.StatusUnauthorized {
			t.Errorf("%s: %d, %s", list, code, body)
		}
	}
	if _, _, body := d.ask("GET", "/", "", "Authorization", "Bearer "+token); !strings.Contains(body, "<code>0x") {
		t.Errorf("with the token: %s", body)
	}
}
