package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

// granting lets a host open devices, on a network of their own.
func granting(h *Host) {
	h.Open = func(addr netip.Addr, c verbs.Config) (*verbs.Device, error) {
		link, _ := fabric.Pair(addr, netip.MustParseAddr("203.0.113.1"))
		return verbs.OpenLink(link, c)
	}
}

func diagnose(t *testing.T, h *Host, device string) []Finding {
	t.Helper()
	var c Config
	if c.Host = h; device != "" {
		c.Device = netip.MustParseAddr(device)
	}
	n := 0
	c.OnFinding = func(Finding) { n++ }
	list, err := Run(t.Context(), c)
	if err != nil || n != len(list) {
		t.Fatalf("%d findings, told of %d: %v", len(list), n, err)
	}
	for _, f := range list {
		if f.Check == "" || f.Text == "" || f.Status == Problem && f.Advice == "" {
			t.Errorf("a finding without words: %+v", f)
		}
	}
	return list
}

// TestHealthy: nothing is found on a host that is in order, apart from what the
// network of a test does not grant.
func TestHealthy(t *testing.T) {
	t.Parallel()
	h := testHost()
	h.Output = func(string, ...string) (string, error) { return "", nil }
	list := diagnose(t, h, "")
	if Worst(list) != OK {
		t.Errorf("%v", list)
	}
	seen := make(map[string]bool)
	for _, f := range list {
		seen[f.Check] = true
		if f.Status == NotChecked && f.Check != "offloads" { // no device opens here
			t.Errorf("%v", f)
		}
	}
	for _, want := range []string{"address", "gid", "port", "mtu", "kernel rdma", "firewall", "counters", "buffers", "offloads", "privilege", "ipv6", "rp_filter", "capabilities", "memory"} {
		if !seen[want] {
			t.Errorf("%s is not looked at", want)
		}
	}
	if _, err := json.Marshal(list); err != nil {
		t.Error(err)
	}
	if list := diagnose(t, h, "127.4.5.6"); list[0].Subject != "127.4.5.6" {
		t.Errorf("%v", list[0])
	}
}

// A port whose owner leases parts of it is no problem.
func TestSharedPort(t *testing.T) {
	t.Parallel()
	h := testHost()
	h.Bind = func(netip.AddrPort) error { return syscall.EADDRINUSE }
	n := rand.Uint32()
	at := netip.AddrFrom4([4]byte{127, byte(n>>16)%250 + 2, byte(n >> 8), byte(n)%250 + 2})
	h.Open = func(_ netip.Addr, c verbs.Config) (*verbs.Device, error) { return verbs.OpenAddr(at, c) }
	for _, f := range diagnose(t, h, "127.0.0.1") {
		if f.Check == "port" && (f.Status != OK || !strings.Contains(f.Text, "shared: ")) {
			t.Errorf("%v", f)
		}
	}
}

