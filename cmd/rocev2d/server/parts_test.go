package server

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// These are tests of the parts of the daemon, each without the others.

// Records take as many clients as they are told to, none while the daemon
// drains, and log a problem with what it means.
func TestRecords(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	r := newRecords(slog.New(slog.NewTextHandler(&said, nil)))
	peer := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 1}
	v, err := r.admit("rping", "192.0.2.1", peer, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.admit("rping", "192.0.2.1", peer, 1); err == nil {
		t.Error("a second client was taken where there is room for one")
	}
	v.Leave(time.Now(), "rping", "", errors.New("it was torn off"))
	if list, total := r.problems.latest(); total != 1 || list[0].Peer != "192.0.2.2" || list[0].Source != "rping" {
		t.Errorf("the problems are %+v", list)
	}
	if !strings.Contains(said.String(), "it was torn off") {
		t.Errorf("the log says %q", said.String())
	}
	r.draining.Store(true)
	if _, err := r.admit("rping", "192.0.2.1", peer, 1); !errors.Is(err, errDraining) {
		t.Errorf("a client of a daemon that drains: %v", err)
	}
	// One of regions is told so that it waits for the next daemon.
	err = (&exporter{records: r}).admit(netip.MustParseAddr("192.0.2.1"), false)
	var rejected *rdma.RejectedError
	if !errors.As(err, &rejected) || rejected.Reason != cm.ReasonNoResources || !strings.Contains(err.Error(), errDraining.Error()) {
		t.Errorf("a client of regions of a daemon that drains: %v", err)
	}
}

// Exports follow the configuration: a region comes, changes its size, and goes,
// and its memory with it.
func TestExports(t *testing.T) {
	t.Parallel()
	link, _ := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
	dev, err := verbs.OpenLink(link, verbs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	x := newExports(newRecords(slog.New(slog.DiscardHandler)))
	d := &device{cfg: config.Device{Address: "192.0.2.1", Regions: 18600}, dev: dev}
	if err := x.start(t.Context(), t.Context(), config.Default(), []*device{d}); err != nil {
		t.Fatal(err)
	}
	for _, sizes := range [][]int64{{4096}, {8192}, {8192, 4096}, {4096}, {}} {
		c := config.Default()
		for i, size := range sizes {
			c.Regions = append(c.Regions, config.Region{Name: string(rune('a' + i)), Size: size, Access: config.ReadWrite, Any: true})
		}
		if err := x.apply(c); err != nil {
			t.Fatalf("%v: %v", sizes, err)
		}
		list := x.list()
		if len(list) != len(sizes) || len(x.memory) != len(sizes) {
			t.Errorf("%v: the regions are %+v, with %d memories", sizes, list, len(x.memory))
		}
		for i, r := range list {
			if int64(r.Size) != sizes[i] {
				t.Errorf("%v: region %s has %d bytes", sizes, r.Name, r.Size)
			}
		}
	}
	if err := errors.Join(x.stop(t.Context()), dev.Close(), x.free()); err != nil {
		t.Error(err)
	}
	if err := x.apply(config.Default()); !errors.Is(err, errDraining) {
		t.Errorf("a reload after the end: %v", err)
	}
}

// Handlers answer from what they are given, without a daemon that runs.
func TestHandlers(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Admin.Token = "secret"
	r := newRecords(slog.New(slog.DiscardHandler))
	h := &handlers{log: r.log, config: func() *config.Config { return cfg }, records: r, exports: newExports(r), targets: &targets{}, recorder: &recorder{}}
	mux := h.guard(h.routes())
	get := func(path, token string) (int, string) {
		q := httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil)
		if token != "" {
			q.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, q)
		return w.Code, w.Body.String()
	}
	for _, c := range []struct {
		do          func()
		path, token string
		code        int
		text        string
	}{
		{nil, "/healthz", "", 200, "ok"},
		{nil, "/readyz", "", 503, "starting"},
		{func() { h.ready.Store(true) }, "/readyz", "", 200, "ready"},
		{func() { r.draining.Store(true) }, "/readyz", "", 503, "draining"},
		{nil, "/api/v1/regions", "", 401, "token"},
		{nil, "/api/v1/regions", "wrong", 401, "token"},
		{nil, "/api/v1/regions", "secret", 200, `"total":0`},
		{nil, "/api/v1/regions?limit=x", "secret", 400, "limit"},
		{nil, "/api/v1/config", "secret", 200, `(set)`},
	} {
		if c.do != nil {
			c.do()
		}
		if code, text := get(c.path, c.token); code != c.code || !strings.Contains(text, c.text) {
			t.Errorf("%s with %q: %d %s, want %d %s", c.path, c.token, code, text, c.code, c.text)
		}
	}
}
