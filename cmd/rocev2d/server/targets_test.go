package server_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server"
	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/cmatose"
	"github.com/gosoftroce/rocev2/programs/interop/cmtime"
	"github.com/gosoftroce/rocev2/programs/interop/perftest"
	"github.com/gosoftroce/rocev2/programs/interop/pingpong"
	"github.com/gosoftroce/rocev2/programs/interop/rcopy"
	"github.com/gosoftroce/rocev2/programs/interop/rdmaclient"
	"github.com/gosoftroce/rocev2/programs/interop/rping"
	"github.com/gosoftroce/rocev2/programs/interop/rstream"
	"github.com/gosoftroce/rocev2/programs/interop/udaddy"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// client opens a device for a client.
func client(t testing.TB) *verbs.Device {
	t.Helper()
	dev, err := verbs.OpenAddr(loopback(), verbs.Config{})
	must(t, err)
	t.Cleanup(func() { dev.Close() })
	return dev
}

// serving waits until all targets serve.
func (d *daemon) serving() {
	d.t.Helper()
	until(d.t, "all targets serve", func() bool {
		list, _ := d.items("targets")
		for _, s := range list {
			if s["state"] == "failed" {
				d.t.Fatalf("%v", s)
			}
			if s["state"] != "serving" {
				return false
			}
		}
		return len(list) > 0
	})
}

// clients returns how many clients of targets have come and gone, as the
// metrics have it.
func (d *daemon) clients(names ...string) (n int) {
	d.t.Helper()
	if conns, _ := d.items("connections"); len(conns) > 0 {
		return 0
	}
	_, _, body := d.ask("GET", "/metrics", "")
	for line := range strings.Lines(body) {
		for _, name := range names {
			var k int
			if _, err := fmt.Sscanf(line, "rocev2_target_clients_total{target=\""+name+"\"} %d", &k); err == nil {
				n += k
			}
		}
	}
	return n
}

