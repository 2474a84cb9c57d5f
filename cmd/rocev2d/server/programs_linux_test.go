package server_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server"
	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/programs"
	"github.com/gosoftroce/rocev2/verbs"
)

// Programs find the devices of the daemon in its directory, as long as it runs.
func TestPrograms(t *testing.T) {
	t.Parallel()
	cfg := settings(loopback())
	cfg.Programs.Dir = filepath.Join(t.TempDir(), "d")
	s, err := server.Start(t.Context(), cfg, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	devices, err := filepath.Glob(filepath.Join(cfg.Programs.Dir, "sys/class/infiniband/rxe_lo*"))
	if err != nil || len(devices) != 1 {
		t.Errorf("%v, %v", devices, err)
	}
	ports, err := os.ReadDir(filepath.Join(cfg.Programs.Dir, "port"))
	if err != nil || len(ports) != 1 || ports[0].Name() != cfg.Devices[0].Address {
		t.Errorf("the owners are %v, %v", ports, err)
	}
	held, err := programs.Hold(cfg.Programs.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := programs.Listen(programs.Config{Dir: cfg.Programs.Dir}); !errors.Is(err, programs.ErrInUse) {
		t.Errorf("a second daemon of the directory: %v", err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(cfg.Programs.Dir, "socket")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

// A program of the daemon's user opens a device on its address, and the daemon
// tells of it: in the list of leases and in the metrics, also after its end.
func TestLeases(t *testing.T) {
	t.Parallel()
	d := start(t, func(c *config.Config) { c.Programs.Dir = "" })
	dev, err := verbs.OpenAddr(d.addr, verbs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	list, total := d.items("leases")
	if total != 2 || list[0]["own"] != true || list[0]["device"] != d.addr.String() ||
		list[1]["process"] != float64(os.Getpid()) || list[1]["user"] != float64(os.Geteuid()) || list[1]["slot"] == list[0]["slot"] {
		t.Errorf("%d leases: %v", total, list)
	}
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	for total != 1 { // until the daemon sees it
		_, total = d.items("leases")
	}
	resp, err := http.Get(d.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if want := fmt.Sprintf(`rocev2_leases{command="%s",device="%v",user="%d"} 1`, list[0]["command"], d.addr, os.Geteuid()); err != nil || !strings.Contains(string(text), want) {
		t.Errorf("%v; the metrics lack %s", err, want)
	}
}
