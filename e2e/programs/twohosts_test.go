//go:build linux

package programs

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/e2e/guest"
	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/internal/testnet"
)

// pair joins two namespaces by a cable with the MTU of Ethernet, and returns
// the addresses of both of one IP version.
func pair(t *testing.T) (hosts [2]*guest.Alone, addrs [2][2]string) {
	t.Helper()
	hosts[0], hosts[1] = startAlone(t), startAlone(t)
	testnet.IP(t, fmt.Sprintf("-n %s link add w0 type veth peer name w0 netns %s", hosts[0].Host.Namespace(), hosts[1].Host.Namespace()))
	for i, h := range hosts {
		addrs[i] = [2]string{fmt.Sprintf("192.0.2.%d", i+1), fmt.Sprintf("2001:db8::%d", i+1)}
		testnet.IP(t, fmt.Sprintf("-n %s link set w0 up", h.Host.Namespace()))
		testnet.IP(t, fmt.Sprintf("-n %s addr add %s/24 dev w0", h.Host.Namespace(), addrs[i][0]))
		testnet.IP(t, fmt.Sprintf("-n %s addr add %s/64 dev w0 nodad", h.Host.Namespace(), addrs[i][1]))
	}
	return hosts, addrs
}

// TestTwoSecuredHosts has rping of two network namespaces, over a cable with an
// MTU of 1500, IPv4 and IPv6, go between two rocev2d that secure their devices.
// A daemon that is killed and started again agrees anew. One that is in clear
// then, whose certificate is of another authority, or that a firewall keeps
// from the other, does not, and the log says why.
func TestTwoSecuredHosts(t *testing.T) {
	enabled(t)
	install(t, append([]guest.Need{{File: "nft", Package: "nftables"}, {File: "rping", Package: "rdmacm-utils"}}, baseNeeds...))
	lib, bin, ca := library(t), compileCommand(t, "rocev2d"), testcert.New(t)
	spaces, addrs := pair(t)
	for v, version := range []string{"IPv4", "IPv6"} {
		t.Run(version, func(t *testing.T) {
			hosts, secure := [2]*securedHost{}, [2]string{}
			for i := range hosts {
				dir := openDir(t)
				hosts[i] = &securedHost{ns: spaces[i], bin: bin, at: filepath.Join(dir, "d"), addr: addrs[i][v], config: filepath.Join(dir, "rocev2d.toml")}
				cert, key, authority := ca.Files(t, dir, "host", testcert.Subject{CN: fmt.Sprint("host", i), Addr: addrs[i][v]})
				secure[i] = fmt.Sprintf("[device.secure]\ncert = %q\nkey = %q\nca = %q\nallow = [\"CN=host%d\"]\n", cert, key, authority, 1-i)
				hosts[i].start(t, secure[i])
			}
			rping := func(from, to int) error { return hosts[from].rping(t, hosts[to], lib) }
			if err := rping(1, 0); err != nil {
				t.Error(err)
			}
			hosts[1].kill(t)
			hosts[1].start(t, secure[1])
			if err := rping(0, 1); err != nil {
				t.Errorf("after a restart: %v", err)
			}
			hosts[1].kill(t)
			hosts[1].start(t, "") // in clear: the other one still has keys for it
			hosts[0].refused(t, hosts[1], lib, "connection refused", "")
			hosts[1].kill(t)
			cert, key, _ := testcert.New(t).Files(t, openDir(t), "other", testcert.Subject{CN: "host1", Addr: addrs[1][v]})
			_, rest, _ := strings.Cut(secure[1], "ca = ")
			hosts[1].start(t, fmt.Sprintf("[device.secure]\ncert = %q\nkey = %q\nca = %s", cert, key, rest))
			hosts[1].refused(t, hosts[0], lib, "does not trust the authority", "not of an authority that this side trusts")
			hosts[1].kill(t)
			hosts[0].kill(t)
			nft := func(args string) {
				if r, err := guest.Run(t.Context(), spaces[0].Host, append([]string{"nft"}, strings.Fields(args)...)...); err != nil {
					t.Fatalf("%v: %s", err, r.Stderr)
				}
			}
			nft("add table inet t")
			nft("add chain inet t i { type filter hook input priority 0 ; }")
			nft("add rule inet t i tcp dport 4791 drop")
			hosts[0].start(t, secure[0])
			hosts[1].start(t, secure[1])
			hosts[1].refused(t, hosts[0], lib, "a firewall drops it", "")
			nft("flush ruleset")
			hosts[1].kill(t)
			hosts[0].kill(t)
		})
	}
}

// rping runs it from a host to another one.
func (h *securedHost) rping(t *testing.T, to *securedHost, lib string) error {
	t.Helper()
	from, server := h.site(t, lib), to.site(t, lib)
	ctx, cancel := context.WithTimeout(t.Context(), usual)
	defer cancel()
	p, err := server.node.Start(ctx, server.argv([]string{"rping", "-s", "-a", to.addr, "-C", "3", "-V"})...)
	if err != nil {
		return err
	}
	defer func() {
		_ = p.Signal(9)
		<-p.Done()
	}()
	for try := 0; ; try++ { // whether it listens is not to be seen
		r, err := guest.Run(ctx, from.node, from.argv([]string{"rping", "-c", "-a", to.addr, "-C", "3", "-V"})...)
		if err == nil || try == 2 {
			if err != nil {
				err = fmt.Errorf("%w: %+v", err, r)
			}
			return err
		}
	}
}

// refused has a host try to reach another one, until the logs of both say why
// there are no keys.
func (h *securedHost) refused(t *testing.T, to *securedHost, lib, here, there string) {
	t.Helper()
	from := h.site(t, lib)
	ctx, cancel := context.WithTimeout(t.Context(), usual)
	defer cancel()
	p, err := from.node.Start(ctx, from.argv([]string{"rping", "-c", "-a", to.addr, "-C", "3"})...)
	if err != nil {
		t.Fatal(err)
	}
	if err := says(here)(ctx, nil, h.daemon); err != nil {
		stdout, stderr := h.daemon.Output()
		t.Errorf("%v\n%s%s", err, stdout, stderr)
	}
	if err := says(there)(ctx, nil, to.daemon); err != nil {
		stdout, stderr := to.daemon.Output()
		t.Errorf("%v\n%s%s", err, stdout, stderr)
	}
	select {
	case <-p.Done():
		if _, err := p.Wait(); err == nil {
			t.Error("rping has reached a host without keys")
		}
	default:
		_ = p.Signal(9)
		<-p.Done()
	}
}
