//go:build !linux || portable

package udp

import (
	"bytes"
	"errors"
	"net/netip"
	"runtime"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// hosts returns two addresses of this machine: macOS has 127.0.0.1 alone.
func hosts(t *testing.T, v6 bool) (a, b *Link, path *transport.Path) {
	t.Helper()
	addr := netip.MustParseAddr("127.0.0.1")
	if v6 {
		addr = netip.IPv6Loopback()
	}
	a, b = open(t, addr, Config{Port: port()}), open(t, addr, Config{Port: port()})
	return a, b, transport.NewPath(addr, transport.Path{Dst: addr, DstPort: b.Capabilities().Port})
}

func TestPortableTransfer(t *testing.T) {
	t.Parallel()
	for _, v6 := range []bool{false, true} {
		a, b, path := hosts(t, v6)
		tx := transport.NewTxBatch(1 << 20)
		const n = 40
		for i := range n {
			put(t, tx, path, packet(i, i*100))
		}
		if err := a.Send(tx); err != nil {
			t.Fatal(err)
		}
		for i, p := range receive(t, b, n) {
			if !bytes.HasPrefix(p.Data, packet(i, i*100)) || p.ICRC != transport.ICRCVerified || p.IPID != 0 || p.Src != a.Addr() {
				t.Errorf("packet %d from %v: ICRC %v", i, p.Src, p.ICRC)
			}
		}
		if st := a.Stats(); st.TxPackets != n || st.TxErrors != 0 {
			t.Errorf("sent: %+v", st)
		}
		if st := b.Stats(); st.RxPackets != n || st.RxBadICRC+st.RxMalformed != 0 {
			t.Errorf("received: %+v", st)
		}
	}
}

// TestPortableTrafficClass: packets have the traffic class and the hop limit
// that their path asks for, and the receiver tells them, as far as the system
// does.
func TestPortableTrafficClass(t *testing.T) {
	t.Parallel()
	for _, v6 := range []bool{false, true} {
		a, b, path := hosts(t, v6)
		for _, c := range []struct{ class, hops, want uint8 }{{0, 0, 64}, {0x6a, 0, 64}, {0x02, 7, 7}, {0, 255, 255}, {0, 0, 64}} {
			p := transport.Path{Dst: path.Dst, DstPort: path.DstPort, TrafficClass: c.class, HopLimit: c.hops}
			tx := transport.NewTxBatch(1 << 16)
			put(t, tx, transport.NewPath(a.Addr(), p), packet(1, 64))
			put(t, tx, transport.NewPath(a.Addr(), p), packet(2, 64))
			if err := a.Send(tx); err != nil {
				t.Fatal(err)
			}
			for _, r := range receive(t, b, 2) {
				if b.Capabilities().ECN && (r.TrafficClass != c.class || r.HopLimit != c.want) {
					t.Errorf("IPv6 %v, %+v: class %#x, hop limit %d", v6, c, r.TrafficClass, r.HopLimit)
				}
			}
		}
		if c := a.Capabilities(); c.NativeOnly != (!v6 && (runtime.GOOS == "windows" || runtime.GOOS == "openbsd")) {
			t.Errorf("capabilities %+v", c)
		}
		if c := a.Capabilities(); !c.ECN && (runtime.GOOS == "linux" || runtime.GOOS == "darwin" || runtime.GOOS == "freebsd" || runtime.GOOS == "openbsd" && v6) {
			t.Errorf("capabilities %+v", c)
		}
	}
}

func TestPortableAllocatesNothing(t *testing.T) {
	a, b, path := hosts(t, false)
	tx, rx := transport.NewTxBatch(1<<16), transport.NewRxBatch(8)
	put(t, tx, path, packet(1, 1024))
	round := func() {
		if err := a.Send(tx); err != nil {
			t.Fatal(err)
		}
		for got := 0; got < 1; {
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
		t.Errorf("%v allocations for a packet", n)
	}
}

// What the link cannot do is an error, not silence.
func TestPortableRefuses(t *testing.T) {
	t.Parallel()
	a, b, path := hosts(t, false)
	six := transport.NewPath(a.Addr(), transport.Path{Dst: netip.IPv6Loopback()})
	tx := transport.NewTxBatch(1 << 16)
	for i, p := range []*transport.Path{path, six, six, path} {
		put(t, tx, p, packet(i, 8))
	}
	var failed *transport.SendError
	if err := a.Send(tx); !errors.As(err, &failed) || failed.Index != 1 || failed.Failed != 2 {
		t.Errorf("error %v", err)
	}
	receive(t, b, 2)
	if _, err := OpenGroup(a.Addr(), Config{}, 2); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a group: %v", err)
	}
	if c := a.Capabilities(); c.MTU != rocev2.MTU4096 || c.LinkMTU < 4176 || c.SegmentOffload || c.ReceiveOffload || !c.SourcePorts {
		t.Errorf("capabilities %+v", c)
	}
}

// TestPortableSourcePorts: packets leave from the ports that their paths ask
// for, and what is sent there is lost. A port that is taken is an error, or
// another one takes its place.
func TestPortableSourcePorts(t *testing.T) {
	t.Parallel()
	for _, v6 := range []bool{false, true} {
		a, b, own := hosts(t, v6)
		first, err := a.OpenSourcePort(port(), false)
		if err != nil {
			t.Fatal(err)
		}
		second := port()
		tx := transport.NewTxBatch(1 << 16)
		for i, p := range []uint16{0, first, second, first} { // Send opens one
			put(t, tx, transport.NewPath(a.Addr(), transport.Path{Dst: own.Dst, DstPort: own.DstPort, SrcPort: p, HopLimit: 9}), packet(i, 64))
		}
		if err := a.Send(tx); err != nil {
			t.Fatal(err)
		}
		for i, p := range receive(t, b, 4) {
			want := []uint16{a.Capabilities().Port, first, second, first}[i]
			if p.SrcPort != want || p.ICRC != transport.ICRCVerified || p.HopLimit != 9 && b.Capabilities().ECN {
				t.Errorf("packet %d: from port %d, want %d: ICRC %v, hop limit %d", i, p.SrcPort, want, p.ICRC, p.HopLimit)
			}
		}
		tx.Reset()
		put(t, tx, transport.NewPath(b.Addr(), transport.Path{Dst: own.Dst, DstPort: first}), packet(0, 64))
		put(t, tx, transport.NewPath(b.Addr(), transport.Path{Dst: own.Dst, DstPort: a.Capabilities().Port}), packet(1, 64))
		if err := b.Send(tx); err != nil {
			t.Fatal(err)
		}
		if p := receive(t, a, 1)[0]; !bytes.HasPrefix(p.Data, packet(1, 64)) {
			t.Error("what came to a source port was received")
		}
		taken := b.Capabilities().Port
		var failed *OpenError
		if _, err := a.OpenSourcePort(taken, true); !errors.As(err, &failed) || !errors.Is(err, addrInUse) {
			t.Errorf("a port that is taken: %v", err)
		}
		if got, err := a.OpenSourcePort(taken, false); err != nil || got == taken {
			t.Errorf("in place of port %d, which is taken: %d, %v", taken, got, err)
		}
	}
}

// Paths that need other headers than the one before allocate nothing.
func TestPortableHeadersAllocateNothing(t *testing.T) {
	a, b, path := hosts(t, false)
	tx, rx := transport.NewTxBatch(1<<16), transport.NewRxBatch(8)
	for i := range 4 {
		p := transport.Path{Dst: path.Dst, DstPort: path.DstPort, TrafficClass: uint8(i % 2), HopLimit: uint8(8 + i)}
		put(t, tx, transport.NewPath(a.Addr(), p), packet(i, 64))
	}
	round := func() {
		if err := a.Send(tx); err != nil {
			t.Fatal(err)
		}
		for got := 0; got < 4; {
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
		t.Errorf("%v allocations for 4 packets", n)
	}
}

// TestWakeIsKept: a Wake that comes before a Wait ends it, and ends one only.
func TestWakeIsKept(t *testing.T) {
	t.Parallel()
	a, b, path := hosts(t, false)
	b.Wake()
	b.Wake()
	if err := b.Wait(); err != nil {
		t.Fatal(err)
	}
	// From now on only what comes ends a Wait.
	rx := transport.NewRxBatch(4)
	for {
		if n, err := b.Recv(rx); n != 0 || err != nil {
			t.Fatal(n, err)
		} else if !b.rx.more.Load() {
			break
		}
	}
	tx := transport.NewTxBatch(1 << 16)
	put(t, tx, path, packet(1, 64))
	waited := make(chan error, 1)
	go func() { waited <- b.Wait() }()
	if err := a.Send(tx); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	receive(t, b, 1)
}

func TestPortableClose(t *testing.T) {
	t.Parallel()
	a, _, path := hosts(t, true)
	waited := make(chan error)
	go func() {
		for {
			if err := a.Wait(); err != nil {
				waited <- err
				return
			}
		}
	}()
	a.Wake()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := <-waited; !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Wait: %v", err)
	}
	tx := transport.NewTxBatch(1 << 16)
	put(t, tx, path, packet(0, 8))
	if err := a.Send(tx); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Send: %v", err)
	}
	if _, err := a.Recv(transport.NewRxBatch(1)); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Recv: %v", err)
	}
}
