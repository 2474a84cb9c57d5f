package server_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server"
	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/rdma"
)

// withRegions starts a daemon that exports regions.
func withRegions(t testing.TB, list ...config.Region) *daemon {
	t.Helper()
	return start(t, func(c *config.Config) {
		c.Devices[0].Regions = config.DefaultRegionsPort
		c.Regions = list
	})
}

// dial connects as a client of the regions, from an address of its own.
func (d *daemon) dial() *rdma.Conn {
	d.t.Helper()
	c, err := rdma.Dial(d.t.Context(), net.JoinHostPort(d.addr.String(), "7470"))
	must(d.t, err)
	d.t.Cleanup(func() { c.Close() })
	return c
}

func regionNamed(t testing.TB, c *rdma.Conn, name string) *rdma.RemoteRegion {
	t.Helper()
	r, err := c.Region(t.Context(), name)
	must(t, err)
	return r
}

func allow(t testing.TB, r config.Region, list ...string) config.Region {
	t.Helper()
	must(t, r.SetAllow(list))
	return r
}

// Clients find regions by name, and read, write and update them; what they may
// not is refused in words, and recorded.
func TestRegions(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "made")
	secret := allow(t, config.Region{Name: "secret", Size: 4096, Access: config.ReadWrite}, "192.0.2.0/24")
	d := withRegions(t, config.Region{Name: "scratch", Size: 1 << 20, Access: config.ReadWrite}, config.Region{Name: "fixed", Size: 100, Access: config.ReadOnly},
		config.Region{Name: "file", Size: 8192, File: path, Access: config.ReadWrite}, secret)
	c := d.dial()
	ctx := t.Context()
	list, err := c.Regions(ctx)
	must(t, err)
	var names []string
	for _, r := range list {
		names = append(names, r.Name())
	}
	if got := strings.Join(names, " "); got != "file fixed scratch" {
		t.Errorf("regions: %s", got)
	}
	scratch := regionNamed(t, c, "scratch")
	want := bytes.Repeat([]byte("data "), 1000)
	must(t, scratch.Write(ctx, want, 77))
	got := make([]byte, len(want))
	must(t, scratch.Read(ctx, got, 77))
	if !bytes.Equal(got, want) {
		t.Error("what was written is not read")
	}
	if was, err := scratch.FetchAdd(ctx, 8192, 5); err != nil || was != 0 {
		t.Errorf("%d, %v", was, err)
	}
	if was, err := scratch.CompareSwap(ctx, 8192, 5, 9); err != nil || was != 5 {
		t.Errorf("%d, %v", was, err)
	}
	if err := regionNamed(t, c, "fixed").Write(ctx, []byte("x"), 0); !errors.Is(err, rdma.ErrPermission) {
		t.Errorf("write to a read-only region: %v", err)
	}
	must(t, regionNamed(t, c, "file").Write(ctx, []byte("in the file"), 10))
	if b, err := os.ReadFile(path); err != nil || len(b) != 8192 || string(b[10:21]) != "in the file" {
		t.Errorf("%d bytes: %v", len(b), err)
	}
	if _, err := c.Region(ctx, "secret"); !errors.Is(err, rdma.ErrPermission) {
		t.Errorf("a region of others: %v", err)
	}
	if _, err := c.Region(ctx, "nothing"); !errors.Is(err, rdma.ErrUnknownRegion) {
		t.Errorf("an unknown region: %v", err)
	}
	shown, total := d.items("regions")
	if total != 4 || shown[2]["name"] != "scratch" || shown[2]["opened"] != 1.0 || shown[3]["refused"] != 1.0 || shown[0]["size"] != 8192.0 || shown[0]["file"] != path {
		t.Errorf("%v", shown)
	}
	errs, total := d.items("errors")
	if total != 2 || !strings.Contains(errs[0]["what"].(string), "does not exist") || !strings.Contains(errs[1]["remedy"].(string), "list allow") {
		t.Errorf("%v", errs)
	}
	if conns, total := d.items("connections"); total != 1 || conns[0]["target"] != "regions" || conns[0]["qpn"] == nil {
		t.Errorf("%v", conns)
	}
	must(t, c.Close())
	until(t, "the client is gone, without an error", func() bool {
		past, n := d.items("peers")
		_, there := d.items("connections")
		return n == 1 && there == 0 && past[0]["error"] == nil
	})
}

