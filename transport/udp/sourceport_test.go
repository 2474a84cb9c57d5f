//go:build linux && !portable

package udp

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"golang.org/x/sys/unix"
)

// openPort has l open port, or another one where that is taken.
func openPort(t testing.TB, l *Link, port uint16) uint16 {
	t.Helper()
	got, err := l.OpenSourcePort(port, false)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Packets arrive from the port that the path asks for, from the dynamic range
// (RFC 6335), sealed for it. They leave as runs where the kernel can segment.
func TestSourcePort(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{{}, {DisableGSO: true, DisableGRO: true}} {
		t.Run(fmt.Sprintf("offload=%v", !c.DisableGSO), func(t *testing.T) {
			families(t, func(t *testing.T, v6 bool) {
				a, b, p := ends(t, v6, c, transport.Path{TrafficClass: 0x6a})
				port := openPort(t, a, 61234)
				path := transport.NewPath(a.Addr(), transport.Path{Dst: p.Dst, DstPort: p.DstPort, SrcPort: port, TrafficClass: 0x6a})
				tx := transport.NewTxBatch(1 << 20)
				for i, n := range sizes() {
					put(t, tx, path, packet(i, n))
				}
				if err := a.Send(tx); err != nil {
					t.Fatal(err)
				}
				for i, k := range receive(t, b, len(sizes())) {
					if !bytes.HasPrefix(k.Data, packet(i, sizes()[i])) || k.ICRC != transport.ICRCVerified ||
						k.Src != a.Addr() || k.SrcPort != port || k.TrafficClass != 0x6a {
						t.Fatalf("packet %d: %v from %v:%d, class %#x", i, k.ICRC, k.Src, k.SrcPort, k.TrafficClass)
					}
				}
				st := a.Stats()
				if n := uint64(len(sizes())); st.TxPackets != n || st.TxErrors != 0 || !c.DisableGSO && st.TxBuffers > n/4 {
					t.Errorf("stats %+v", st)
				}
				// What has no source port of its own still
				// leaves from the link's.
				tx.Reset()
				put(t, tx, p, packet(1, 64))
				if err := a.Send(tx); err != nil {
					t.Fatal(err)
				}
				if k := receive(t, b, 1)[0]; k.SrcPort != a.Capabilities().Port || k.ICRC != transport.ICRCVerified {
					t.Errorf("%v from port %d", k.ICRC, k.SrcPort)
				}
			})
		})
	}
}

// One batch of many ports: the packets of each arrive in order.
func TestManySourcePorts(t *testing.T) {
	t.Parallel()
	a, b, own := ends(t, false, Config{}, transport.Path{})
	paths := []*transport.Path{own}
	for i := range uint16(9) {
		paths = append(paths, transport.NewPath(a.Addr(), transport.Path{Dst: b.Addr(), SrcPort: 62000 + i}))
	}
	tx := transport.NewTxBatch(1 << 20)
	const n = 400
	for i := range n {
		put(t, tx, paths[i*i/3%len(paths)], packet(i, 64)) // some next to each other
	}
	for range 2 {
		if err := a.Send(tx); err != nil {
			t.Fatal(err)
		}
		last := map[uint16]int{}
		for _, k := range receive(t, b, n) {
			psn := int(k.Data[10])<<8 | int(k.Data[11])
			want := paths[psn*psn/3%len(paths)].SrcPort
			if want == 0 {
				want = rocev2.UDPPort
			}
			if k.SrcPort != want || k.ICRC != transport.ICRCVerified {
				t.Fatalf("packet %d: %v from port %d, want %d", psn, k.ICRC, k.SrcPort, want)
			}
			if before, ok := last[k.SrcPort]; ok && psn <= before {
				t.Errorf("port %d: packet %d came behind %d", k.SrcPort, psn, before)
			}
			last[k.SrcPort] = psn
		}
	}
}

// A port that another socket has is an error that names its process, at once
// and when a packet is sent; where any port does, another one is opened.
func TestSourcePortTaken(t *testing.T) {
	t.Parallel()
	a, b, _ := ends(t, false, Config{}, transport.Path{})
	const port = 63000
	foreign(t, netip.AddrPortFrom(a.Addr(), port), netip.AddrPort{}, false)
	_, err := a.OpenSourcePort(port, true)
	var oe *OpenError
	if !errors.As(err, &oe) || !errors.Is(err, unix.EADDRINUSE) || oe.Addr != netip.AddrPortFrom(a.Addr(), port) {
		t.Fatalf("error %v", err)
	}
	for _, s := range []string{"source port", "63000 on " + a.Addr().String(), "by this process itself (pid ", "choose another"} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("the error does not say %q: %v", s, err)
		}
	}
	tx := transport.NewTxBatch(1 << 16)
	put(t, tx, transport.NewPath(a.Addr(), transport.Path{Dst: b.Addr(), SrcPort: port}), packet(1, 64))
	if err := a.Send(tx); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("Send: %v", err)
	}
	got, err := a.OpenSourcePort(port, false)
	if err != nil || got == port || got < 49152 {
		t.Errorf("instead: %d, %v", got, err)
	}
	// Not even a port that others share: their packets would come here.
	foreign(t, netip.AddrPortFrom(a.Addr(), port+1), netip.AddrPort{}, false, [3]int{unix.SOL_SOCKET, unix.SO_REUSEPORT, 1})
	l := open(t, a.Addr(), Config{Port: 4792, ReusePort: true})
	if _, err := l.OpenSourcePort(port+1, true); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a shared port: %v", err)
	}
}

