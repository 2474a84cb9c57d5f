package faces

import (
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/pair"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// A forged request is one that a listener takes.
func TestForgedRequest(t *testing.T) {
	t.Parallel()
	src, to := netip.MustParseAddr("127.66.0.1"), netip.MustParseAddrPort("127.0.0.1:7471")
	b := forgedREQ(src, to, 40000)
	flow := rocev2.NewFlow(src, to.Addr(), 40000, rocev2.UDPPort)
	if _, ok := flow.Recover(b); !ok {
		t.Error("the ICRC is wrong")
	}
	var p rocev2.Packet
	if err := p.Parse(b); err != nil {
		t.Fatal(err)
	}
	_, m, err := mad.Parse(p.Payload)
	if err != nil {
		t.Fatal(err)
	}
	req, ok := m.(*mad.REQ)
	if !ok || req.ServiceID != mad.PortSpaceTCP.Service(7471) {
		t.Fatalf("%+v", m)
	}
	var ip mad.IPHeader
	if _, err := ip.Parse(req.Private); err != nil || ip.Source != src || ip.Destination != to.Addr() {
		t.Errorf("%+v, %v", ip, err)
	}
}

func TestForgedSources(t *testing.T) {
	t.Parallel()
	seen := map[netip.Addr]bool{}
	f := &flood{base: newBase(Config{Addr: "127.0.0.2", From: ManySources})}
	for range 1000 {
		a := f.source()
		if !a.IsLoopback() || a.As4()[1] < 64 {
			t.Fatalf("%v may be that of somebody", a)
		}
		seen[a] = true
	}
	if len(seen) < 900 {
		t.Errorf("%d sources of 1000", len(seen))
	}
	f.cfg.From = OwnSource
	if a := f.source(); a.String() != "127.0.0.2" {
		t.Errorf("the client's address is %v", a)
	}
}

func TestSampleJoinsBothSides(t *testing.T) {
	t.Parallel()
	side := func(rss float64, errors map[string]uint64) pair.Result {
		return pair.Result{Values: map[string]float64{"rss_mb": rss, "cpu_seconds": 2, "messages": 4, "heap_objects": 8}, Errors: errors}
	}
	s := sample(side(30, map[string]uint64{"lost": 2}), side(12, map[string]uint64{"lost": 1}), "both_rss_mb")
	if s.Value != 42 || s.Extra["passive_rss_mb"] != 30 || s.Extra["active_cpu_us_per_msg"] != 5e5 || s.Extra["passive_allocs_per_msg"] != 2 {
		t.Errorf("%+v", s)
	}
	if s.OK() || s.Errors["lost"] != 3 {
		t.Errorf("errors %v", s.Errors)
	}
}

func TestOwnCosts(t *testing.T) {
	t.Parallel()
	if m := memoryOf(os.Getpid()); m.rss < 1 || m.pss > m.rss {
		t.Errorf("%+v", m)
	}
	cpu, err := cpuOf(os.Getpid())
	if err != nil || cpu <= 0 || cpu > time.Hour {
		t.Errorf("%v, %v", cpu, err)
	}
}

// What runs before the window does not count. The bubble's clock stands still
// until its only goroutine waits.
func TestMeasured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBase(Config{Warm: 20 * time.Millisecond, Measure: 50 * time.Millisecond})
		defer b.cancel()
		calls := 0
		n, took, err := b.measured(2, func() error {
			calls++
			<-time.After(time.Millisecond)
			return nil
		})
		if err != nil || n != 50 || calls != 70 || took != b.cfg.Measure {
			t.Errorf("%d of %d in %v, %v", n, calls, took, err)
		}
	})
}

func TestRateOfTheTool(t *testing.T) {
	t.Parallel()
	if v, err := rateOf("1073741824 bytes in 1.440 s, 5.96 Gb/s\n"); err != nil || v != 5.96 {
		t.Errorf("%v, %v", v, err)
	}
	if _, err := rateOf("rocev2: refused"); err == nil {
		t.Error("an error of the tool tells a rate")
	}
}

// What the tool's two sides say comes back, and so does what went wrong.
func TestConverse(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skipf("this system has no shell (run it on a Unix): %v", err)
	}
	sh := func(script string) *exec.Cmd { return exec.CommandContext(t.Context(), "/bin/sh", "-c", script) }
	for _, c := range []struct{ server, client, said, err string }{
		{"echo waiting >&2; cat >/dev/null </dev/null", "echo '{}'", "{}\n", ""},
		{"echo bad flag >&2; exit 2", "echo '{}'", "", "bad flag"},
		{"echo waiting >&2; exec sleep 600", "echo no route >&2; exit 1", "", "no route"},
		{"exit 3", "true", "", "exit status 3"},
	} {
		said, err := converse(sh(c.server), sh(c.client))
		if string(said) != c.said || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s | %s: %q, %v; want %q, %q", c.server, c.client, said, err, c.said, c.err)
		}
	}
}
