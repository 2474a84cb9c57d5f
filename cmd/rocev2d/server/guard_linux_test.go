package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server"
	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/verbs"
)

// TestSecuredShows: the JSON interface and the metrics say that a device is
// secured, with which host there are keys, why there are none with another one,
// and what a program that shares the port has sealed.
func TestSecuredShows(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	secured := func(c *config.Config) {
		c.Programs.Dir = ""
		g := &c.Devices[0].Guard
		g.Cert, g.Key, g.CA = ca.Files(t, t.TempDir(), "host", testcert.Subject{CN: "host", Addr: c.Devices[0].Address})
	}
	a, b, clear := start(t, secured), start(t, secured), start(t, nil)
	program, err := verbs.OpenAddr(a.addr, verbs.Config{Leased: true})
	must(t, err)
	t.Cleanup(func() { program.Close() })
	peer, err := verbs.OpenAddr(b.addr, verbs.Config{Leased: true})
	must(t, err)
	t.Cleanup(func() { peer.Close() })
	x, y := equip(t, program, 2), equip(t, peer, 1)
	must(t, x[0].Connect(t.Context(), y[0].Endpoint()))
	must(t, y[0].Connect(t.Context(), x[0].Endpoint()))
	must(t, x[0].PostSend(verbs.SendWR{ID: 1, Opcode: verbs.OpWrite, Signaled: true}))
	stranger := y[0].Endpoint()
	stranger.Addr = clear.addr
	must(t, x[1].Connect(t.Context(), stranger))
	must(t, x[1].PostSend(verbs.SendWR{ID: 2, Opcode: verbs.OpWrite, Signaled: true}))
	ask := func(path string, into any) {
		_, _, body := a.ask("GET", "/api/v1/"+path, "")
		must(t, json.Unmarshal([]byte(body), into))
	}
	var devices struct {
		Items []struct {
			Secured struct {
				How   string
				Total int
				Hosts []struct {
					Address, Name, Since, Error string
					At                          string `json:"error_at"`
				}
			}
		}
	}
	until(t, "there are keys with one host, and a reason why not with the other", func() bool {
		ask("devices", &devices)
		s := devices.Items[0].Secured
		return s.Total == 2 && s.Hosts[0].Error != "" && s.Hosts[1].Since != ""
	})
	s := devices.Items[0].Secured
	if !strings.Contains(s.Hosts[0].Error, "its device is not secured") || s.Hosts[0].At == "" {
		t.Errorf("%+v", s.Hosts)
	}
	if _, _, errors := a.ask("GET", "/api/v1/errors", ""); !strings.Contains(errors, "its device is not secured") || !strings.Contains(errors, `"source":"keys"`) || !strings.Contains(errors, "docs/secure.md") {
		t.Errorf("the errors are %s", errors)
	}
	if s.Hosts[0].Address != clear.addr.String() || s.Hosts[0].Since != "" || s.Hosts[1].Address != b.addr.String() || s.Hosts[1].Name != "CN=host" ||
		!strings.Contains(s.How, "secured with") {
		t.Errorf("%+v", s)
	}
	var leases struct {
		Items []struct {
			Process int
			Own     bool
			Guard   map[string]uint64
		}
	}
	var counters struct {
		Devices []struct{ Guard map[string]uint64 }
	}
	until(t, "the program has told what it has sealed and opened", func() bool {
		ask("leases", &leases)
		for _, l := range leases.Items {
			if l.Guard["guard_sealed"] > 0 && l.Guard["guard_opened"] > 0 {
				return true
			}
		}
		return false
	})
	ask("counters", &counters)
	if _, ok := counters.Devices[0].Guard["guard_sealed"]; !ok {
		t.Errorf("%+v", counters)
	}
	_, _, body := a.ask("GET", "/metrics", "")
	for _, want := range []string{
		fmt.Sprintf(`rocev2_sealing_total{counter="guard_opened",device="%v"} `, a.addr),
		`counter="guard_sealed",device="` + a.addr.String() + `",user="`,
		fmt.Sprintf(`rocev2_key_hosts_without{device="%v"} 1`, a.addr),
		fmt.Sprintf(`rocev2_manager_sealing_total{counter="guard_clear",device="%v"} `, a.addr),
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
}

// TestCertificateOfOthers: a certificate that other hosts would refuse is a
// mistake of the configuration.
func TestCertificateOfOthers(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	cfg := settings(loopback())
	g := &cfg.Devices[0].Guard
	g.Cert, g.Key, g.CA = ca.Files(t, t.TempDir(), "host", testcert.Subject{CN: "host", Addr: "192.0.2.99"})
	if err := server.Check(t.Context(), cfg, nil); err == nil || !strings.Contains(err.Error(), "is not for "+cfg.Devices[0].Address) {
		t.Error(err)
	}
	g.AnyAddress = true
	if err := server.Check(t.Context(), cfg, nil); err != nil {
		t.Error(err)
	}
}
