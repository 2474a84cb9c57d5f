package procfs

import (
	"encoding/binary"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
)

func TestParseAddr(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"0100007F:12B7":                         "127.0.0.1:4791",
		"00000000:0000":                         "0.0.0.0:0",
		"00000000000000000000000001000000:12B7": "[::1]:4791",
		"0000000000000000FFFF00000100007F:0001": "127.0.0.1:1",
	} {
		if got, ok := parseAddr(in); !ok || got.String() != want {
			t.Errorf("%s: %v, %v", in, got, ok)
		}
	}
	for _, in := range []string{"", ":", "0100007F", "0100007:12B7", "0100007G:12B7", "0100007F:12B7B"} {
		if got, ok := parseAddr(in); ok {
			t.Errorf("%q parsed as %v", in, got)
		}
	}
}

const udpList = `   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  101: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 77001 2 0000000000000000 42
  102: 00000000:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 77002 2 0000000000000000 0
nonsense
`

// hostOrder says whether the machine writes the words of the lists above as
// they stand there.
func hostOrder(t *testing.T) {
	t.Helper()
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the list of this test is of a little-endian machine: run it on one")
	}
}

func TestSockets(t *testing.T) {
	t.Parallel()
	hostOrder(t)
	proc := fstest.MapFS{
		"net/udp":    {Data: []byte(udpList)},
		"12/fd/3":    {Data: []byte("socket:[5]"), Mode: fs.ModeSymlink},
		"12/comm":    {Data: []byte("other\n")},
		"345/fd/7":   {Data: []byte("/dev/null"), Mode: fs.ModeSymlink},
		"345/fd/8":   {Data: []byte("socket:[77001]"), Mode: fs.ModeSymlink},
		"345/comm":   {Data: []byte("rocev2d\n")},
		"self/fd/8":  {Data: []byte("socket:[77001]"), Mode: fs.ModeSymlink},
		"meminfo":    {Data: []byte("MemTotal: 5 kB\n")},
		"uptime":     {Data: []byte("1 1\n")},
		"346/status": {Data: []byte("")},
	}
	all, err := UDPSockets(proc)
	if err != nil || len(all) != 2 || all[0].UID != 1000 || all[0].Drops != 42 || all[0].Inode != "77001" {
		t.Fatalf("%+v, %v", all, err)
	}
	for at, want := range map[string]string{
		"127.0.0.1:4791": "process 345 (rocev2d)",
		"127.0.0.2:4791": "",
		"127.0.0.1:4792": "",
		"127.0.0.9:53":   "", // a wildcard's socket, whose process is not visible
	} {
		p, ok := HolderOf(proc, netip.MustParseAddrPort(at))
		if ok != (want != "") || ok && p.String() != want {
			t.Errorf("%s: %v, %v; want %q", at, p, ok, want)
		}
	}
	if got := Taking(proc, netip.MustParseAddrPort("127.0.0.9:53")); len(got) != 1 || got[0].Inode != "77002" {
		t.Errorf("the socket of a wildcard: %+v", got)
	}
	if _, err := UDPSockets(fstest.MapFS{}); err == nil {
		t.Error("no list at all is no error")
	}
}

// TestThisProcess finds a socket of this process in the real /proc.
func TestThisProcess(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("/proc is there on Linux only: run it there")
	}
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p, ok := HolderOf(Root(), c.LocalAddr().(*net.UDPAddr).AddrPort())
	if !ok || p.PID != os.Getpid() || !strings.Contains(p.String(), "this process itself") {
		t.Errorf("%v, %v", p, ok)
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	proc := fstest.MapFS{
		"net/snmp": {Data: []byte("Icmp: InMsgs\nIcmp: 5\nUdp: InDatagrams InErrors RcvbufErrors\nUdp: 10 3 2\n" +
			"UdpLite: InDatagrams InErrors\nUdpLite: 100 100\n")},
		"net/snmp6":               {Data: []byte("Ip6InReceives 9\nUdp6InErrors 4\nUdp6RcvbufErrors 1\nUdpLite6InErrors 50\n")},
		"sys/net/core/rmem_max":   {Data: []byte("212992\n")},
		"sys/net/ipv4/conf/a.b/x": {Data: []byte("word\n")},
		"self/limits":             {Data: []byte("")},
		"meminfo":                 {Data: []byte("MemTotal: 1\nHugePages_Total:      16\n")},
	}
	c, err := Counters(proc)
	if err != nil || c["InErrors"] != 7 || c["RcvbufErrors"] != 3 || c["InDatagrams"] != 10 {
		t.Errorf("%v, %v", c, err)
	}
	if n, ok := SysctlInt(proc, "net.core.rmem_max"); !ok || n != 212992 {
		t.Errorf("rmem_max %d, %v", n, ok)
	}
	if s, ok := Sysctl(proc, "net/ipv4/conf/a.b/x"); !ok || s != "word" {
		t.Errorf("%q, %v", s, ok)
	}
	if _, ok := SysctlInt(proc, "net/ipv4/conf/a.b/x"); ok {
		t.Error("a word is a number")
	}
	if _, ok := Sysctl(proc, "net.nothing"); ok {
		t.Error("there is a setting that is not")
	}
	if v, ok := Field(proc, "meminfo", "HugePages_Total"); !ok || v != "16" {
		t.Errorf("%q, %v", v, ok)
	}
	if _, err := Counters(fstest.MapFS{}); err == nil {
		t.Error("no counters is no error")
	}
}
