//go:build linux && !portable

package udp

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"golang.org/x/sys/unix"
)

// ends opens two links that reach each other, and the path from the first.
func ends(t *testing.T, v6 bool, c Config, p transport.Path) (a, b *Link, path *transport.Path) {
	t.Helper()
	if !v6 {
		a, b = open(t, loopback(), c), open(t, loopback(), c)
	} else {
		// There is one IPv6 loopback address: two ports instead.
		c.Port = port()
		a = open(t, netip.IPv6Loopback(), c)
		c.Port = port()
		b = open(t, netip.IPv6Loopback(), c)
	}
	p.Dst, p.DstPort = b.Addr(), b.Capabilities().Port
	return a, b, transport.NewPath(a.Addr(), p)
}

// sizes makes runs of every kind: full, with a shorter last, single, and one
// that is longer than a buffer.
func sizes() []int {
	s := []int{4096, 4096, 4096, 100, 100, 8, 0, 0, 4, 4096}
	for range 100 {
		s = append(s, 1024)
	}
	return append(s, 512, 1024, 4096)
}

func TestTransfer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		config Config
	}{
		{"offload", Config{}},
		{"plain", Config{DisableGSO: true, DisableGRO: true}},
		{"GSO", Config{DisableGRO: true}},
		{"GRO", Config{DisableGSO: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			families(t, func(t *testing.T, v6 bool) {
				a, b, path := ends(t, v6, c.config, transport.Path{TrafficClass: 0x6a, HopLimit: 7, FlowLabel: 0x12345})
				label := uint32(0)
				if v6 {
					label = 0x12345
				}
				tx := transport.NewTxBatch(1 << 20)
				for i, n := range sizes() {
					put(t, tx, path, packet(i, n))
				}
				if err := a.Send(tx); err != nil {
					t.Fatal(err)
				}
				for i, p := range receive(t, b, len(sizes())) {
					if want := packet(i, sizes()[i]); !bytes.Equal(p.Data[:len(p.Data)-rocev2.ICRCLen], want) {
						t.Fatalf("packet %d differs: %d bytes, want %d", i, len(p.Data), len(want)+rocev2.ICRCLen)
					}
					// Without GRO the place in a run is
					// lost: the kernel shows no
					// Identification.
					weak := !v6 && c.config.DisableGRO && !c.config.DisableGSO
					if p.ICRC != transport.ICRCVerified && !(weak && p.ICRC == transport.ICRCWeak) {
						t.Errorf("packet %d: ICRC %v", i, p.ICRC)
					}
					if p.Src != a.Addr() || p.SrcPort != a.Capabilities().Port || p.Dst != b.Addr() || p.TrafficClass != 0x6a {
						t.Errorf("packet %d: from %v:%d to %v, class %#x", i, p.Src, p.SrcPort, p.Dst, p.TrafficClass)
					}
					if p.HopLimit != 7 || p.FlowLabel != label {
						t.Errorf("packet %d: hop limit %d, flow label %#x", i, p.HopLimit, p.FlowLabel)
					}
				}
				st, rt := a.Stats(), b.Stats()
				if n := uint64(len(sizes())); st.TxPackets != n || rt.RxPackets != n || st.TxBytes != rt.RxBytes || rt.RxOverflow != 0 {
					t.Errorf("sender %+v, receiver %+v", st, rt)
				}
				if a.Capabilities().SegmentOffload && st.TxBuffers >= st.TxPackets/4 {
					t.Errorf("%d packets left in %d buffers", st.TxPackets, st.TxBuffers)
				}
			})
		})
	}
}

// One batch to several peers, alternating: every packet finds its own.
func TestManyPaths(t *testing.T) {
	t.Parallel()
	a := open(t, loopback(), Config{})
	var peers []*Link
	var paths []*transport.Path
	for range 3 {
		p := open(t, loopback(), Config{})
		peers = append(peers, p)
		paths = append(paths, transport.NewPath(a.Addr(), transport.Path{Dst: p.Addr()}))
	}
	tx := transport.NewTxBatch(1 << 20)
	const n = 150 // more headers than one sendmmsg takes
	for i := range n {
		put(t, tx, paths[i%3], packet(i, 64))
	}
	for range 2 { // the second time headers are reused
		if err := a.Send(tx); err != nil {
			t.Fatal(err)
		}
		for k, p := range peers {
			for i, got := range receive(t, p, n/3) {
				if want := packet(3*i+k, 64); !bytes.HasPrefix(got.Data, want) {
					t.Fatalf("peer %d, packet %d is another's", k, i)
				}
			}
		}
	}
}