// TestFindings breaks one thing after the other.
func TestFindings(t *testing.T) {
	t.Parallel()
	proc := func(name, text string) func(*Host) { return func(h *Host) { h.put(name, text) } }
	rules := func(tool, text string) func(*Host) {
		return func(h *Host) {
			h.Output = func(name string, _ ...string) (string, error) {
				if name == tool {
					return text, nil
				}
				return "", os.ErrNotExist
			}
		}
	}
	eth0 := func(f func(*Interface)) func(*Host) { return func(h *Host) { f(&h.Interfaces[1]) } }
	second := func(h *Host) {
		h.Interfaces = append(h.Interfaces, h.Interfaces[1])
		h.Interfaces[2].Name, h.Interfaces[2].Addrs = "eth1", addrs("192.0.2.99")
	}
	for name, c := range map[string]struct {
		do     []func(*Host)
		status Status
		want   string // in the finding as a line
	}{
		"no address":      {[]func(*Host){func(h *Host) { h.Interfaces = nil }}, Problem, "no interface has an address"},
		"down":            {[]func(*Host){eth0(func(i *Interface) { i.Flags = 0 })}, Problem, "ip link set eth0 up"},
		"no carrier":      {[]func(*Host){eth0(func(i *Interface) { i.Flags = net.FlagUp })}, Problem, "no carrier"},
		"taken":           {[]func(*Host){func(h *Host) { h.Bind = func(netip.AddrPort) error { return syscall.EADDRINUSE } }}, Problem, "port 192.0.2.7:4791: taken"},
		"taken by rxe":    {[]func(*Host){func(h *Host) { h.rxe("1"); h.Bind = func(netip.AddrPort) error { return syscall.EADDRINUSE } }}, Problem, "modprobe -r rdma_rxe"},
		"rxe":             {[]func(*Host){func(h *Host) { h.rxe("1") }}, Warning, "rdma link delete rxe0"},
		"module":          {[]func(*Host){func(h *Host) { h.Sys = fstest.MapFS{"module/rdma_rxe/refcnt": file("0")} }}, Warning, "the module is loaded"},
		"small MTU":       {[]func(*Host){eth0(func(i *Interface) { i.MTU = 1500 })}, OK, "mtu eth0: 1500 bytes carry a path MTU of 1024, secured connections too; peers must not"},
		"jumbo":           {[]func(*Host){eth0(func(i *Interface) { i.MTU = 4200 })}, OK, "mtu eth0: 4200 bytes carry a path MTU of 4096, and 2048 of secured connections"},
		"tiny":            {[]func(*Host){eth0(func(i *Interface) { i.MTU = 340 })}, OK, "carry a path MTU of 256, and no secured connection"},
		"no MTU":          {[]func(*Host){eth0(func(i *Interface) { i.MTU = 335 })}, Problem, "not even the smallest path MTU"},
		"receive errors":  {[]func(*Host){proc("net/snmp", "Udp: InErrors RcvbufErrors\nUdp: 9 9")}, Warning, "RcvbufErrors: 9 datagrams"},
		"checksums":       {[]func(*Host){proc("net/snmp", "Udp: InErrors InCsumErrors\nUdp: 9 9")}, Warning, "wrong UDP checksum"},
		"other errors":    {[]func(*Host){proc("net/snmp", "Udp: InErrors RcvbufErrors\nUdp: 9 0")}, Warning, "InErrors: 9 datagrams"},
		"send errors":     {[]func(*Host){proc("net/snmp", "Udp: SndbufErrors\nUdp: 3")}, Warning, "SndbufErrors: 3"},
		"no counters":     {[]func(*Host){func(h *Host) { delete(h.Proc.(fstest.MapFS), "net/snmp") }}, NotChecked, "counters"},
		"buffers":         {[]func(*Host){proc("sys/net/core/rmem_max", "212992")}, Warning, "sysctl -w net.core.rmem_max=16777216"},
		"admin":           {[]func(*Host){proc("sys/net/core/rmem_max", "212992"), proc("self/status", "CapEff: 0000000000001000")}, OK, "CAP_NET_ADMIN and gets"},
		"port start":      {[]func(*Host){proc("sys/net/ipv4/ip_unprivileged_port_start", "5000")}, Problem, "ordinary users may not"},
		"port start, cap": {[]func(*Host){proc("sys/net/ipv4/ip_unprivileged_port_start", "5000"), proc("self/status", "CapEff: 0000000000000400")}, OK, "as this one has"},
		"port range":      {[]func(*Host){proc("sys/net/ipv4/ip_local_port_range", "1024 65535"), proc("sys/net/ipv4/ip_local_reserved_ports", "80")}, Warning, "ip_local_reserved_ports=80,4791"},
		"reserved":        {[]func(*Host){proc("sys/net/ipv4/ip_local_port_range", "1024 65535"), proc("sys/net/ipv4/ip_local_reserved_ports", "80,4790-4792")}, OK, "which is reserved"},
		"no IPv6":         {[]func(*Host){proc("sys/net/ipv6/conf/all/disable_ipv6", "1")}, Warning, "IPv6 is off"},
		"rp_filter":       {[]func(*Host){proc("sys/net/ipv4/conf/all/rp_filter", "1"), proc("sys/net/ipv4/conf/eth1/rp_filter", "0"), second}, Warning, "rp_filter eth0: strict"},
		"rp_filter alone": {[]func(*Host){proc("sys/net/ipv4/conf/all/rp_filter", "1")}, OK, "rp_filter eth0: 1: no obstacle"},
		"no firewall":     {nil, NotChecked, "no rules can be read by nft, iptables, ip6tables"},
		"nft drops":       {[]func(*Host){rules("nft", "table inet f {\n chain in {\n  type filter hook input priority 0; policy accept;\n  udp dport 4791 drop\n }\n}")}, Problem, "a rule of chain in drops UDP port 4791"},
		"nft set":         {[]func(*Host){rules("nft", "table inet f {\n chain in {\n  type filter hook input priority 0; policy accept;\n  ip saddr 10.0.0.1 udp dport { 53, 4700-4800 } counter reject\n }\n}")}, Problem, "drops UDP port 4791"},
		"nft policy":      {[]func(*Host){rules("nft", "table inet f {\n chain in {\n  type filter hook input priority 0; policy drop;\n  tcp dport 22 accept\n }\n}")}, Warning, "no rule is seen that allows"},
		"nft end":         {[]func(*Host){rules("nft", "table inet f {\n chain in {\n  type filter hook input priority 0; policy accept;\n  tcp dport 22 accept\n  counter packets 1 bytes 2 drop\n }\n}")}, Warning, "no rule is seen that allows"},
		"nft allows":      {[]func(*Host){rules("nft", "table inet f {\n chain in {\n  type filter hook input priority 0; policy drop;\n  udp dport 4791 accept\n }\n chain out {\n  type filter hook output priority 0; policy drop;\n }\n}")}, OK, "no rule is seen that drops"},
		"iptables drops":  {[]func(*Host){rules("iptables", "-P INPUT ACCEPT\n-A INPUT -p udp -m udp --dport 4791 -j DROP")}, Problem, "-j DROP"},
		"iptables range":  {[]func(*Host){rules("ip6tables", "-P INPUT ACCEPT\n-A INPUT -p udp -m multiport --dports 53,4000:5000 -j REJECT")}, Problem, "firewall ip6tables"},
		"iptables policy": {[]func(*Host){rules("iptables", "-P INPUT DROP\n-A INPUT -p tcp --dport 22 -j ACCEPT")}, Warning, "chain INPUT drops"},
		"iptables end":    {[]func(*Host){rules("iptables", "-P INPUT ACCEPT\n-A INPUT -j REJECT --reject-with icmp-port-unreachable")}, Warning, "chain INPUT drops"},
		"iptables allows": {[]func(*Host){rules("iptables", "-P INPUT DROP\n-A INPUT -p udp --dport 4791 -j ACCEPT")}, OK, "no rule is seen that drops"},
		"offloads":        {[]func(*Host){granting}, Warning, "offloads GSO: not granted"},
		"another system":  {[]func(*Host){func(h *Host) { h.OS, h.Proc = "plan9", fstest.MapFS{} }}, NotChecked, "not looked at on plan9"},
		"no locked limit": {[]func(*Host){func(h *Host) { delete(h.Proc.(fstest.MapFS), "self/limits") }}, NotChecked, "locked memory cannot be read"},
	} {
		h := testHost()
		for _, f := range c.do {
			f(h)
		}
		found := false
		var lines []string
		for _, f := range diagnose(t, h, "") {
			lines = append(lines, f.String())
			found = found || f.Status == c.status && strings.Contains(f.String(), c.want)
		}
		if !found {
			t.Errorf("%s: no finding %v with %q in:\n%s", name, c.status, c.want, strings.Join(lines, "\n"))
		}
	}
}