// The number of sockets is bounded: beyond it ports are shared.
func TestSourcePortLimit(t *testing.T) {
	t.Parallel()
	l := open(t, loopback(), Config{})
	var ports []uint16
	for i := range uint16(MaxSourcePorts) {
		port := openPort(t, l, 62100+i)
		if slices.Contains(ports, port) {
			t.Errorf("port %d twice", port)
		}
		ports = append(ports, port)
	}
	const next = 65001
	if _, err := l.OpenSourcePort(next, true); !errors.Is(err, errManyPorts) || !strings.Contains(err.Error(), "64 source ports are open") {
		t.Errorf("one more: %v", err)
	}
	shared := map[uint16]bool{}
	for i := range uint16(1000) {
		port := openPort(t, l, 50000+7*i)
		if !slices.Contains(ports, port) {
			t.Fatalf("port %d is a new one", port)
		}
		shared[port] = true
	}
	if len(shared) < MaxSourcePorts/2 {
		t.Errorf("1000 flows share %d ports", len(shared))
	}
	if got, err := l.OpenSourcePort(ports[5], true); got != ports[5] || err != nil {
		t.Errorf("an open one again: %d, %v", got, err)
	}
	for _, own := range []uint16{0, rocev2.UDPPort} {
		if got, err := l.OpenSourcePort(own, true); got != own || err != nil {
			t.Errorf("the link's own, %d: %d, %v", own, got, err)
		}
	}
}

// free reports whether no socket has the port.
func free(t *testing.T, addr netip.Addr, port uint16) bool {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, port)))
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// The links of a group have the sockets together; the last one closes them.
func TestSourcePortsOfGroup(t *testing.T) {
	t.Parallel()
	addr, b := loopback(), open(t, loopback(), Config{})
	group, err := OpenGroup(addr, Config{}, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range group {
		t.Cleanup(func() { l.Close() })
	}
	const port = 65100
	path := transport.NewPath(addr, transport.Path{Dst: b.Addr(), SrcPort: port})
	tx := transport.NewTxBatch(1 << 16)
	put(t, tx, path, packet(1, 64))
	for i, l := range group {
		if got, err := l.OpenSourcePort(port, true); got != port || err != nil {
			t.Fatalf("link %d: %d, %v", i, got, err)
		}
		if err := l.Send(tx); err != nil {
			t.Fatal(err)
		}
		if k := receive(t, b, 1)[0]; k.SrcPort != port || k.ICRC != transport.ICRCVerified {
			t.Errorf("link %d: %v from port %d", i, k.ICRC, k.SrcPort)
		}
	}
	if err := group[0].Close(); err != nil {
		t.Error(err)
	}
	if _, err := group[0].OpenSourcePort(port, true); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("a closed link: %v", err)
	}
	if err := group[1].Send(tx); err != nil || receive(t, b, 1)[0].SrcPort != port {
		t.Errorf("the other link: %v", err)
	}
	if free(t, addr, port) {
		t.Error("the port is free while a link uses it")
	}
	if err := group[1].Close(); err != nil {
		t.Error(err)
	}
	if !free(t, addr, port) {
		t.Error("the port is taken after the last link was closed")
	}
	if _, err := group[1].others.open(port, true); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("opened after close: %v", err)
	}
}