// A reload adds, ends and changes regions; one that stays keeps its data, and
// its connection.
func TestReloadOfRegions(t *testing.T) {
	t.Parallel()
	keep := config.Region{Name: "keep", Size: 4096, Access: config.ReadWrite}
	gone := config.Region{Name: "gone", Size: 4096, Access: config.ReadWrite}
	narrow := allow(t, config.Region{Name: "narrow", Size: 4096, Access: config.ReadWrite}, "any")
	d := withRegions(t, keep, gone, narrow)
	c, other := d.dial(), d.dial()
	ctx := t.Context()
	kept, lost := regionNamed(t, c, "keep"), regionNamed(t, other, "gone")
	must(t, kept.Write(ctx, []byte("stays"), 0))
	must(t, regionNamed(t, c, "narrow").Write(ctx, []byte("here"), 0))
	reload := func(list ...config.Region) error {
		next := settings(d.addr)
		next.Devices[0].Regions = config.DefaultRegionsPort
		next.Regions = list
		restart, err := d.Reload(next)
		if len(restart) > 0 {
			t.Errorf("needs a restart: %v", restart)
		}
		return err
	}
	must(t, reload(keep, allow(t, narrow, "192.0.2.1"), config.Region{Name: "added", Size: 100, Access: config.ReadOnly}))
	got := make([]byte, 5)
	if err := kept.Read(ctx, got, 0); err != nil || string(got) != "stays" {
		t.Errorf("%q, %v", got, err)
	}
	if err := lost.Read(ctx, got, 0); !errors.Is(err, rdma.ErrRefused) {
		t.Errorf("a region that was ended: %v", err)
	}
	if _, err := c.Region(ctx, "narrow"); !errors.Is(err, rdma.ErrPermission) {
		t.Errorf("a region with a new list: %v", err)
	}
	regionNamed(t, c, "added")
	must(t, reload(keep, narrow))
	must(t, regionNamed(t, c, "narrow").Read(ctx, got[:4], 0))
	if string(got[:4]) != "here" {
		t.Errorf("behind a new key there is %q", got[:4])
	}
	// One that is not possible does not keep the others from changing.
	err := reload(keep, config.Region{Name: "bad", File: "/nonexistent/file", Access: config.ReadOnly}, config.Region{Name: "good", Size: 10, Access: config.ReadOnly})
	if err == nil || !strings.Contains(err.Error(), "bad") || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
	regionNamed(t, c, "good")
}

// Files that cannot be a region are told of, and nothing starts.
func TestRegionFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	short, empty := filepath.Join(dir, "short"), filepath.Join(dir, "empty")
	must(t, os.WriteFile(short, []byte("abc"), 0o600))
	must(t, os.WriteFile(empty, nil, 0o600))
	for _, tt := range []struct {
		r    config.Region
		want string
	}{
		{config.Region{Name: "a", File: filepath.Join(dir, "none"), Access: config.ReadOnly}, "no such file"},
		{config.Region{Name: "a", File: filepath.Join(dir, "none"), Access: config.ReadWrite}, "no such file"},
		{config.Region{Name: "a", File: short, Size: 4096, Access: config.ReadWrite}, "has 3 bytes"},
		{config.Region{Name: "a", File: empty, Access: config.ReadWrite}, "is empty"},
		{config.Region{Name: "a", File: dir, Access: config.ReadOnly}, "is a directory, and no regular file"},
	} {
		c := settings(loopback())
		c.Devices[0].Regions = config.DefaultRegionsPort
		c.Regions = []config.Region{tt.r}
		s, err := server.Start(t.Context(), c, server.Options{Targets: []server.Target{}})
		if err == nil {
			s.Shutdown(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "region a") {
			t.Errorf("%+v: %v", tt.r, err)
		}
	}
}

// Two devices have the same bytes.
func TestRegionOnTwoDevices(t *testing.T) {
	t.Parallel()
	second := loopback()
	d := start(t, func(c *config.Config) {
		c.Devices[0].Regions = config.DefaultRegionsPort
		c.Devices = append(c.Devices, config.Device{Address: second.String(), Regions: 9000})
		c.Regions = []config.Region{{Name: "both", Size: 64, Access: config.ReadWrite}, {Name: "one", Size: 64, Access: config.ReadOnly, Device: second.String()}}
	})
	a := d.dial()
	b, err := rdma.Dial(t.Context(), net.JoinHostPort(second.String(), "9000"))
	must(t, err)
	defer b.Close()
	must(t, regionNamed(t, a, "both").Write(t.Context(), []byte("shared"), 0))
	got := make([]byte, 6)
	must(t, regionNamed(t, b, "both").Read(t.Context(), got, 0))
	if string(got) != "shared" {
		t.Errorf("%q", got)
	}
	// Another size is other memory, on both.
	next := settings(d.addr)
	next.Devices, next.Regions = d.Config().Devices, []config.Region{{Name: "both", Size: 128, Access: config.ReadWrite}, {Name: "one", Size: 64, Access: config.ReadOnly, Device: second.String()}}
	_, err = d.Reload(next)
	must(t, err)
	for _, c := range []*rdma.Conn{a, b} {
		r := regionNamed(t, c, "both")
		must(t, r.Read(t.Context(), got, 0))
		if r.Size() != 128 || got[0] != 0 {
			t.Errorf("%d bytes, %q", r.Size(), got)
		}
	}
	regionNamed(t, b, "one")
	if _, err := a.Region(t.Context(), "one"); !errors.Is(err, rdma.ErrUnknownRegion) {
		t.Errorf("%v", err)
	}
}

// Shutdown disconnects clients, which notice it at once.
func TestShutdownDisconnects(t *testing.T) {
	t.Parallel()
	d := withRegions(t, config.Region{Name: "a", Size: 64, Access: config.ReadOnly})
	c := d.dial()
	regionNamed(t, c, "a")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, d.Shutdown(ctx))
	select {
	case <-c.Done():
		if !errors.Is(c.Err(), rdma.ErrPeerClosed) {
			t.Errorf("%v", c.Err())
		}
	case <-time.After(time.Minute):
		t.Error("the client does not notice")
	}
}