// TestTunnelSocket: the kernel's own socket belongs to no process.
func TestTunnelSocket(t *testing.T) {
	t.Parallel()
	h := testHost()
	h.put("net/udp", " 1: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 555 2 0 7")
	var kernel, drops bool
	for _, f := range diagnose(t, h, "") {
		kernel = kernel || f.Check == "kernel rdma" && f.Status == Warning && strings.Contains(f.Text, "no visible process")
		drops = drops || f.Check == "counters" && strings.Contains(f.Text, "7 datagrams were dropped at this socket")
	}
	if !kernel || !drops {
		t.Errorf("tunnel socket seen: %v, its drops: %v", kernel, drops)
	}
	h.Proc.(fstest.MapFS)["99/fd/3"] = &fstest.MapFile{Data: []byte("socket:[555]"), Mode: fs.ModeSymlink}
	for _, f := range diagnose(t, h, "") {
		if f.Check == "kernel rdma" && f.Status == Warning {
			t.Errorf("a process's socket is taken for the kernel's: %v", f)
		}
	}
}

// TestPortAdvice: what to do fits why the port cannot be had.
func TestPortAdvice(t *testing.T) {
	t.Parallel()
	fails := func(err error) func(netip.AddrPort) error { return func(netip.AddrPort) error { return err } }
	for name, c := range map[string]struct {
		err              error
		holder           bool
		text, advice, no string
	}{
		"a process, and Soft-RoCE elsewhere": {syscall.EADDRINUSE, true, "taken: process 99", "ss -ulpn", "rdma_rxe"},
		"Soft-RoCE":                          {syscall.EADDRINUSE, false, "taken: probably", "modprobe -r rdma_rxe", "ss -ulpn"},
		"not allowed":                        {syscall.EACCES, false, "refused: permission denied", "ip_unprivileged_port_start", "modprobe"},
		"no such address":                    {syscall.EADDRNOTAVAIL, false, "cannot be had: ", "ip address show dev eth0", "modprobe"},
	} {
		h := testHost()
		h.rxe("1")
		h.Bind = fails(c.err)
		if c.holder {
			h.put("net/udp", " 1: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 555 2 0 0")
			h.put("99/comm", "other")
			h.Proc.(fstest.MapFS)["99/fd/3"] = &fstest.MapFile{Data: []byte("socket:[555]"), Mode: fs.ModeSymlink}
		}
		for _, f := range diagnose(t, h, "192.0.2.7") {
			if line := f.String(); f.Check == "port" && (!strings.Contains(f.Text, c.text) || !strings.Contains(f.Advice+" "+f.Command, c.advice) || strings.Contains(f.Advice+" "+f.Command, c.no)) {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := Run(ctx, Config{Host: testHost()}); !errors.Is(err, why) {
		t.Errorf("error is %v", err)
	}
	if _, err := Run(t.Context(), Config{Host: testHost(), Device: netip.MustParseAddr("203.0.113.9")}); err == nil {
		t.Error("an address of nobody is looked at")
	}
}

// TestThisHost: whatever the host that runs the test is like.
func TestThisHost(t *testing.T) {
	t.Parallel()
	list, err := Run(t.Context(), Config{})
	if err != nil || len(list) < 5 {
		t.Errorf("%v, %v", list, err)
	}
}
