//go:build unix

package server_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server"
	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/verbs"
)

// screenshots is where the pictures of docs come from:
//
//	go test ./cmd/rocev2d/server -run TestPage -screenshots ../../../docs
var screenshots = flag.String("screenshots", "", "directory for pictures of the page")

// busy has queue pairs write to each other until the context ends.
func busy(ctx context.Context, t testing.TB, from, to *verbs.Device) *sync.WaitGroup {
	t.Helper()
	a, b := equip(t, from, 1)[0], equip(t, to, 1)[0]
	must(t, a.Connect(ctx, b.Endpoint()))
	must(t, b.Connect(ctx, a.Endpoint()))
	cq := a.Config().SendCQ
	var wg sync.WaitGroup
	wg.Go(func() {
		var wc [1]verbs.WC
		for ctx.Err() == nil {
			if a.PostSend(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, Signaled: true}) != nil { // of no bytes: no key is needed
				return
			}
			if _, err := cq.Wait(ctx, wc[:]); err != nil {
				return
			}
		}
	})
	return &wg
}

// crowd is a daemon with something to see.
func crowd(t *testing.T, qps int, change func(*config.Config)) *daemon {
	t.Helper()
	f, g := newFake("rping"), newFake("perftest")
	second := loopback()
	d := start(t, func(c *config.Config) {
		c.Devices = append(c.Devices, config.Device{Address: second.String()})
		if change != nil {
			change(c)
		}
	}, f.target(), g.target())
	var hosts []*server.Host
	for range 2 {
		hosts = append(hosts, <-f.hosts)
	}
	if hosts[0].Device.Addr() == second {
		hosts[0], hosts[1] = hosts[1], hosts[0]
	}
	h := <-g.hosts
	a, b := equip(t, hosts[0].Device, qps/2), equip(t, hosts[1].Device, qps-qps/2)
	for i := range a {
		must(t, a[i].Connect(t.Context(), b[i].Endpoint()))
		must(t, b[i].Connect(t.Context(), a[i].Endpoint()))
	}
	ctx, cancel := context.WithCancel(t.Context())
	wg := busy(ctx, t, hosts[0].Device, hosts[1].Device)
	t.Cleanup(func() { cancel(); wg.Wait() })
	for i := range 40 {
		guest, err := h.Begin(&net.TCPAddr{IP: net.IPv4(192, 0, 2, byte(10+i)), Port: 40000 + i})
		must(t, err)
		switch {
		case i < 5 && i < len(a):
			guest.Is("rping", uint32(a[i].QPN()))
			t.Cleanup(func() { guest.End("", nil) })
		case i%9 == 8:
			guest.Is("perftest write_bw", 0)
			guest.End("", errors.New("write of 65536 bytes: completion status RETRY_EXC_ERR after 712 completed"))
		default:
			guest.Is("perftest write_bw", 0)
			guest.End(fmt.Sprintf("5000 × 64 KiB, %.2f Gb/s", 21.5+float64(i%7)/5), nil)
		}
	}
	h.Refused(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 99), Port: 1}, errors.New("the peer gave no GID: start it with a GID index (-g or -x)"))
	// What a peer says is text, whatever it says.
	h.Refused(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 66), Port: 1}, errors.New(`it sent <img src=x onerror="document.title='broken'">`))
	return d
}

