package server_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
)

const silentToken = "0123456789abcdef0123"

// Silent connections, and half requests, keep no client out: not the probes, on
// either listener, not a scraper, and not one that has the token, also on a
// connection that was there before.
func TestSilentConnectionsKeepNobodyOut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		n, sources int
		says       string
	}{
		{"200 of one address", 200, 1, ""},
		{"2000 of one address", 2000, 1, ""},
		{"2000 of 200 addresses", 2000, 200, ""},
		{"2000 half requests", 2000, 200, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := start(t, func(k *config.Config) {
				k.Admin.Token = silentToken
				k.Admin.Listen = loopback().String() + ":0"
				k.Admin.Health = loopback().String() + ":0"
			})
			keeps := &http.Client{Transport: &http.Transport{}}
			defer keeps.CloseIdleConnections()
			ask(t, keeps, d.AdminAddr(), "/api/v1/status", silentToken)
			net200 := loopback().As4()
			for i := range c.n {
				at := d.AdminAddr()
				if i%2 == 1 {
					at = d.HealthAddr()
				}
				s := i % c.sources
				dialer := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, net200[1], byte(s>>8), byte(s%254+1))}}
				conn, err := dialer.Dial("tcp", at.String())
				must(t, err)
				defer conn.Close()
				fmt.Fprint(conn, c.says) // it may be gone already
			}
			for range 3 {
				fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
				ask(t, fresh, d.HealthAddr(), "/healthz", "")
				ask(t, fresh, d.HealthAddr(), "/readyz", "")
				ask(t, fresh, d.AdminAddr(), "/healthz", "")
				ask(t, fresh, d.AdminAddr(), "/metrics", silentToken)
				ask(t, keeps, d.AdminAddr(), "/api/v1/status", silentToken)
			}
		})
	}
}

// ask asks once, and wants an answer.
func ask(t *testing.T, c *http.Client, at net.Addr, path, token string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+at.String()+path, nil)
	must(t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.Do(r)
	must(t, err)
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
		t.Errorf("%s: %d, %v", path, resp.StatusCode, err)
	}
}

// The health listener answers the probes, and nothing else.
func TestHealthListener(t *testing.T) {
	t.Parallel()
	d := start(t, func(k *config.Config) { k.Admin.Health = loopback().String() + ":0" })
	ask(t, http.DefaultClient, d.HealthAddr(), "/healthz", "")
	for _, path := range []string{"/", "/metrics", "/api/v1/status", "/debug/pprof/"} {
		resp, err := http.Get("http://" + d.HealthAddr().String() + path)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != 404 {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
}
