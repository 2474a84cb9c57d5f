package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server"
	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/verbs"
)

// What the daemon says of itself, to programs and to probes.
func TestStatus(t *testing.T) {
	t.Parallel()
	d := start(t, func(c *config.Config) { c.Devices[0].Shm = true })
	v := d.get("status")
	if v["version"] != "test" || v["ready"] != true || len(v["devices"].([]any)) != 1 {
		t.Errorf("%v", v)
	}
	list, total := d.items("devices")
	if total != 1 || list[0]["address"] != d.addr.String() || list[0]["state"] != "PORT_ACTIVE" || list[0]["udp_port"] != 4791.0 ||
		list[0]["shared_memory"] != true || list[0]["shared_memory_peers"] != nil {
		t.Errorf("%v", list)
	}
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ready\n"} {
		if status, _, body := d.ask("GET", path, ""); status != 200 || body != want {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
	if _, _, body := d.ask("GET", "/metrics", ""); !strings.Contains(body, fmt.Sprintf("rocev2_port_up{device=%q} 1", d.addr)) || !strings.Contains(body, "rocev2_clients 0") {
		t.Errorf("metrics:\n%s", body)
	}
	if v := d.get("config"); v["config"].(map[string]any)["Drain"] == nil {
		t.Errorf("%v", v)
	}
}

// Only the operator asks: names that are not ours, other sites, and those
// without the token get nothing.
func TestAdminRefuses(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef"
	d := start(t, func(c *config.Config) { c.Admin.Token, c.Admin.Hosts = token, []string{"rdma.example.com"} })
	auth := []string{"Authorization", "Bearer " + token}
	for _, tt := range []struct {
		what, method, path, body string
		header                   []string
		want                     int
	}{
		{"no token", "GET", "/api/v1/status", "", nil, 401},
		{"wrong token", "GET", "/api/v1/status", "", []string{"Authorization", "Bearer 0123456789abcdeg"}, 401},
		{"token in another scheme", "GET", "/api/v1/status", "", []string{"Authorization", "Basic " + token}, 401},
		{"token", "GET", "/api/v1/status", "", auth, 200},
		{"metrics without a token", "GET", "/metrics", "", nil, 401},
		{"metrics", "GET", "/metrics", "", auth, 200},
		{"health without a token", "GET", "/healthz", "", nil, 200},
		{"page without a token", "GET", "/", "", nil, 200},
		{"capture without a token", "POST", "/api/v1/capture/start", "{}", nil, 401},
		{"foreign name", "GET", "/healthz", "", []string{"Host", "attacker.example.net"}, 421},
		{"foreign name with a port", "GET", "/", "", []string{"Host", "attacker.example.net:14791"}, 421},
		{"name that begins as an address", "GET", "/", "", []string{"Host", "127.0.0.1.attacker.example.net"}, 421},
		{"configured name", "GET", "/healthz", "", []string{"Host", "RDMA.example.com:80"}, 200},
		{"localhost", "GET", "/healthz", "", []string{"Host", "localhost:1"}, 200},
		{"IPv6", "GET", "/healthz", "", []string{"Host", "[::1]:1"}, 200},
		{"other site", "POST", "/api/v1/capture/start", "{}", append([]string{"Sec-Fetch-Site", "cross-site"}, auth...), 403},
		{"other origin", "POST", "/api/v1/capture/start", "{}", append([]string{"Origin", "http://attacker.example.net"}, auth...), 403},
		{"form of a page", "POST", "/api/v1/capture/start", "{}", append([]string{"Content-Type", "text/plain"}, auth...), 415},
		{"large body", "POST", "/api/v1/capture/start", `{"filter":"` + strings.Repeat("x", 1<<20) + `"}`, auth, 400},
		{"other method", "PUT", "/api/v1/status", "", auth, 404},
		{"POST of a GET", "POST", "/api/v1/status", "{}", auth, 404},
		{"unknown", "GET", "/api/v1/nothing", "", auth, 404},
		{"no profiles", "GET", "/debug/pprof/", "", auth, 404},
		{"offset", "GET", "/api/v1/qps?offset=-1", "", auth, 400},
		{"no offset", "GET", "/api/v1/peers?offset=x", "", auth, 400},
		{"half an offset", "GET", "/api/v1/errors?offset=1.5", "", auth, 400},
		{"a column that there is not", "GET", "/api/v1/qps?sort=nonsense", "", auth, 400},
		{"a column that has no order", "GET", "/api/v1/leases?sort=work", "", auth, 400},
		{"an order of columns", "GET", "/api/v1/regions?sort=--name", "", auth, 400},
		{"an order of what is no list", "GET", "/api/v1/counters?sort=name", "", auth, 400},
		{"limit", "GET", "/api/v1/regions?limit=-5", "", auth, 400},
		{"no such parameter", "GET", "/api/v1/qps?ofset=5", "", auth, 400},
		{"a parameter for nothing", "GET", "/api/v1/status?offset=5", "", auth, 400},
		{"a parameter twice", "GET", "/api/v1/qps?offset=5&offset=6", "", auth, 400},
		{"no parameters", "GET", "/api/v1/qps?offset=%zz", "", auth, 400},
		{"no such state", "GET", "/api/v1/qps?state=READY", "", auth, 400},
		{"no such device", "GET", "/api/v1/qps?device=192.0.2.1", "", auth, 400},
	} {
		status, h, body := d.ask(tt.method, tt.path, tt.body, tt.header...)
		if status != tt.want {
			t.Errorf("%s: status %d, want %d: %s", tt.what, status, tt.want, body)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: header %v", tt.what, h)
		}
		if strings.Contains(body, token) {
			t.Errorf("%s: the answer has the token", tt.what)
		}
	}
	if _, _, body := d.ask("GET", "/api/v1/config", "", auth...); strings.Contains(body, token) || !strings.Contains(body, "(set)") {
		t.Errorf("the configuration shows the token: %s", body)
	}
}

// A listener that others can reach does not start without a token, whatever the
// check of the configuration has seen.
func TestOpenListenerNeedsToken(t *testing.T) {
	t.Parallel()
	c := settings(loopback())
	c.Admin.Listen = "0.0.0.0:0"
	s, err := server.Start(t.Context(), c, server.Options{Targets: []server.Target{}})
	if err == nil {
		s.Shutdown(t.Context())
		t.Fatal("it started")
	}
	if !strings.Contains(err.Error(), "token") {
		t.Errorf("%v", err)
	}
	if dev, err := verbs.Open(c.Devices[0].Address); err != nil {
		t.Errorf("something was left open: %v", err)
	} else {
		dev.Close()
	}
}

func TestPProf(t *testing.T) {
	t.Parallel()
	d := start(t, func(c *config.Config) { c.Admin.PProf = true })
	if status, _, body := d.ask("GET", "/debug/pprof/goroutine?debug=1", ""); status != 200 || !strings.Contains(body, "goroutine profile") {
		t.Errorf("%d %s", status, body)
	}
}

// Clients that connect and send nothing, or send for ever, do not keep others
// out for longer than the time limits, and cost bounded memory.
func TestFloodOfHTTP(t *testing.T) {
	t.Parallel()
	d := start(t, nil)
	var idle []net.Conn
	for range 60 {
		c, err := net.Dial("tcp", d.AdminAddr().String())
		must(t, err)
		defer c.Close()
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
		idle = append(idle, c)
	}
	if status, _, _ := d.ask("GET", "/healthz", ""); status != 200 {
		t.Errorf("status %d beside %d slow clients", status, len(idle))
	}
	// An endless header is cut off.
	go func() {
		for {
			if _, err := idle[0].Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	}()
	if _, err := io.ReadAll(idle[0]); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Logf("the connection ended with %v", err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				r, err := http.NewRequestWithContext(t.Context(), "GET", d.url+"/api/v1/counters", nil)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	wg.Wait()
}

// A list of many queue pairs comes in pages, in order, and can be searched.
func TestQPsInPages(t *testing.T) {
	t.Parallel()
	f := newFake("rping")
	d := start(t, nil, f.target())
	dev := (<-f.hosts).Device
	list := equip(t, dev, 250)
	must(t, list[7].Init())
	seen := map[float64]bool{}
	last := -1.0
	for offset := 0; ; offset += 100 {
		items, total := d.items(fmt.Sprintf("qps?offset=%d", offset))
		if total != 250 {
			t.Fatalf("%d queue pairs", total)
		}
		for _, i := range items {
			n := i["qpn"].(float64)
			if seen[n] || n <= last {
				t.Errorf("%v comes twice, or out of order", n)
			}
			seen[n], last = true, n
		}
		if len(items) < 100 {
			break
		}
	}
	if len(seen) != 250 {
		t.Errorf("%d of 250", len(seen))
	}
	if items, total := d.items("qps?state=INIT"); total != 1 || items[0]["qpn"] != float64(list[7].QPN()) {
		t.Errorf("%v", items)
	}
	if items, total := d.items(fmt.Sprintf("qps?find=0x%06x", uint32(list[9].QPN()))); total != 1 || items[0]["qpn"] != float64(list[9].QPN()) {
		t.Errorf("%v", items)
	}
	if items, total := d.items("qps?offset=9999"); total != 250 || len(items) != 0 {
		t.Errorf("%d, %v", total, items)
	}
	if items, _ := d.items("qps?limit=100000"); len(items) != 250 {
		t.Errorf("%d", len(items))
	}
	for path, want := range map[string]float64{"qps?offset=9999": 250, "qps?offset=99999999999999999999": 250, "qps?offset=249&limit=0": 249, "qps?state=INIT&offset=7": 1, "qps?find=no&offset=7": 0, "peers?offset=7": 0} {
		if v := d.get(path); v["offset"] != want || len(v["items"].([]any)) != 0 {
			t.Errorf("%s: offset %v, want %v; %v", path, v["offset"], want, v["items"])
		}
	}
	if v := d.get("qps?limit=99999999999999999999&device=" + d.addr.String()); len(v["items"].([]any)) != 250 {
		t.Errorf("%v", v["total"])
	}
	if items, total := d.items("qps?sort=-qpn&limit=10"); total != 250 || len(items) != 10 || items[0]["qpn"] != last || items[9]["qpn"].(float64) >= items[0]["qpn"].(float64) {
		t.Errorf("the largest first: %v of %d", items, total)
	}
	if items, total := d.items("qps?sort=state&offset=240"); total != 250 || len(items) != 10 || items[0]["state"] != "RESET" {
		t.Errorf("by state: %v of %d", items, total)
	}
	if items, total := d.items("qps?sort=state&limit=1"); total != 250 || items[0]["state"] != "INIT" {
		t.Errorf("by state: %v of %d", items, total)
	}
	if items, total := d.items("qps?state=INIT&sort=-rtt_us"); total != 1 || items[0]["qpn"] != float64(list[7].QPN()) {
		t.Errorf("one of a state: %v of %d", items, total)
	}
	if items, total := d.items("qps?state=RESET&limit=10&offset=245"); total != 249 || len(items) != 4 {
		t.Errorf("%d, %d items", total, len(items))
	}
}

// Clients of targets are recorded, refused when there are too many, and the
// records are bounded.
func TestPeersAreRecorded(t *testing.T) {
	t.Parallel()
	f := newFake("rping")
	d := start(t, func(c *config.Config) { c.Targets.Clients = 3 }, f.target())
	h := <-f.hosts
	var guests []*server.Guest
	for i := range 3 {
		g, err := h.Begin(peer(i))
		must(t, err)
		g.Is("rping -V", uint32(100+i))
		guests = append(guests, g)
	}
	if _, err := h.Begin(peer(4)); err == nil || !strings.Contains(err.Error(), "targets.clients") {
		t.Errorf("a fourth client: %v", err)
	}
	if list, total := d.items("connections"); total != 3 || list[0]["peer"] != peer(0).String() || list[0]["target"] != "rping -V" || list[2]["qpn"] != 102.0 {
		t.Errorf("%v", list)
	}
	guests[0].End("10 pings of 64 bytes", nil)
	guests[0].End("twice", nil)
	guests[1].End("", errors.New("completion status RETRY_EXC_ERR"))
	list, total := d.items("peers")
	if total != 2 || list[0]["error"] == nil || list[1]["result"] != "10 pings of 64 bytes" {
		t.Errorf("%v", list)
	}
	if errs, _ := d.items("errors"); len(errs) != 1 || errs[0]["peer"] != "192.0.2.1" || !strings.Contains(errs[0]["meaning"].(string), "does not answer") {
		t.Errorf("%v", errs)
	}
	defer guests[2].End("", nil)
	for i := range 2000 {
		g, err := h.Begin(peer(i))
		must(t, err)
		g.End("", fmt.Errorf("error %d %s", i, strings.Repeat("x", 5000)))
		h.Refused(peer(i), errors.New("it speaks HTTP"))
	}
	if _, total := d.items("peers"); total != 512 {
		t.Errorf("%d records", total)
	}
	errs, total := d.items("errors?limit=1000")
	if total != 256 || len(errs[0]["what"].(string)) > 500 {
		t.Errorf("%d errors, the first is %v", total, errs[0])
	}
	_, _, body := d.ask("GET", "/metrics", "")
	for _, want := range []string{`rocev2_target_clients_total{target="rping"} 2003`, `rocev2_target_failures_total{target="rping"} 2001`, `rocev2_target_refusals_total{target="rping"} 2001`, "rocev2_clients 1"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
}

// The same error again is counted.
func TestErrorsAreGathered(t *testing.T) {
	t.Parallel()
	f := newFake("rping")
	d := start(t, nil, f.target())
	h := <-f.hosts
	for range 5 {
		h.Refused(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 5}, errors.New("why"))
		h.Refused(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 5}, errors.New("why"))
	}
	if errs, total := d.items("errors"); total != 2 || errs[0]["count"] != 5.0 || errs[0]["peer"] != "192.0.2.2" {
		t.Errorf("%v", errs)
	}
}

// A target that cannot serve is told of, and the others go on.
func TestTargetThatFails(t *testing.T) {
	t.Parallel()
	f := newFake("rping")
	bad := server.Target{Name: "perftest", Tools: []string{"ib_send_bw"}, Port: 5, Space: "TCP", Serve: func(context.Context, *server.Host) error { return errors.New("the port is taken") }}
	off := server.Target{Name: "udaddy", Port: 6, Serve: func(context.Context, *server.Host) error { t.Error("it runs"); return nil }}
	other := newFake("mckey")
	d := start(t, func(c *config.Config) { c.Targets.Ports["udaddy"], c.Targets.Ports["mckey"] = 0, 77 }, f.target(), bad, off, other.target())
	<-f.hosts
	if h := <-other.hosts; h.Port != 77 {
		t.Errorf("port %d", h.Port)
	}
	until(t, "perftest has failed", func() bool {
		list, total := d.items("targets")
		return total == 3 && list[0]["state"] == "serving" && list[1]["state"] == "failed" && list[1]["error"] == "the port is taken"
	})
	if status, _, _ := d.ask("GET", "/readyz", ""); status != 200 {
		t.Errorf("status %d", status)
	}
	if errs, _ := d.items("errors"); len(errs) != 1 || !strings.Contains(errs[0]["remedy"].(string), "targets.ports") {
		t.Errorf("%v", errs)
	}
}

// A reload takes what it can, and tells what needs a restart.
func TestReload(t *testing.T) {
	t.Parallel()
	d := start(t, nil)
	if status, _, _ := d.ask("GET", "/api/v1/status", ""); status != 200 {
		t.Fatal(status)
	}
	next := settings(d.addr)
	next.Admin.Token, next.Admin.PProf, next.Drain = "0123456789abcdef", true, 3*time.Second
	restart, err := d.Reload(next)
	must(t, err)
	if fmt.Sprint(restart) != "[admin.pprof]" {
		t.Errorf("%v", restart)
	}
	if status, _, _ := d.ask("GET", "/api/v1/status", ""); status != 401 {
		t.Errorf("status %d without the new token", status)
	}
	if c := d.Config(); c.Admin.PProf || c.Drain != 3*time.Second {
		t.Errorf("%+v", c)
	}
}

// A listener that others can reach keeps its token.
func TestReloadKeepsTheToken(t *testing.T) {
	t.Parallel()
	d := start(t, func(c *config.Config) { c.Admin.Listen, c.Admin.Token = "0.0.0.0:0", "0123456789abcdef" })
	next := settings(d.addr)
	if _, err := d.Reload(next); err == nil || d.Config().Admin.Token == "" {
		t.Errorf("%v", err)
	}
}

// Shutdown waits for what is under way, and not for longer than it is told.
func TestDrain(t *testing.T) {
	t.Parallel()
	f := newFake("rping")
	d := start(t, nil, f.target())
	dev := (<-f.hosts).Device
	a := equip(t, dev, 2)
	must(t, a[0].Init())
	must(t, a[0].ReadyToReceive(a[1].Endpoint()))
	// It is under way for longer than this test takes on any machine.
	must(t, a[0].ReadyToSend(verbs.WithConfig(verbs.ConnectConfig{Timeout: 24})))
	must(t, a[0].PostSend(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, Signaled: true, Inline: []byte{1}, Remote: verbs.RemoteMemory{}.At(0)}))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := d.Shutdown(ctx); err == nil || !strings.Contains(err.Error(), "1 queue pairs") {
		t.Errorf("%v", err)
	}
	if err := d.Shutdown(t.Context()); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if _, err := net.Dial("tcp", d.AdminAddr().String()); err == nil {
		t.Error("the admin listener is open")
	}
	dev, err := verbs.OpenAddr(d.addr, verbs.Config{})
	if err != nil {
		t.Fatalf("the device is not closed: %v", err)
	}
	dev.Close()
}

// Events of queue pairs become errors with their meaning.
func TestEventsBecomeErrors(t *testing.T) {
	t.Parallel()
	f := newFake("rping")
	d := start(t, nil, f.target())
	dev := (<-f.hosts).Device
	q := equip(t, dev, 2)
	must(t, q[0].Connect(t.Context(), q[1].Endpoint()))
	must(t, q[1].Connect(t.Context(), q[0].Endpoint()))
	must(t, q[0].PostSend(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, Signaled: true, Inline: []byte{1}, Remote: verbs.RemoteMemory{}.At(0)}))
	until(t, "the violation is an error", func() bool {
		errs, _ := d.items("errors")
		for _, e := range errs {
			if strings.Contains(e["what"].(string), q[1].QPN().String()) && strings.Contains(e["meaning"].(string), "may not have") && e["peer"] == d.addr.String() {
				return true
			}
		}
		return false
	})
	var v map[string]any
	until(t, "both ends have counted it", func() bool { // the requester does when the NAK arrives
		v = d.get("counters")
		s := fmt.Sprint(v["trouble"])
		return strings.Contains(s, "nak_access_sent") && strings.Contains(s, "nak_access_received")
	})
	c := v["devices"].([]any)[0].(map[string]any)
	if c["qps"].(map[string]any)["nak_access_sent"] == 0.0 || c["link"].(map[string]any)["tx_packets"] == 0.0 {
		t.Errorf("%v", c)
	}
}
