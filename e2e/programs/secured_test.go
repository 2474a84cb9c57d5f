//go:build linux

package programs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/e2e/guest"
	"github.com/gosoftroce/rocev2/internal/testcert"
)

// securedHost is an address with a rocev2d that secures its device.
type securedHost struct {
	ns           *guest.Alone
	bin, at      string
	addr, config string
	daemon       *guest.Process
}

// start starts the daemon, secured or not.
func (h *securedHost) start(t *testing.T, secure string) {
	t.Helper()
	text := fmt.Sprintf("drain = \"0s\"\n[admin]\nlisten = \"\"\n[targets]\nenabled = false\n[programs]\ndirectory = %q\nusers = [\"65534\"]\n[[device]]\naddress = %q\n%s", h.at, h.addr, secure)
	if err := os.WriteFile(h.config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var err error
	if h.daemon, err = h.ns.Host.Start(t.Context(), h.bin, "--config", h.config); err != nil {
		t.Fatal(err)
	}
	if err := says("msg=ready")(t.Context(), nil, h.daemon); err != nil {
		stdout, stderr := h.daemon.Output()
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
}

// kill ends the daemon, so that it cannot say anything.
func (h *securedHost) kill(t *testing.T) {
	t.Helper()
	if err := h.daemon.Signal(9); err != nil {
		t.Fatal(err)
	}
	<-h.daemon.Done()
}

// site is where programs of an ordinary user run.
func (h *securedHost) site(t *testing.T, lib string) *site {
	t.Helper()
	s := &site{node: h.ns.Host, addr: h.addr, wrap: []string{
		"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--no-new-privs",
		"env", "ROCEV2_PROGRAMS=" + h.at, "LD_PRELOAD=" + lib,
	}}
	if err := s.learn(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// sniff begins to print the packets between the two hosts that match.
func sniff(t *testing.T, ns *guest.Alone, filter string) *guest.Process {
	t.Helper()
	two := fmt.Sprintf("udp dst port 4791 and ((src host %[1]v and dst host %[2]v) or (src host %[2]v and dst host %[1]v))", ns.Addrs[0], ns.Addrs[1])
	p, err := ns.Host.Start(t.Context(), "tcpdump", "-i", "lo", "-n", "-l", "-s", "64", "-B", "65536", "-c", "20", "-Z", "root", two+" and "+filter)
	if err != nil {
		t.Fatal(err)
	}
	if err := says("listening on")(t.Context(), nil, p); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSecuredHosts runs unmodified programs between two rocev2d that secure
// their devices: they know nothing of it, and not one of their packets is in
// clear.
func TestSecuredHosts(t *testing.T) {
	enabled(t)
	needs := append([]guest.Need{{File: "tcpdump", Package: "tcpdump"}}, baseNeeds...)
	var run []*cell
	all := os.Getenv(allEnv) == "all"
	for _, c := range cells() {
		if all {
			needs = append(needs, c.needs...)
		}
		if c.client != nil && (c.short || all) && !strings.Contains(c.name, "mckey") { // multicast is refused
			run = append(run, c)
		}
	}
	install(t, needs)
	lib, ns := library(t), startAlone(t)
	bin, ca := compileCommand(t, "rocev2d"), testcert.New(t)
	hosts, secure := [2]*securedHost{}, [2]string{}
	for i := range hosts {
		dir, addr := openDir(t), ns.Addrs[i].String()
		hosts[i] = &securedHost{ns: ns, bin: bin, at: filepath.Join(dir, "d"), addr: addr, config: filepath.Join(dir, "rocev2d.toml")}
		cert, key, authority := ca.Files(t, dir, "host", testcert.Subject{CN: fmt.Sprint("host", i), Addr: addr})
		secure[i] = fmt.Sprintf("[device.secure]\ncert = %q\nkey = %q\nca = %q\nallow = [\"CN=host%d\"]\n", cert, key, authority, 1-i)
		hosts[i].start(t, secure[i])
	}
	const sealed = "udp[8] = 17 and udp[9] = 1"
	inClear, isSealed := sniff(t, ns, "not ("+sealed+")"), sniff(t, ns, sealed)
	one, two := hosts[0].site(t, lib), hosts[1].site(t, lib)
	r := &runner{dir: openDir(t), port: nextPort}
	if all {
		writeFiles(t, r.dir)
	}
	for _, c := range run {
		r.cell(t, c, twoOwners, one, two)
	}
	<-isSealed.Done()
	pingpong := func(t *testing.T) error {
		t.Helper()
		port := nextPort(t)
		argv := func(s *site, more ...string) []string {
			return s.argv(append([]string{"ibv_rc_pingpong", "-d", s.dev, "-g", fmt.Sprint(s.gid), "-p", fmt.Sprint(port), "-n", "100"}, more...))
		}
		ctx, cancel := context.WithTimeout(t.Context(), usual)
		defer cancel()
		server, err := one.node.Start(ctx, argv(one)...)
		if err != nil {
			return err
		}
		if err := one.node.WaitListen(ctx, port); err != nil {
			return err
		}
		res, err := guest.Run(ctx, two.node, argv(two, one.addr)...)
		if err != nil {
			_ = server.Signal(9)
			<-server.Done()
			return fmt.Errorf("%w: %+v", err, res)
		}
		_, err = server.Wait()
		return err
	}
	t.Run("restart", func(t *testing.T) {
		hosts[1].kill(t)
		hosts[1].start(t, secure[1])
		two = hosts[1].site(t, lib)
		if err := pingpong(t); err != nil {
			t.Error(err)
		}
	})
	stdout, stderr := inClear.Output()
	if strings.Contains(stdout, " IP ") {
		t.Errorf("packets in clear:\n%s%s", stdout, stderr)
	}
	t.Run("no certificate", func(t *testing.T) {
		hosts[1].kill(t)
		hosts[1].start(t, "")
		two = hosts[1].site(t, lib)
		if err := pingpong(t); err == nil {
			t.Error("a host in clear has reached one that is secured")
		}
	})
}