// The page shows all there is, in a real browser, without an error in its
// console and without asking another host.
func TestPage(t *testing.T) {
	b := newBrowser(t)
	const total = 1000
	d := crowd(t, total, nil)
	dir := *screenshots
	if dir == "" {
		dir = t.TempDir()
	}
	for _, scheme := range []string{"light", "dark"} {
		b.theme(scheme, 1200, 1120)
		var paints []float64
		for range 5 {
			b.open(d.url + "/")
			b.until(`document.querySelectorAll('#qps-rows tr').length === 50 && document.querySelectorAll('#cards .card').length === 2`)
			b.until(`performance.getEntriesByName('first-contentful-paint').length > 0`)
			paints = append(paints, b.eval(`performance.getEntriesByName('first-contentful-paint')[0].startTime`).(float64))
		}
		slices.Sort(paints)
		t.Logf("report: first paint of the page (%s) with %d queue pairs: median %.0f ms of 5", scheme, total+2, paints[2])
		bytes := b.eval(`performance.getEntriesByType('resource').filter((e) => !e.name.includes('/api/')).reduce((n, e) => n + e.encodedBodySize, 0)`).(float64)
		if bytes > 64<<10 {
			t.Errorf("the page takes %.0f bytes", bytes)
		}
		// Three rates make a line that can be seen.
		b.until(`document.querySelector('#plots polyline').getAttribute('points').split(' ').length > 3`)
		b.screenshot(dir, "page-"+scheme+".png")
	}
	text := b.eval(`document.body.innerText`).(string)
	for _, want := range []string{d.addr.String(), "PORT_ACTIVE", "1–50 of 1002", "RTS", "sent", "serving"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	b.theme("light", 1280, 6000) // all sections are in view
	b.until(`document.querySelectorAll('#connections-rows tr').length === 5 && document.querySelectorAll('#errors-rows li').length >= 3`)
	text = b.eval(`document.body.innerText`).(string)
	for _, want := range []string{"192.0.2.10", "Gb/s", "ib_rping", "does not answer any more", "start it with -g", `<img src=x onerror=`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	b.paging()
	if title := b.eval(`document.title`); title == "broken" || b.eval(`document.querySelectorAll('#errors-rows img').length`) != 0.0 {
		t.Error("text of a peer became part of the page")
	}
	if p := b.problems(); len(p) > 0 {
		t.Errorf("the console: %s", p)
	}
	if n := b.eval(`performance.getEntriesByType('resource').filter((e) => !e.name.startsWith(location.origin)).length`); n != 0.0 {
		t.Errorf("%v resources of other hosts", n)
	}
}

// paging goes through the list of queue pairs and searches it.
func (b *browser) paging() {
	b.t.Helper()
	b.eval(`document.querySelector('#qps-pager a:last-child').click()`)
	b.until(`document.querySelector('#qps-pager .where').textContent === '51–100 of 1002'`)
	first := b.eval(`document.querySelector('#qps-rows code').textContent`).(string)
	b.eval(`{ const f = document.getElementById('qps-find'); f.value = '` + first + `'; f.dispatchEvent(new Event('input')); }`)
	b.until(`[...document.querySelectorAll('#qps-rows tr')].length <= 2 && document.querySelector('#qps-rows').innerText.includes('` + first + `')`)
	b.eval(`{ const f = document.getElementById('qps-find'); f.value = 'no such thing'; f.dispatchEvent(new Event('input')); }`)
	b.until(`document.querySelector('#qps-rows').innerText.includes('no queue pairs')`)
}

// Lists are sorted by clicks on their heads, without leaving the page, and the
// address of the page keeps that. They stay so when they are loaded again.
func TestPageSorts(t *testing.T) {
	b := newBrowser(t)
	d := crowd(t, 120, nil)
	b.theme("light", 1280, 6000)
	b.open(d.url + "/")
	b.until(`document.querySelectorAll('#qps-rows tr').length === 50`)
	const qpns = `[...document.querySelectorAll('#qps-rows tr td:first-child')].map((e) => e.textContent)`
	head := func(title string) string {
		return `[...document.querySelectorAll('#qps-list th a')].find((a) => a.textContent === '` + title + `')`
	}
	b.eval(`window.here = 1; ` + head("QPN") + `.focus(); ` + head("QPN") + `.click()`)
	b.until(`document.querySelector('#qps-list th[aria-sort=ascending]')?.textContent === 'QPN'`)
	b.eval(head("QPN") + `.click()`)
	b.until(`document.querySelector('#qps-list th[aria-sort=descending]')?.textContent === 'QPN'`)
	if b.eval(qpns+`.every((q, i, all) => i === 0 || q < all[i - 1])`) != true {
		t.Errorf("not in order: %v", b.eval(qpns))
	}
	if got := b.eval(`document.activeElement.textContent`); got != "QPN" {
		t.Errorf("the focus is at %v", got)
	}
	b.eval(head("Sent") + `.click()`)
	b.until(`document.querySelector('#qps-rows tr td:nth-child(10)').textContent.includes('KiB') || document.querySelector('#qps-list th[aria-sort=descending]')?.textContent === 'Sent'`)
	b.eval(`document.querySelector('#peers-list th a').click()`)
	b.until(`location.search.includes('qps.sort=-tx_bytes') && location.search.includes('peers.sort=end') && location.hash === '#peers'`)
	b.until(`document.querySelector('#peers-list th[aria-sort=ascending]')?.textContent === 'When'`)
	if b.eval(`window.here`) != 1.0 {
		t.Error("the page was loaded again")
	}
	b.open(d.url + "/" + b.eval(`location.search`).(string)) // with the hash it would be no other page
	b.until(`document.querySelector('#qps-list th[aria-sort=descending]')?.textContent === 'Sent'`)
	if p := b.problems(); len(p) > 0 {
		t.Errorf("the console: %s", p)
	}
}

// Without scripts the tables are there, and links sort them and lead through
// them.
func TestPageWithoutScripts(t *testing.T) {
	b := newBrowser(t)
	d := crowd(t, 120, nil)
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	b.theme("light", 1280, 2000)
	b.open(d.url + "/")
	text := func() string { return b.eval(`document.body.innerText`).(string) }
	for _, want := range []string{"Without JavaScript", "1–50 of 122", "RTS", "192.0.2.10", "Gb/s", d.addr.String()} {
		if !strings.Contains(text(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	b.open(b.eval(`document.querySelector('#qps-pager a:last-child').href`).(string))
	if !strings.Contains(text(), "51–100 of 122") {
		t.Error("the second page is not there")
	}
	b.open(b.eval(`document.querySelector('#qps-list th a').href`).(string))
	if !strings.Contains(text(), "1–50 of 122") || b.eval(`document.querySelector('#qps-list th[aria-sort=ascending]').textContent`) != "QPN" {
		t.Error("it is not sorted")
	}
	first := b.eval(`document.querySelector('#qps-rows code').textContent`).(string)
	loaded := b.loads()
	b.eval(`document.getElementById('qps-find').value = '` + first + `'; document.querySelector('#qps-form button').click()`)
	<-loaded
	if n := b.eval(`document.querySelectorAll('#qps-rows tr').length`).(float64); n < 1 || n > 2 || !strings.Contains(b.eval(`location.search`).(string), "qps.sort=qpn") {
		t.Errorf("the search finds %v, at %v", n, b.eval(`location.href`))
	}
}

// On a telephone nothing is wider than the window, and everything that can be
// operated has a name and takes the focus.
func TestPageForEverybody(t *testing.T) {
	b := newBrowser(t)
	d := crowd(t, 20, nil)
	b.theme("light", 390, 800)
	b.open(d.url + "/")
	b.until(`document.querySelectorAll('#qps-rows tr').length > 10`)
	if w := b.eval(`document.documentElement.scrollWidth`); w.(float64) > 390 {
		t.Errorf("the page is %v wide", w)
	}
	if names := b.eval(`[...document.querySelectorAll('button, input, select, a')].filter((e) => !(e.innerText.trim() || e.getAttribute('aria-label') || e.labels?.length)).map((e) => e.outerHTML).join('\n')`); names != "" {
		t.Errorf("without a name: %s", names)
	}
	if bad := b.eval(`[...document.querySelectorAll('section')].filter((s) => !document.getElementById(s.getAttribute('aria-labelledby'))).length + document.querySelectorAll('th:not([scope])').length + (document.documentElement.lang ? 0 : 1)`); bad != 0.0 {
		t.Errorf("%v sections, headers or languages are not marked", bad)
	}
	// The first stop of the tabulator leads past the navigation.
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}, nil)
	if to := b.eval(`document.activeElement.getAttribute('href')`); to != "#main" {
		t.Errorf("the first stop is %v", to)
	}
	// Light or dark, text has the contrast that WCAG 2 asks for (4.5).
	for _, scheme := range []string{"light", "dark"} {
		b.theme(scheme, 1280, 800)
		if low := b.eval(contrast); low != "" {
			t.Errorf("%s: too little contrast: %s", scheme, low)
		}
	}
}

const contrast = `(() => {
	const lum = (c) => { const [r, g, b] = c.match(/[\d.]+/g).slice(0, 3).map((v) => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
	const back = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\)$/.test(c)) return c; } return 'rgb(255, 255, 255)'; };
	const low = new Set();
	for (const e of document.querySelectorAll('body *')) {
		if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.offsetParent || e.disabled) continue;
		const a = lum(getComputedStyle(e).color), b = lum(back(e));
		if ((Math.max(a, b) + .05) / (Math.min(a, b) + .05) < 4.5) low.add(e.tagName + '.' + e.className);
	}
	return [...low].join(' ');
})()`

// The page asks for the token, and shows nothing before it has the right one.
func TestPageAsksForTheToken(t *testing.T) {
	b := newBrowser(t)
	const token = "0123456789abcdef"
	d := start(t, func(c *config.Config) { c.Admin.Token = token })
	b.open(d.url + "/")
	b.until(`document.getElementById('login').open`)
	if text := b.eval(`document.getElementById('cards').innerText`).(string); strings.Contains(text, d.addr.String()) {
		t.Error("it shows the device without a token")
	}
	give := func(s string) {
		b.eval(`document.getElementById('token').value = '` + s + `'; document.querySelector('#login button').click()`)
	}
	give("wrong")
	b.until(`document.getElementById('login').open && document.getElementById('token').value === ''`)
	give(token)
	b.until(`document.getElementById('cards').innerText.includes('` + d.addr.String() + `')`)
}

// A recording is made by clicks, and fetched.
func TestPageRecords(t *testing.T) {
	b := newBrowser(t)
	d := crowd(t, 4, nil)
	dir := t.TempDir()
	b.call("Browser.setDownloadBehavior", map[string]any{"behavior": "allow", "downloadPath": dir}, nil)
	b.theme("light", 1280, 6000)
	b.open(d.url + "/")
	b.until(`document.getElementById('capture-state').textContent.includes('Nothing was recorded')`)
	b.eval(`document.getElementById('capture-filter').value = 'nonsense'; document.getElementById('capture-start').click()`)
	b.until(`!document.getElementById('banner').hidden && document.getElementById('banner').textContent.includes('no condition')`)
	b.eval(`document.getElementById('capture-filter').value = 'op=WRITE'; document.getElementById('capture-start').click()`)
	b.until(`/Recording .op=WRITE.: [1-9]/.test(document.getElementById('capture-state').textContent)`)
	b.eval(`document.getElementById('capture-stop').click()`)
	b.until(`document.getElementById('capture-state').textContent.startsWith('Recorded') && !document.getElementById('capture-get').disabled`)
	b.eval(`document.getElementById('capture-get').click()`)
	until(t, "the file is there", func() bool {
		st, err := os.Stat(dir + "/rocev2.pcapng")
		return err == nil && st.Size() > 200
	})
}
