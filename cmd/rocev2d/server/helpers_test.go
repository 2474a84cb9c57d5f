package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server"
	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/verbs"
)

// loopback returns an address that no other test has.
func loopback() netip.Addr {
	n := rand.Uint32()
	return netip.AddrFrom4([4]byte{127, byte(n>>16)%250 + 2, byte(n >> 8), byte(n)%250 + 2})
}

// daemon is a running server.
type daemon struct {
	*server.Server
	t    testing.TB
	addr netip.Addr // of its device
	port int        // of perftest
	url  string
}

// freePort returns a TCP port of an address that no other test has. A program
// of this host may have the usual ones on all addresses.
func freePort(addr netip.Addr) int {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// settings are what most tests start with: one device, a port that is free.
func settings(addr netip.Addr) *config.Config {
	c := config.Default()
	c.Devices = []config.Device{{Address: addr.String()}}
	c.Admin.Listen = "127.0.0.1:0"
	c.Drain = time.Second
	return c
}

// start starts a server, with targets if there are any, and ends it with the
// test.
func start(t testing.TB, change func(*config.Config), targets ...server.Target) *daemon {
	t.Helper()
	d := &daemon{t: t, addr: loopback()}
	c := settings(d.addr)
	if len(targets) > 0 {
		c.Targets.Ports["perftest"] = freePort(d.addr)
	}
	if change != nil {
		change(c)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	if targets == nil {
		targets = []server.Target{}
	}
	s, err := server.Start(t.Context(), c, server.Options{Version: "test", Targets: targets})
	if err != nil {
		t.Fatal(err)
	}
	d.Server, d.port = s, c.Targets.Ports["perftest"]
	if a := s.AdminAddr(); a != nil {
		d.url = "http://" + a.String()
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Shutdown(ctx)
	})
	return d
}

// ask makes a request and returns status, header and body.
func (d *daemon) ask(method, path, body string, header ...string) (int, http.Header, string) {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), method, d.url+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	if method == "POST" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

// get asks for a part of the JSON interface.
func (d *daemon) get(path string) map[string]any {
	d.t.Helper()
	status, _, body := d.ask("GET", "/api/v1/"+path, "")
	var v map[string]any
	if err := json.Unmarshal([]byte(body), &v); err != nil || status != 200 {
		d.t.Fatalf("%s: status %d: %v\n%s", path, status, err, body)
	}
	return v
}

// items returns the entries of a list, and how many there are in all.
func (d *daemon) items(path string) (list []map[string]any, total int) {
	d.t.Helper()
	v := d.get(path)
	for _, i := range v["items"].([]any) {
		list = append(list, i.(map[string]any))
	}
	return list, int(v["total"].(float64))
}

// fake is a target that tests drive.
type fake struct {
	hosts chan *server.Host
	name  string
}

func newFake(name string) *fake { return &fake{make(chan *server.Host, 4), name} }

func (f *fake) target() server.Target {
	return server.Target{Name: f.name, Tools: []string{"ib_" + f.name}, Port: 1, Space: "TCP", Serve: func(ctx context.Context, h *server.Host) error {
		h.OnReady()
		f.hosts <- h
		<-ctx.Done()
		return nil
	}}
}

// peer returns an address for records.
func peer(i int) net.Addr {
	return &net.TCPAddr{IP: net.IPv4(192, 0, 2, byte(i%250)), Port: 1000 + i}
}

// equip makes queue pairs on a device, n of them connected in pairs.
func equip(t testing.TB, dev *verbs.Device, n int) []*verbs.QP {
	t.Helper()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := dev.CreateCQ(1024)
	if err != nil {
		t.Fatal(err)
	}
	var list []*verbs.QP
	for range n {
		q, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxSendWR: 16, MaxRecvWR: 16})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, q)
	}
	return list
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until polls a condition that becomes true by itself, as a browser does.
func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); {
		if time.Now().After(end) {
			t.Fatalf("not after a minute: %s", what)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(fmt.Sprint("ended: ", what))
		case <-time.After(5 * time.Millisecond):
		}
	}
}