// Kernel rxe sends UDP checksum 0 (RFC 768), on IPv6 too (RFC 6936).
func TestZeroChecksum(t *testing.T) {
	t.Parallel()
	l := open(t, netip.IPv6Loopback(), Config{Port: port()})
	src := netip.AddrPortFrom(netip.IPv6Loopback(), port())
	dst := netip.AddrPortFrom(l.Addr(), l.Capabilities().Port)
	send := foreign(t, src, dst, false, [3]int{unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_TX, 1})
	flow := rocev2.NewFlow(src.Addr(), dst.Addr(), src.Port(), dst.Port())
	send(flow.Seal(0, packet(1, 1024)))
	if p := receive(t, l, 1)[0]; p.ICRC != transport.ICRCVerified || p.SrcPort != src.Port() {
		t.Errorf("ICRC %v, port %d", p.ICRC, p.SrcPort)
	}
}

// A sender may choose any Identification for an unfragmented packet (RFC 6864).
// Where it is not known, the 16-bit check accepts the packet, and refuses
// damaged ones.
func TestForeignIdentification(t *testing.T) {
	t.Parallel()
	l := open(t, loopback(), Config{})
	src, dst := netip.AddrPortFrom(loopback(), 50000), netip.AddrPortFrom(l.Addr(), rocev2.UDPPort)
	send := foreign(t, src, dst, true)
	flow := rocev2.NewFlow(src.Addr(), dst.Addr(), src.Port(), dst.Port())
	for i, id := range []uint16{0x1234, 0x1235, 0xffff, 0} {
		send(flow.Seal(id, packet(i, 256)))
		want := transport.ICRCWeak
		if id == 0 {
			want = transport.ICRCVerified
		}
		if p := receive(t, l, 1)[0]; p.ICRC != want || p.IPID != id {
			t.Errorf("Identification %#x: ICRC %v, recovered %#x", id, p.ICRC, p.IPID)
		}
	}
	bad := flow.Seal(0x1234, packet(9, 256))
	bad[20] ^= 0x10
	send(bad)
	if p := receive(t, l, 1)[0]; p.ICRC != transport.ICRCBad {
		t.Errorf("damaged packet: ICRC %v", p.ICRC)
	}
	// Too short for a packet: dropped and counted, not delivered.
	send([]byte{1, 2, 3})
	send(make([]byte, 15))
	send(nil)
	send(flow.Seal(0, packet(1, 0)))
	if p := receive(t, l, 1); len(p) != 1 || p[0].ICRC != transport.ICRCVerified {
		t.Errorf("received %+v", p)
	}
	if st := l.Stats(); st.RxMalformed != 3 || st.RxWeakICRC != 3 || st.RxBadICRC != 1 || st.RxPackets != 6 {
		t.Errorf("stats %+v", st)
	}
}

// A packet in the middle of a run with a wrong ICRC is marked; its neighbours
// are not.
func TestCorruptICRC(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, v6 bool) {
		a, b, path := ends(t, v6, Config{}, transport.Path{})
		tx := transport.NewTxBatch(1 << 18)
		for i := range 5 {
			put(t, tx, path, packet(i, 1024))
		}
		tx.Damage(2, 0x80000001)
		if err := a.Send(tx); err != nil {
			t.Fatal(err)
		}
		for i, p := range receive(t, b, 5) {
			if bad := p.ICRC == transport.ICRCBad; bad != (i == 2) {
				t.Errorf("packet %d: ICRC %v", i, p.ICRC)
			}
		}
	})
}