// Clients of all tools are answered at once, also those that share a port, and
// the record says who did what.
func TestTargets(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := start(t, func(c *config.Config) { c.Targets.Root = root }, server.Targets()...)
	d.serving()
	ctx := t.Context()
	var copies atomic.Int64
	var wg sync.WaitGroup
	at := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(d.addr, port) }
	for name, run := range map[string]func(*verbs.Device) error{
		"rping": func(dev *verbs.Device) error {
			res, err := rping.Run(ctx, dev, at(rping.DefaultPort), rping.Config{Count: 10, Validate: true})
			if res.Pings != 10 {
				return fmt.Errorf("%d pings, %w", res.Pings, err)
			}
			return err
		},
		"ucmatose": func(dev *verbs.Device) error {
			_, err := cmatose.Run(ctx, dev, at(cmatose.DefaultPort), cmatose.Config{Connections: 3})
			return err
		},
		"rdma_client": func(dev *verbs.Device) error {
			_, err := rdmaclient.Run(ctx, dev, at(rdmaclient.DefaultPort), rdmaclient.Config{})
			return err
		},
		"cmtime": func(dev *verbs.Device) error {
			_, err := cmtime.Run(ctx, dev, at(cmtime.DefaultPort), cmtime.Config{Connections: 100})
			return err
		},
		"rstream": func(dev *verbs.Device) error {
			_, err := rstream.Run(ctx, dev, at(rstream.DefaultPort), rstream.Config{Size: 4096, Count: 10, Iterations: 10})
			return err
		},
		"rcopy": func(dev *verbs.Device) error {
			f, err := os.Open("targets_test.go")
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = rcopy.Run(ctx, dev, at(rcopy.DefaultPort), f, fmt.Sprintf("copy-%d", copies.Add(1)), rcopy.Config{})
			return err
		},
		"perftest": func(dev *verbs.Device) error {
			conn, err := interop.Dial(ctx, dev.Addr(), d.addr.String(), d.port)
			if err != nil {
				return err
			}
			_, err = perftest.Run(ctx, dev, conn, interop.Client, perftest.Config{Test: perftest.Test{Verb: perftest.Write, Kind: perftest.Bandwidth}, Iterations: 500})
			return err
		},
		"pingpong": func(dev *verbs.Device) error {
			conn, err := interop.Dial(ctx, dev.Addr(), d.addr.String(), d.port)
			if err != nil {
				return err
			}
			_, err = pingpong.Run(ctx, dev, conn, interop.Client, pingpong.Config{Iterations: 100})
			return err
		},
		"udaddy": func(dev *verbs.Device) error {
			_, err := udaddy.Run(ctx, dev, at(udaddy.DefaultPort), udaddy.Config{})
			return err
		},
	} {
		dev := client(t)
		for range 3 {
			wg.Go(func() {
				if err := run(dev); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
	}
	wg.Wait()
	until(t, "all are recorded", func() bool {
		return d.clients("rping", "ucmatose", "rdma_server", "cmtime", "udaddy", "perftest") == 3+9+3+300+3+6
	})
	list, _ := d.items("peers")
	counts := map[string]int{}
	for _, v := range list {
		if v["error"] != nil {
			t.Errorf("%v", v)
		}
		counts[v["target"].(string)] += int(v["count"].(float64))
	}
	if counts["rping"] != 3 || counts["ucmatose"] != 9 || counts["rdma_client"] != 3 || counts["udaddy"] != 3 || counts["cmtime"] != 300 ||
		counts["ib_write_bw"] != 3 || counts["ibv_rc_pingpong"] != 3 || counts["rstream"] != 3 || counts["rcopy"] != 3 {
		t.Errorf("%v", counts)
	}
	if files, err := os.ReadDir(root); err != nil || len(files) != 3 {
		t.Errorf("%d files: %v", len(files), err)
	}
	for _, v := range list {
		if v["target"] == "rping" && !strings.HasPrefix(v["result"].(string), "10 pings, 1280 bytes") {
			t.Errorf("%v", v)
		}
	}
}

// A client of perftest or of a ping-pong is there while it runs: people see it,
// and an end of the daemon waits for it, takes no others, and says so.
func TestDrainWaitsForTargets(t *testing.T) {
	t.Parallel()
	d := start(t, func(c *config.Config) { c.Targets.Only = []string{"perftest"} }, server.Targets()...)
	d.serving()
	dev := client(t)
	run := func(ctx context.Context) error {
		conn, err := interop.Dial(ctx, dev.Addr(), d.addr.String(), d.port)
		if err != nil {
			return err
		}
		_, err = pingpong.Run(ctx, dev, conn, interop.Client, pingpong.Config{Iterations: 1 << 30, RxDepth: 1})
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ran, ended := make(chan error, 1), make(chan error, 1)
	go func() { ran <- run(ctx) }()
	until(t, "the client is there", func() bool {
		list, _ := d.items("connections")
		return len(list) == 1 && list[0]["target"] == "perftest"
	})
	go func() { ended <- d.Shutdown(t.Context()) }()
	until(t, "the daemon drains", func() bool { return d.get("status")["draining"] == true })
	if v := d.get("status"); v["ready"] != false || v["clients"] != 1.0 {
		t.Errorf("%v", v)
	}
	if err := run(t.Context()); err == nil || !strings.Contains(err.Error(), "about to end") {
		t.Errorf("another client: %v", err)
	}
	select {
	case err := <-ran:
		t.Errorf("the client was cut off: %v", err)
	case err := <-ended:
		t.Errorf("the daemon has ended: %v", err)
	default:
	}
	cancel()
	<-ran
	if err := <-ended; err != nil {
		t.Errorf("%v", err)
	}
}

// A client that is still there when the time of the drain is over is cut off,
// and the log says that the daemon did it.
func TestCutOff(t *testing.T) {
	t.Parallel()
	var log safeBuffer
	addr := loopback()
	c := settings(addr)
	c.Targets.Only = []string{"perftest"}
	c.Targets.Ports["perftest"] = freePort(addr)
	must(t, c.Check())
	s, err := server.Start(t.Context(), c, server.Options{Targets: server.Targets(), Log: slog.New(slog.NewTextHandler(&log, nil))})
	must(t, err)
	d := &daemon{Server: s, t: t, url: "http://" + s.AdminAddr().String()}
	d.serving()
	dev, ran := client(t), make(chan error, 1)
	conn, err := interop.Dial(t.Context(), dev.Addr(), addr.String(), c.Targets.Ports["perftest"])
	must(t, err)
	go func() {
		_, err := pingpong.Run(t.Context(), dev, conn, interop.Client, pingpong.Config{Iterations: 1 << 30, RxDepth: 1})
		ran <- err
	}()
	until(t, "the client is there", func() bool { _, n := d.items("connections"); return n == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); err == nil || !strings.Contains(err.Error(), "1 clients") {
		t.Errorf("%v", err)
	}
	if <-ran == nil {
		t.Error("the client was not cut off")
	}
	if text := log.String(); !strings.Contains(text, "cut off: the daemon has ended") || strings.Contains(text, "context canceled") || strings.Contains(text, "closed RDMA object") {
		t.Error(text)
	}
}

// safeBuffer is a buffer for several goroutines.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// mckey without groups has nothing to listen to, and is not listed.
func TestNoGroups(t *testing.T) {
	t.Parallel()
	d := start(t, nil, server.Targets()...)
	list, _ := d.items("targets")
	for _, s := range list {
		if s["name"] == "mckey" {
			t.Errorf("%v", s)
		}
	}
	if len(list) == 0 {
		t.Error("no target is listed")
	}
}

// A request that fits no tool of the port is refused and told of.
func TestForeignRequest(t *testing.T) {
	t.Parallel()
	d := start(t, nil, server.Targets()...)
	d.serving()
	dev := client(t)
	q := equip(t, dev, 1)[0]
	_, err := cm.Dial(t.Context(), q, netip.AddrPortFrom(d.addr, 7471), cm.DialConfig{RetryCount: verbs.Set(uint8(3)), PrivateData: []byte("something else")})
	if err == nil {
		t.Fatal("it was accepted")
	}
	until(t, "it is told", func() bool {
		errs, _ := d.items("errors")
		return len(errs) == 1 && strings.Contains(errs[0]["what"].(string), "like that of none of ucmatose, rdma_client") && errs[0]["peer"] == dev.Addr().String()
	})
}
