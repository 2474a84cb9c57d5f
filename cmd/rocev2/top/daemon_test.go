package top

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// answers serves the answers of a daemon by path; what is not there is nothing.
func answers(t *testing.T, by map[string]string) *Daemon {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := by[strings.TrimPrefix(r.URL.Path, "/api/v1/")]
		if !ok {
			text = "{}"
		}
		_, _ = w.Write([]byte(text)) // the client sees it
	}))
	t.Cleanup(s.Close)
	d, err := NewDaemon(s.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDaemon(t *testing.T) {
	t.Parallel()
	d := answers(t, map[string]string{
		"status":   `{"version":"v1","host":"h","pid":7,"started":"2026-01-01T00:00:00Z","ready":true}`,
		"devices":  `{"items":[{"address":"192.0.2.1","interface":"eth0","state":"PORT_ACTIVE","qps":2,"mrs":3}]}`,
		"counters": `{"devices":[{"address":"192.0.2.1","link":{"tx_bytes":5},"qps":{"retransmits":6},"drops":{"a":1,"b":2},"rtt":{"median_us":9},"in_flight":8},{"address":"other"}]}`,
		"qps":      `{"total":1,"items":[{"device":"192.0.2.1","qpn":17,"type":"RC","state":"RTS","peer":"192.0.2.2","peer_qpn":18,"tx_bytes":1,"retransmits":2,"drops":3,"rtt_us":4}]}`,
		"leases":   `{"items":[{"device":"192.0.2.1","process":9,"user":1000,"command":"app","queue_pairs":1,"tx_bytes":7,"since":"2026-01-01T00:00:00Z","reached":[{"addr":"192.0.2.2"}]}]}`,
	})
	s, err := d.Sample(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.Source != "rocev2d v1 on h, process 7" || s.State != "ready" || len(s.Devices) != 1 || len(s.QPs) != 1 || len(s.Programs) != 1 {
		t.Fatalf("%+v", s)
	}
	if v := s.Devices[0]; v.TxBytes != 5 || v.Again != 6 || v.Dropped != 3 || v.RTT != 9 || v.InFlight != 8 || v.MRs != 3 {
		t.Errorf("%+v", v)
	}
	if q := s.QPs[0]; q.QPN != 17 || q.PeerQPN != 18 || q.TxBytes != 1 || q.Again != 2 || q.Dropped != 3 || q.RTT != 4 {
		t.Errorf("%+v", q)
	}
	if p := s.Programs[0]; p.PID != 9 || p.QPs != 1 || p.TxBytes != 7 || len(p.Peers) != 1 || p.Since.Year() != 2026 {
		t.Errorf("%+v", p)
	}
}

// Of very many queue pairs those are looked at that have sent most.
func TestDaemonOfManyQPs(t *testing.T) {
	t.Parallel()
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/qps") {
			_, _ = w.Write([]byte("{}"))
			return
		}
		asked = append(asked, r.URL.RawQuery)
		_, _ = w.Write([]byte(`{"total":5000,"items":[` + strings.Repeat("{},", 999) + "{}]}"))
	}))
	defer s.Close()
	d, err := NewDaemon(s.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	got, err := d.Sample(t.Context())
	if err != nil || len(got.QPs) != 4000 || got.QPsTotal != 5000 {
		t.Errorf("%d of %d, %v", len(got.QPs), got.QPsTotal, err)
	}
	if len(asked) != 5 || asked[1] != "limit=1000&offset=0&sort=-tx_bytes" || asked[4] != "limit=1000&offset=3000&sort=-tx_bytes" {
		t.Errorf("%q", asked)
	}
}

