package udp

import (
	"bytes"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// TestMulticastInterface: on real interfaces, where a link hears what comes by
// its own one and the network hears of its memberships.
func TestMulticastInterface(t *testing.T) {
	t.Parallel()
	if !testnet.Isolated(t) {
		return
	}
	testnet.Veth(t, "va0", "va1", "1500")
	testnet.Veth(t, "vb0", "vb1", "9000")
	for _, args := range []string{
		"address add 198.18.0.1/24 dev va0", "address add 198.18.0.2/24 dev va0", "address add 198.18.0.3/24 dev va0",
		"address add fd18::1/64 dev va0 nodad", "address add fd18::2/64 dev va0 nodad", "address add fd18::3/64 dev va0 nodad",
		"address add fe80::1/64 dev va0 nodad", "address add fe80::2/64 dev va0 nodad", "address add fe80::3/64 dev va0 nodad",
		"address add 198.18.1.1/24 dev vb0", "address add fd18:1::1/64 dev vb0 nodad",
		// The way of the routes is another one than the device's.
		"route add 224.0.0.0/4 dev vb0", "-6 route add ff00::/8 dev vb0 table local metric 1",
		"address add 198.18.9.1/32 dev lo",
	} {
		testnet.IP(t, args)
	}
	opened := func(addrs ...string) (links []*Link) {
		for _, a := range addrs {
			links = append(links, open(t, mustAddr(a), Config{}))
		}
		return links
	}
	closeAll := func(links []*Link) {
		for _, l := range links {
			l.Close()
		}
	}
	for _, c := range []struct {
		name, group, other string
		addrs              []string
		elsewhere          string
	}{
		{"IPv4", "239.1.2.3", "239.1.2.4", []string{"198.18.0.1", "198.18.0.2", "198.18.0.3"}, "198.18.1.1"},
		{"IPv6", "ff0e::1:2", "ff0e::1:3", []string{"fd18::1", "fd18::2", "fd18::3"}, "fd18:1::1"},
		{"link-local group", "ff02::1:2", "ff02::1:3", []string{"fd18::1", "fd18::2", "fd18::3"}, "fd18:1::1"},
		{"link-local", "ff02::1:2", "ff05::1:3", []string{"fe80::1%va0", "fe80::2%va0", "fe80::3%va0"}, "fd18:1::1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			links := opened(append(c.addrs, c.elsewhere)...)
			defer closeAll(links)
			group := mustAddr(c.group)
			join(t, group, links[3])
			testGroup(t, group, mustAddr(c.other), links[:2], links[2])
			nothing(t, links[3])
			if got := links[0].ReadLinkMTU(group); got != 1500 {
				t.Errorf("MTU to the group %d", got)
			}
		})
	}
	t.Run("address of lo", func(t *testing.T) {
		links := opened("198.18.9.1", "198.18.1.1") // the route of groups is vb0
		defer closeAll(links)
		if err := links[0].JoinGroup(mustAddr("239.1.2.9")); errors.Is(err, errNoInterface) {
			t.Skip("the portable link knows no routes: run without -tags portable")
		}
		join(t, mustAddr("239.1.2.3"), links...)
		send(t, links[0], transport.Path{Dst: mustAddr("239.1.2.3")}, 1)
		receive(t, links[0], 1)
		receive(t, links[1], 1)
	})
	t.Run("membership", func(t *testing.T) { testMembership(t, "va1") })
	t.Run("headers", func(t *testing.T) { testGroupHeaders(t, "va1") })
}

// listen returns a function that returns the next IP packet that arrives at an
// interface.
func listen(t *testing.T, iface string) func() []byte {
	t.Helper()
	ifi, err := net.InterfaceByName(iface)
	if err != nil {
		t.Fatal(err)
	}
	all := bigEndian16(unix.ETH_P_ALL)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(all))
	if err != nil {
		t.Skipf("this user may not capture packets (run as root, or with CAP_NET_RAW): %v", err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifi.Index}); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1<<16)
	return func() []byte {
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			t.Fatal(err)
		}
		return b[:n]
	}
}

