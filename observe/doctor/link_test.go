package doctor

import (
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/gosoftroce/rocev2/verbs"
)

func file(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s + "\n")} }

func addrs(list ...string) (a []netip.Addr) {
	for _, s := range list {
		a = append(a, netip.MustParseAddr(s))
	}
	return a
}

// testHost is a host with lo and eth0, all in order.
func testHost() *Host {
	up := net.FlagUp | net.FlagRunning
	return &Host{
		OS: "linux",
		Proc: fstest.MapFS{
			"net/udp":               file("  sl  local_address"),
			"sys/net/core/rmem_max": file("16777216"), "sys/net/core/wmem_max": file("4194304"),
			"sys/net/ipv4/ip_unprivileged_port_start": file("1024"),
			"sys/net/ipv4/ip_local_port_range":        file("32768\t60999"),
			"sys/net/ipv4/ip_local_reserved_ports":    file(""),
			"sys/net/ipv6/conf/all/disable_ipv6":      file("0"),
			"sys/net/ipv4/conf/all/rp_filter":         file("0"),
			"sys/net/ipv4/conf/eth0/rp_filter":        file("0"),
			"net/snmp":                                {Data: []byte("Udp: InDatagrams InErrors RcvbufErrors SndbufErrors InCsumErrors\nUdp: 1000000 0 0 0 0\n")},
			"self/status":                             {Data: []byte("Name:\tx\nCapEff:\t0000000000000000\n")},
			"self/limits":                             {Data: []byte("Limit                     Soft Limit           Hard Limit           Units     \nMax locked memory         8388608              8388608              bytes     \n")},
		},
		Sys: fstest.MapFS{},
		Interfaces: []Interface{
			{Interface: net.Interface{Index: 1, Name: "lo", MTU: 65536, Flags: up | net.FlagLoopback}, Addrs: addrs("127.0.0.1", "::1")},
			{Interface: net.Interface{Index: 2, Name: "eth0", MTU: 9000, Flags: up, HardwareAddr: net.HardwareAddr{0x02, 0, 0, 1, 2, 3}},
				Addrs: addrs("192.0.2.7", "2001:db8::7", "fe80::ff:fe01:203%eth0", "192.0.2.8")},
		},
		Bind:   func(netip.AddrPort) error { return nil },
		Open:   func(netip.Addr, verbs.Config) (*verbs.Device, error) { return nil, syscall.EADDRNOTAVAIL },
		Output: func(string, ...string) (string, error) { return "", os.ErrNotExist },
	}
}

func (h *Host) put(name, text string) {
	h.Proc.(fstest.MapFS)[name] = file(text)
}