// Of an answer with more than was asked for the rest takes no memory.
func TestDaemonThatFloods(t *testing.T) {
	t.Parallel()
	many := "[" + strings.Repeat("{},", 50000) + "{}]"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"total":5,"items":` + many + `,"devices":` + many + `,"items":` + many + `}`))
	}))
	defer s.Close()
	d, err := NewDaemon(s.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	got, err := d.Sample(t.Context())
	if err != nil || len(got.QPs) != 4000 || len(got.Devices) != 1000 || len(got.Programs) != 1000 {
		t.Errorf("%d queue pairs, %d devices, %d programs, %v", len(got.QPs), len(got.Devices), len(got.Programs), err)
	}
	var l items[int]
	for text, want := range map[string]bool{"null": true, "[]": true, "[1,2]": true, "{}": false, "5": false, `["x"]`: false} {
		if err := json.Unmarshal([]byte(text), &l); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// What is no daemon, or refuses, is told in words, and the token goes nowhere
// else.
func TestDaemonErrors(t *testing.T) {
	t.Parallel()
	leaked := make(chan string, 10)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { leaked <- r.Header.Get("Authorization") }))
	defer elsewhere.Close()
	for _, c := range []struct {
		name, token, want string
		serve             http.HandlerFunc
	}{
		{"not JSON", "", "not that of rocev2d", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }},
		{"a list", "", "not that of rocev2d", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("[]")) }},
		{"another server", "", "it is not rocev2d", http.NotFound},
		{"a token", "", "--token-file", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }},
		{"a wrong token", "x", "does not take this token", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }},
		{"words", "", "why ?[2J not", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusMisdirectedRequest)
			_, _ = w.Write([]byte(`{"error":"why \u001b[2J not"}`))
		}},
		{"elsewhere", "secret", "it is not rocev2d", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }},
		{"it hangs up", "", "rocev2d at http", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	} {
		s := httptest.NewServer(c.serve)
		d, err := NewDaemon(s.URL, c.token)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Sample(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", c.name, err)
		}
		s.Close()
		if _, err := d.Sample(t.Context()); err == nil || !strings.Contains(err.Error(), "nothing listens there") {
			t.Errorf("%s, closed: %v", c.name, err)
		}
	}
	select {
	case token := <-leaked:
		t.Errorf("another host was asked, with %q", token)
	default:
	}
}

func TestDaemonAddresses(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"192.0.2.7": "http://192.0.2.7:14791", "192.0.2.7:80": "http://192.0.2.7:80", "host": "http://host:14791", "::1": "http://[::1]:14791",
		"[::1]": "http://[::1]:14791", "[::1]:5": "http://[::1]:5", "https://h": "https://h", "http://h:1/": "http://h:1",
		"": "", "ftp://h": "", "http://h/x": "", "http://u:p@h": "", "http://h?x": "", "http://": "", "a b": "", "h:x": "", "\x1b": "", "http://h#f": "",
	} {
		d, err := NewDaemon(in, "")
		if (err == nil) != (want != "") || err == nil && d.base != want {
			t.Errorf("%q: %v, %v, want %q", in, d, err, want)
		}
	}
}

// fake is a source whose samples and errors are given.
type fake struct {
	next []any // *Sample or error; the last one stays
	then func()
}

func (f *fake) Sample(context.Context) (*Sample, error) {
	v := f.next[0]
	if len(f.next) > 1 {
		f.next = f.next[1:]
	} else if f.then != nil {
		f.then()
	}
	if err, ok := v.(error); ok {
		return nil, err
	}
	return v.(*Sample), nil
}

// A daemon that goes away and comes back is told of, and tables go on. A new
// one begins without rates.
func TestPrintGoesOn(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	back := busy(5)
	back.Begin = "2"
	v, err := NewView("", "", minInterval)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	src := &fake{next: []any{busy(1), busy(2), errors.New("it is \x1b[2J gone"), back}, then: cancel}
	if err := Print(ctx, &out, src, v, Plain{}); err != nil {
		t.Error(err)
	}
	text := out.String()
	if strings.Count(text, "Devices: 1") != 1 || !strings.Contains(text, "1.0MB/s") || !strings.Contains(text, "it is ?[2J gone") {
		t.Errorf("%q", text)
	}
}

func TestPrintOnce(t *testing.T) {
	t.Parallel()
	v, err := NewView("", "", minInterval)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Print(t.Context(), &out, &fake{next: []any{busy(1), busy(2)}}, v, Plain{Once: true, Rows: 2}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Queue pairs: 3\nQPN ", "... and 1 more\n", "Programs: 1\n", "PEERS"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := Print(t.Context(), &out, &fake{next: []any{busy(1), busy(2)}}, v, Plain{Once: true, JSON: true}); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Time    time.Time
		Devices []map[string]any
		QPs     []map[string]any
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || len(got.QPs) != 3 || got.Devices[0]["tx_bytes_per_second"] != float64(1<<20) || got.Devices[0]["device"] != "192.0.2.1" {
		t.Errorf("%v: %s", err, out.String())
	}
	want := errors.New("no")
	if err := Print(t.Context(), &out, &fake{next: []any{want}}, v, Plain{}); !errors.Is(err, want) {
		t.Error(err)
	}
	if err := Print(t.Context(), &out, &fake{next: []any{busy(1), want}}, v, Plain{Once: true}); !errors.Is(err, want) {
		t.Error(err)
	}
}