func bigEndian16(v uint16) uint16 { return v<<8 | v>>8 }

// testMembership: joining sends an IGMP (RFC 3376) or MLD (RFC 3810) report,
// and the kernel lists the membership until the link leaves.
func testMembership(t *testing.T, peer string) {
	for _, c := range []struct {
		local, group, list, entry string
		report                    func(b []byte) bool
	}{
		{"198.18.0.1", "239.7.8.9", "/proc/net/igmp", "090807EF", func(b []byte) bool { return b[0]>>4 == 4 && b[9] == unix.IPPROTO_IGMP }},
		{"fd18::1", "ff0e::7:8:9", "/proc/net/igmp6", "ff0e0000000000000000000700080009", func(b []byte) bool {
			return b[0]>>4 == 6 && b[6] == 0 && len(b) > 48 && b[40] == unix.IPPROTO_ICMPV6 && b[48] == 143 // after a hop-by-hop option
		}},
	} {
		group := mustAddr(c.group)
		listed := func() bool {
			b, err := os.ReadFile(c.list)
			if err != nil {
				t.Fatal(err)
			}
			return strings.Contains(string(b), c.entry)
		}
		next := listen(t, peer)
		l := open(t, mustAddr(c.local), Config{})
		if listed() {
			t.Fatalf("%v is a group before it is joined", group)
		}
		join(t, group, l)
		if !listed() {
			t.Errorf("%v is not in %s", group, c.list)
		}
		for {
			// An IGMPv3 report has at least 40 bytes, one of MLDv2
			// more than 48.
			if b := next(); len(b) >= 40 && c.report(b) && bytes.Contains(b, group.AsSlice()) {
				break
			}
		}
		if err := l.LeaveGroup(group); err != nil {
			t.Fatal(err)
		}
		if listed() {
			t.Errorf("%v is in %s after leaving", group, c.list)
		}
		join(t, group, l)
		l.Close()
		if listed() {
			t.Errorf("%v is in %s after Close", group, c.list)
		}
	}
}

// testGroupHeaders: what is sent to a group has the IP header that its ICRC was
// made for (IBTA A17.3.3), and the hop limit of its path.
func testGroupHeaders(t *testing.T, peer string) {
	next := listen(t, peer)
	// The capture has the packets before a device would split them.
	c := Config{DisableGSO: true}
	four, six := open(t, mustAddr("198.18.0.1"), c), open(t, mustAddr("fd18::1"), c)
	group4, group6 := mustAddr("239.7.8.10"), mustAddr("ff0e::7:8:10")
	for _, c := range []struct {
		l    *Link
		path transport.Path
		hops byte
	}{
		{four, transport.Path{Dst: group4}, 64},
		{four, transport.Path{Dst: group4, HopLimit: 3, SrcPort: 61777}, 3},
		{six, transport.Path{Dst: group6}, 64},
		{six, transport.Path{Dst: group6, HopLimit: 3, SrcPort: 61777}, 3},
	} {
		const n = 4
		if !c.l.Capabilities().SourcePorts {
			c.path.SrcPort = 0
		}
		send(t, c.l, c.path, n)
		sport := c.path.SrcPort
		if sport == 0 {
			sport = rocev2.UDPPort
		}
		flow := rocev2.NewFlow(c.l.Addr(), c.path.Dst, sport, rocev2.UDPPort)
		for seen := 0; seen < n; {
			b := next()
			switch {
			case b[0]>>4 == 4 && b[9] == unix.IPPROTO_UDP:
				id := uint16(b[4])<<8 | uint16(b[5])
				if b[8] != c.hops || b[6] != 0x40 || id != 0 || !flow.Verify(id, b[28:]) {
					t.Errorf("%v: TTL %d, flags %#x, Identification %d", c.path.Dst, b[8], b[6], id)
				}
			case b[0]>>4 == 6 && b[6] == unix.IPPROTO_UDP:
				if b[7] != c.hops || !flow.Verify(0, b[48:]) {
					t.Errorf("%v: hop limit %d", c.path.Dst, b[7])
				}
			default:
				continue
			}
			seen++
		}
	}
}