// What comes to a source port is dropped, not queued.
func TestSourcePortDropsWhatArrives(t *testing.T) {
	t.Parallel()
	a, b, _ := ends(t, false, Config{}, transport.Path{})
	const port = 65200
	path := transport.NewPath(a.Addr(), transport.Path{Dst: b.Addr(), SrcPort: port})
	tx := transport.NewTxBatch(1 << 16)
	put(t, tx, path, packet(1, 64))
	sock, err := a.others.socket(port)
	if err != nil {
		t.Fatal(err)
	}
	back := transport.NewPath(b.Addr(), transport.Path{Dst: a.Addr(), DstPort: port})
	in := transport.NewTxBatch(1 << 20)
	for i := range 50 {
		put(t, in, back, packet(i, 1024))
	}
	if err := b.Send(in); err != nil {
		t.Fatal(err)
	}
	if err := sock.raw.Control(func(fd uintptr) {
		var buf [2048]byte
		if n, _, err := unix.Recvfrom(int(fd), buf[:], unix.MSG_DONTWAIT); !errors.Is(err, unix.EAGAIN) {
			t.Errorf("%d bytes were queued, %v", n, err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := a.Send(tx); err != nil || receive(t, b, 1)[0].SrcPort != port {
		t.Errorf("Send after that: %v", err)
	}
	// The peer is gone: its ICMP errors stop nothing.
	b.Close()
	for range 3 {
		if err := a.Send(tx); err != nil {
			t.Errorf("Send to a closed peer: %v", err)
		}
	}
}

// Ports are opened while others send, and the link is closed under them.
func TestSourcePortsAtOnce(t *testing.T) {
	t.Parallel()
	addr, b := loopback(), open(t, loopback(), Config{})
	group, err := OpenGroup(addr, Config{}, 4)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i, l := range group {
		wg.Go(func() { // sends
			tx := transport.NewTxBatch(1 << 16)
			for k := range uint16(100) {
				tx.Reset()
				for j := range uint16(5) {
					put(t, tx, transport.NewPath(addr, transport.Path{Dst: b.Addr(), SrcPort: 64000 + (k+j)%80}), packet(i, 64))
				}
				// The 65th port is refused, and everything once
				// the link is closed.
				if err := l.Send(tx); err != nil && !errors.Is(err, errManyPorts) && !errors.Is(err, transport.ErrClosed) {
					t.Error(err)
				}
			}
			if i%2 == 0 {
				l.Close()
			}
		})
		wg.Go(func() { // opens
			for k := range uint16(100) {
				if _, err := l.OpenSourcePort(64000+k, false); err != nil && !errors.Is(err, transport.ErrClosed) {
					t.Error(err)
				}
			}
			if i%2 == 1 {
				l.Close()
			}
		})
	}
	wg.Wait()
	for port := range uint16(80) {
		if !free(t, addr, 64000+port) {
			t.Errorf("port %d is still open", 64000+port)
		}
	}
}

func TestSourcePortAllocatesNothing(t *testing.T) {
	a, b, own := ends(t, false, Config{}, transport.Path{})
	path := transport.NewPath(a.Addr(), transport.Path{Dst: b.Addr(), SrcPort: 65300})
	tx := transport.NewTxBatch(1 << 17)
	for range 10 {
		put(t, tx, path, packet(1, 1024))
		put(t, tx, own, packet(1, 1024))
	}
	if n := testing.AllocsPerRun(100, func() {
		if err := a.Send(tx); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations for 20 packets", n)
	}
}