// What cannot be sent is reported; the rest of the batch arrives.
func TestSendErrors(t *testing.T) {
	t.Parallel()
	a, b, path := ends(t, false, Config{}, transport.Path{})
	six := transport.NewPath(a.Addr(), transport.Path{Dst: netip.MustParseAddr("fd00::1")})
	port := transport.NewPath(a.Addr(), transport.Path{Dst: b.Addr(), SrcPort: 61501})
	foreign(t, netip.AddrPortFrom(a.Addr(), 61501), netip.AddrPort{}, false) // has the port
	// A broadcast address is refused by the kernel: the socket has no
	// SO_BROADCAST.
	broadcast := transport.NewPath(a.Addr(), transport.Path{Dst: netip.MustParseAddr("255.255.255.255")})
	tx := transport.NewTxBatch(1 << 18)
	for i, p := range []*transport.Path{path, six, port, broadcast, broadcast, path} {
		put(t, tx, p, packet(i, 64))
	}
	var se *transport.SendError
	if err := a.Send(tx); !errors.As(err, &se) || se.Failed != 4 || se.Index != 1 || !errors.Is(err, unix.EAFNOSUPPORT) {
		t.Fatalf("error %v", err)
	}
	if got := receive(t, b, 2); !bytes.HasPrefix(got[1].Data, packet(5, 64)) {
		t.Error("the last packet is not the one sent")
	}
	if st := a.Stats(); st.TxErrors != 4 || st.TxPackets != 2 || st.OffloadFaults != 0 || !a.Capabilities().SegmentOffload {
		t.Errorf("stats %+v", st)
	}
}

func TestCloseWakes(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, v6 bool) {
		a, b, path := ends(t, v6, Config{}, transport.Path{})
		errs := make(chan error)
		go func() {
			for {
				if err := b.Wait(); err != nil {
					errs <- err
					return
				}
			}
		}()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if err := <-errs; !errors.Is(err, transport.ErrClosed) || !errors.Is(err, net.ErrClosed) {
			t.Errorf("Wait woken with %v", err)
		}
		if _, err := b.Recv(transport.NewRxBatch(1)); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("Recv after close: %v", err)
		}
		// The peer is gone: its ICMP errors stop nothing.
		tx := transport.NewTxBatch(1 << 16)
		put(t, tx, path, packet(1, 4))
		for range 3 {
			if err := a.Send(tx); err != nil {
				t.Errorf("Send to a closed peer: %v", err)
			}
			if n, err := a.Recv(transport.NewRxBatch(1)); n != 0 || err != nil {
				t.Errorf("Recv after ICMP errors: %d, %v", n, err)
			}
		}
		a.Close()
		if err := a.Send(tx); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("Send after close: %v", err)
		}
		if err := a.Close(); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("second Close: %v", err)
		}
		a.Stats()
	})
}

// A receiver that does not read loses packets; the loss is counted.
func TestOverflowCounted(t *testing.T) {
	t.Parallel()
	a, b, path := ends(t, false, Config{RecvBuffer: 1 << 16, DisableGSO: true}, transport.Path{})
	tx := transport.NewTxBatch(1 << 20)
	const n = 200
	for i := range n {
		put(t, tx, path, packet(i, 4096))
	}
	if err := a.Send(tx); err != nil {
		t.Fatal(err)
	}
	lost := b.Stats().RxOverflow
	if lost == 0 || lost >= n {
		t.Fatalf("%d of %d lost", lost, n)
	}
	receive(t, b, n-int(lost))
	b.Close()
	if st := b.Stats(); st.RxPackets+st.RxOverflow != n {
		t.Errorf("after close: %+v", st)
	}
}

func TestNoAllocations(t *testing.T) {
	a, b, path := ends(t, false, Config{}, transport.Path{})
	tx, rx := transport.NewTxBatch(1<<18), transport.NewRxBatch(8)
	data := packet(1, 4096)
	round := func() {
		tx.Reset()
		for range 20 {
			tx.Commit(copy(tx.Room(), data), path)
		}
		if err := a.Send(tx); err != nil {
			t.Fatal(err)
		}
		for got := 0; got < 20; {
			if err := b.Wait(); err != nil {
				t.Fatal(err)
			}
			n, err := b.Recv(rx)
			if err != nil {
				t.Fatal(err)
			}
			got += n
		}
	}
	round()
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations for 20 packets", n)
	}
}