func TestGIDText(t *testing.T) {
	t.Parallel()
	g := GID(netip.MustParseAddr("192.0.2.7").As16())
	if got := g.String(); got != "0000:0000:0000:0000:0000:ffff:c000:0207" {
		t.Error(got)
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	h := testHost()
	h.Sys = fstest.MapFS{"class/net/eth0/ifindex": file("2"), "class/net/eth0/speed": file("25000"), "class/net/lo/ifindex": file("9"), "class/net/lo/speed": file("5")}
	h.Interfaces = append(h.Interfaces,
		Interface{Interface: net.Interface{Index: 3, Name: "eth1", MTU: 1500, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}}, Addrs: addrs("198.51.100.1")},
		Interface{Interface: net.Interface{Index: 4, Name: "eth2", MTU: 300, Flags: net.FlagUp}, Addrs: addrs("198.51.100.2")})
	h.Bind = func(at netip.AddrPort) error {
		if at.Port() != verbs.UDPPort {
			t.Errorf("port %d", at.Port())
		}
		if at.Addr() == netip.MustParseAddr("192.0.2.8") {
			return &net.OpError{Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
		}
		return nil
	}
	want := map[string]Link{
		"127.0.0.1":              {State: "ACTIVE", PathMTU: 4096, GIDIndex: 1, Free: true},
		"::1":                    {State: "ACTIVE", PathMTU: 4096, GIDIndex: 2, Free: true},
		"192.0.2.7":              {State: "ACTIVE", PathMTU: 4096, GIDIndex: 1, Free: true, Speed: 25000},
		"192.0.2.8":              {State: "ACTIVE", PathMTU: 4096, GIDIndex: 2, Speed: 25000},
		"2001:db8::7":            {State: "ACTIVE", PathMTU: 4096, GIDIndex: 3, Free: true, Speed: 25000},
		"fe80::ff:fe01:203%eth0": {State: "ACTIVE", PathMTU: 4096, GIDIndex: 0, Free: true, Speed: 25000}, // that of the MAC
		"198.51.100.1":           {State: "DOWN", PathMTU: 1024, GIDIndex: 1, Free: true},
		"198.51.100.2":           {State: "DOWN", PathMTU: 0, GIDIndex: 1, Free: true},
	}
	list := h.Links()
	if len(list) != len(want) {
		t.Errorf("%d links, want %d", len(list), len(want))
	}
	for _, l := range list {
		w := want[l.Addr.String()]
		if l.State != w.State || l.PathMTU != w.PathMTU || l.GIDIndex != w.GIDIndex || l.Free != w.Free || l.Speed != w.Speed {
			t.Errorf("%v: %+v; want %+v", l.Addr, l, w)
		}
		if (l.Reason == "") != (l.State == "ACTIVE") || (l.Holder == "") != l.Free {
			t.Errorf("%v: reason %q, holder %q", l.Addr, l.Reason, l.Holder)
		}
	}
	if l, err := h.LinkOf(netip.MustParseAddr("127.3.3.3")); err != nil || l.Interface != "lo" {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := h.LinkOf(netip.MustParseAddr("203.0.113.1")); err == nil {
		t.Error("an address of nobody has a link")
	}
}

// rxe puts a kernel's Soft-RoCE device on eth0.
func (h *Host) rxe(index string) {
	const port = "class/infiniband/rxe0/ports/1/"
	sys := fstest.MapFS{
		"module/rdma_rxe/refcnt": file("1"), port + "state": file("4: ACTIVE"),
		port + "gids/0": file("fe80:0000:0000:0000:0000:00ff:fe01:0203"), port + "gid_attrs/types/0": file("RoCE v2"), port + "gid_attrs/ndevs/0": file("eth0"),
		port + "gids/" + index: file("0000:0000:0000:0000:0000:ffff:c000:0207"), port + "gid_attrs/types/" + index: file("RoCE v2"), port + "gid_attrs/ndevs/" + index: file("eth0"),
		port + "gids/6": file("0000:0000:0000:0000:0000:0000:0000:0000"),
	}
	h.Sys = sys
}

func TestKernelDevices(t *testing.T) {
	t.Parallel()
	h := testHost()
	h.rxe("5")
	list := h.KernelDevices()
	if len(list) != 1 || list[0].Name != "rxe0" || list[0].Interface != "eth0" || !list[0].Soft || len(list[0].GIDs) != 2 || list[0].State != "4: ACTIVE" {
		t.Fatalf("%+v", list)
	}
	for addr, want := range map[string]int{"192.0.2.7": 5, "192.0.2.8": -1, "127.0.0.1": 1} {
		l, err := h.LinkOf(netip.MustParseAddr(addr))
		if err != nil || l.GIDIndex != want {
			t.Errorf("%s: index %d, %v; want %d", addr, l.GIDIndex, err, want)
		}
	}
	if _, err := fs.Stat(h.Sys, "module/rdma_rxe"); err != nil {
		t.Error(err)
	}
}

// TestSoftIWARP: soft iWARP is virtual as Soft-RoCE is, and nothing to remove.
func TestSoftIWARP(t *testing.T) {
	t.Parallel()
	h := testHost()
	const dir = "devices/virtual/infiniband/siw0/"
	h.Sys = fstest.MapFS{
		"class/infiniband/siw0":               {Data: []byte("../../devices/virtual/infiniband/siw0"), Mode: fs.ModeSymlink},
		dir + "node_type":                     file("4: RNIC"),
		dir + "ports/1/state":                 file("4: ACTIVE"),
		dir + "ports/1/gids/0":                file("0200:0001:0203:0000:0000:0000:0000:0000"),
		dir + "ports/1/gid_attrs/types/0":     file("IB/RoCE v1"),
		dir + "ports/1/gid_attrs/ndevs/0":     file("eth0"),
		"class/infiniband/rxe0/node_type":     file("1: CA"),
		"class/infiniband/rxe0/ports/1/state": file("4: ACTIVE"),
	}
	for _, d := range h.KernelDevices() {
		if d.Soft != (d.Name == "rxe0") {
			t.Errorf("%s is taken for Soft-RoCE: %v", d.Name, d.Soft)
		}
	}
	for _, f := range diagnose(t, h, "") {
		if strings.Contains(f.Command, "siw0") {
			t.Errorf("soft iWARP is to be removed: %v", f)
		}
	}
}

func TestPortOf(t *testing.T) {
	t.Parallel()
	taken := func(netip.AddrPort) error { return syscall.EADDRINUSE }
	at := netip.MustParseAddr("127.0.0.1")
	h := testHost()
	h.Bind = taken
	if free, why := h.portOf(at); free || !strings.Contains(why, "not visible") {
		t.Errorf("%v, %q", free, why)
	}
	h.rxe("1")
	if free, why := h.portOf(at); free || !strings.Contains(why, "rdma_rxe") {
		t.Errorf("%v, %q", free, why)
	}
	h.Bind = func(netip.AddrPort) error { return syscall.EACCES }
	if free, why := h.portOf(at); free || why != syscall.EACCES.Error() {
		t.Errorf("%v, %q", free, why)
	}
}
