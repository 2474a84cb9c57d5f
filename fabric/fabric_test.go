package fabric

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

var (
	addrA = netip.MustParseAddr("10.0.0.1")
	addrB = netip.MustParseAddr("10.0.0.2")
)

// packet returns BTH to pad of packet psn with a payload of n bytes.
func packet(psn, n int) []byte {
	p := rocev2.Packet{
		BTH:     rocev2.BTH{Opcode: rocev2.RCWriteMiddle, PKey: rocev2.DefaultPKey, DestQPN: 7, PSN: rocev2.PSN(psn)},
		Payload: bytes.Repeat([]byte{byte(psn)}, n),
	}
	return p.AppendTo(nil)
}

// send sends packets first..last-1 with n bytes of payload each.
func send(t testing.TB, l transport.Link, p transport.Path, first, last, n int) {
	t.Helper()
	path := transport.NewPath(l.Addr(), p)
	b := transport.NewTxBatch(64 << 10)
	for psn := first; psn < last; {
		b.Reset()
		for ; psn < last; psn++ {
			room := b.Room()
			if room == nil {
				break
			}
			b.Commit(copy(room, packet(psn, n)), path)
		}
		if err := l.Send(b); err != nil {
			t.Error(err)
			return
		}
	}
}

// arrival is a received packet, copied.
type arrival struct {
	at time.Duration
	transport.RxPacket
	psn int
}

// drain takes everything that is queued at l.
func drain(t testing.TB, l transport.Link, start time.Time) []arrival {
	t.Helper()
	var all []arrival
	b := transport.NewRxBatch(2)
	for {
		n, err := l.Recv(b)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return all
		}
		for _, p := range b.Packets() {
			var k rocev2.Packet
			psn := -1
			if k.Parse(p.Data) == nil {
				psn = int(k.BTH.PSN)
			}
			p.Data = bytes.Clone(p.Data)
			all = append(all, arrival{at: time.Since(start), RxPacket: p, psn: psn})
		}
	}
}

// collect receives at l until n packets have come.
func collect(t testing.TB, l transport.Link, start time.Time, n int) []arrival {
	t.Helper()
	var all []arrival
	for len(all) < n {
		if err := l.Wait(); err != nil {
			t.Fatal(err)
		}
		all = append(all, drain(t, l, start)...)
	}
	return all
}

func TestPair(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ a, b string }{{"10.0.0.1", "10.0.0.2"}, {"fd00::1", "fd00::2"}, {"fe80::1%x", "fe80::2%x"}} {
		a, b := Pair(netip.MustParseAddr(c.a), netip.MustParseAddr(c.b))
		send(t, a, transport.Path{Dst: b.Addr(), TrafficClass: 0x68, SrcPort: 50000, HopLimit: 9, FlowLabel: 0x54321}, 0, 20, 4096)
		send(t, b, transport.Path{Dst: a.Addr()}, 0, 1, 0)
		got := collect(t, b, time.Now(), 20)
		for i, p := range got {
			if p.psn != i || p.ICRC != transport.ICRCVerified || p.TrafficClass != 0x68 || p.SrcPort != 50000 {
				t.Errorf("packet %d: PSN %d, ICRC %v, class %#x, port %d", i, p.psn, p.ICRC, p.TrafficClass, p.SrcPort)
			}
			if p.HopLimit != 9 || p.FlowLabel != 0x54321 {
				t.Errorf("packet %d: hop limit %d, flow label %#x", i, p.HopLimit, p.FlowLabel)
			}
			if p.Src != a.Addr().WithZone("") || p.Dst != b.Addr().WithZone("") {
				t.Errorf("packet %d: from %v to %v", i, p.Src, p.Dst)
			}
		}
		if got := collect(t, a, time.Now(), 1); len(got[0].Data) != rocev2.BTHLen+rocev2.ICRCLen {
			t.Errorf("empty packet has %d bytes", len(got[0].Data))
		}
		if st := a.Stats(); st.TxPackets != 20 || st.RxPackets != 1 {
			t.Errorf("stats %+v", st)
		}
		for _, l := range []transport.Link{a, b} {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if err := l.Close(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("second close: %v", err)
			}
		}
	}
}

// Rate and delay are exact in virtual time.
func TestRateAndDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, payload = 100, 1024
		start := time.Now()
		a, b := Pair(addrA, addrB, Config{Port: PortConfig{Rate: 1e9, Delay: time.Millisecond, SendBuffer: 10_000}})
		defer a.Close()
		defer b.Close()
		go send(t, a, transport.Path{Dst: addrB}, 0, n, payload)
		got := collect(t, b, start, n)
		wire := len(packet(0, payload)) + rocev2.ICRCLen + headersIPv4
		one := time.Duration(wire * 8) // ns at 1 Gb/s
		for i, p := range got {
			if want := time.Millisecond + time.Duration(i+2)*one; p.psn != i || p.at < want || p.at > want+one {
				t.Fatalf("packet %d: PSN %d at %v, want %v: uplink, downlink and delay", i, p.psn, p.at, want)
			}
		}
		if a.Stats().TxWaits == 0 {
			t.Error("Send did not wait for a full send buffer")
		}
	})
}

func TestImpairments(t *testing.T) {
	t.Parallel()
	run := func(seed uint64) (psns []int, bad int, c Counters) {
		synctest.Test(t, func(t *testing.T) {
			a, b := Pair(addrA, addrB, Config{Seed: seed, Port: PortConfig{
				Loss: 0.1, Duplicate: 0.1, Corrupt: 0.1, Reorder: 0.1, Delay: time.Microsecond,
			}})
			defer a.Close()
			defer b.Close()
			for i := range 1000 {
				send(t, a, transport.Path{Dst: addrB}, i, i+1, 64)
				time.Sleep(10 * time.Microsecond)
			}
			time.Sleep(time.Second)
			for _, p := range drain(t, b, time.Now()) {
				if p.ICRC == transport.ICRCBad {
					bad++
					continue
				}
				psns = append(psns, p.psn)
			}
			c = b.(*Port).Counters()
		})
		return psns, bad, c
	}
	psns, bad, c := run(1)
	for _, v := range []uint64{c.Lost, c.Duplicated, c.Corrupted, c.Reordered} {
		if v < 50 || v > 160 {
			t.Errorf("counters %+v for 1000 packets at 10 %%", c)
		}
	}
	if bad == 0 || len(psns)+bad != 1000-int(c.Lost)+int(c.Duplicated) {
		t.Errorf("%d good, %d bad, %+v", len(psns), bad, c)
	}
	again, badAgain, cAgain := run(1)
	if bad != badAgain || c != cAgain || !equal(psns, again) {
		t.Error("the same seed gave another run")
	}
	if other, _, _ := run(2); equal(psns, other) {
		t.Error("another seed gave the same run")
	}
}

func equal(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// Two senders at full rate towards one port: the queue marks what is
// ECN-capable (RFC 3168), then drops.
func TestCongestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sw := NewSwitch(Config{Port: PortConfig{Rate: 1e9, QueueBytes: 64 << 10, ECNThreshold: 16 << 10}})
		defer sw.Close()
		var ports []*Port
		for i := range 3 {
			p, err := sw.Attach(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}))
			if err != nil {
				t.Fatal(err)
			}
			ports = append(ports, p)
		}
		for i, class := range []uint8{2, 0} { // ECT(0) and not ECN-capable
			go send(t, ports[i], transport.Path{Dst: ports[2].Addr(), TrafficClass: class}, 0, 300, 1024)
		}
		time.Sleep(time.Second)
		marked := 0
		got := drain(t, ports[2], time.Now())
		for _, p := range got {
			if p.TrafficClass == 3 {
				marked++
			}
			if p.Src == ports[1].Addr() && p.TrafficClass != 0 || p.ICRC != transport.ICRCVerified {
				t.Errorf("from %v: class %d, ICRC %v", p.Src, p.TrafficClass, p.ICRC)
			}
		}
		c := ports[2].Counters()
		if marked == 0 || uint64(marked) != c.Marked || c.TailDrops == 0 || len(got)+int(c.TailDrops) != 600 {
			t.Errorf("%d arrived, %d marked, %+v", len(got), marked, c)
		}
	})
}

func TestSwitchForwards(t *testing.T) {
	t.Parallel()
	sw := NewSwitch(Config{})
	a, err := sw.Attach(addrA)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sw.Attach(addrA); err == nil {
		t.Error("an address was attached twice")
	}
	for _, s := range []string{"0.0.0.0", "::", "224.0.0.1", "ff02::1"} {
		if _, err := sw.Attach(netip.MustParseAddr(s)); err == nil {
			t.Errorf("%s was attached", s)
		}
	}
	send(t, a, transport.Path{Dst: addrA}, 0, 1, 4)
	if got := drain(t, a, time.Now()); len(got) != 1 {
		t.Errorf("%d packets to the own address", len(got))
	}
	send(t, a, transport.Path{Dst: addrB}, 0, 3, 4)
	send(t, a, transport.Path{Dst: addrA, DstPort: 9}, 0, 2, 4)
	if st := sw.Stats(); st != (SwitchStats{Forwarded: 1, UnknownAddr: 3, UnknownPort: 2}) {
		t.Errorf("switch stats %+v", st)
	}
	if err := sw.Close(); err != nil {
		t.Error(err)
	}
	if _, err := sw.Attach(addrB); !errors.Is(err, net.ErrClosed) {
		t.Errorf("attach after close: %v", err)
	}
	if err := a.Wait(); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("wait after close: %v", err)
	}
}

func TestReceiveBufferOverflow(t *testing.T) {
	t.Parallel()
	a, b := Pair(addrA, addrB, Config{Port: PortConfig{RecvBuffer: 50_000}})
	defer a.Close()
	defer b.Close()
	send(t, a, transport.Path{Dst: addrB}, 0, 100, 1024)
	got := drain(t, b, time.Now())
	lost := b.Stats().RxOverflow
	if len(got) == 0 || lost == 0 || len(got)+int(lost) != 100 {
		t.Errorf("%d received, %d lost", len(got), lost)
	}
}

func TestSendErrors(t *testing.T) {
	t.Parallel()
	a, b := Pair(addrA, addrB, Config{LinkMTU: 1500})
	defer a.Close()
	defer b.Close()
	if m := a.Capabilities().MTU; m != rocev2.MTU1024 {
		t.Errorf("path MTU %v on a link of 1500", m)
	}
	good := transport.NewPath(addrA, transport.Path{Dst: addrB})
	six := transport.NewPath(addrA, transport.Path{Dst: netip.MustParseAddr("fd00::1")})
	batch := transport.NewTxBatch(1 << 16)
	for _, k := range []struct {
		n int
		p *transport.Path
	}{{1024, good}, {2048, good}, {4, six}, {1024, good}} {
		batch.Commit(copy(batch.Room(), packet(1, k.n)), k.p)
	}
	var se *transport.SendError
	if err := a.Send(batch); !errors.As(err, &se) || se.Index != 1 || se.Failed != 2 || !errors.Is(err, errTooLong) {
		t.Errorf("error %v", err)
	}
	if got := drain(t, b, time.Now()); len(got) != 2 {
		t.Errorf("%d packets arrived, want the two good ones", len(got))
	}
}

// Close wakes Wait and a Send that waits for the uplink; nothing is left
// running, or the bubble would not end.
func TestCloseWakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := Pair(addrA, addrB, Config{Port: PortConfig{Rate: 1000, Delay: time.Hour, SendBuffer: 1}})
		errs := make(chan error, 2)
		go func() { errs <- b.Wait() }()
		go func() {
			path := transport.NewPath(addrA, transport.Path{Dst: addrB})
			batch := transport.NewTxBatch(1 << 16)
			for range 10 {
				batch.Commit(copy(batch.Room(), packet(1, 1024)), path)
			}
			errs <- a.Send(batch)
		}()
		synctest.Wait()
		a.Close()
		b.Close()
		for range 2 {
			if err := <-errs; !errors.Is(err, transport.ErrClosed) {
				t.Errorf("woken with %v", err)
			}
		}
	})
}

func TestNoAllocations(t *testing.T) {
	a, b := Pair(addrA, addrB)
	defer a.Close()
	defer b.Close()
	path := transport.NewPath(addrA, transport.Path{Dst: addrB})
	tx, rx := transport.NewTxBatch(1<<16), transport.NewRxBatch(4)
	data := packet(1, 4096)
	round := func() {
		tx.Reset()
		for range 10 {
			tx.Commit(copy(tx.Room(), data), path)
		}
		if err := a.Send(tx); err != nil {
			t.Fatal(err)
		}
		if n, err := b.Recv(rx); n != 10 || err != nil {
			t.Fatal(n, err)
		}
	}
	round()
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations for 10 packets", n)
	}
}

func BenchmarkPair(b *testing.B) {
	x, y := Pair(addrA, addrB)
	defer x.Close()
	defer y.Close()
	path := transport.NewPath(addrA, transport.Path{Dst: addrB})
	tx, rx := transport.NewTxBatch(1<<16), transport.NewRxBatch(4)
	data := packet(1, 4096)
	b.SetBytes(int64(len(data)))
	for i := 0; i < b.N; i += 10 {
		tx.Reset()
		for range 10 {
			tx.Commit(copy(tx.Room(), data), path)
		}
		if err := x.Send(tx); err != nil {
			b.Fatal(err)
		}
		if _, err := y.Recv(rx); err != nil {
			b.Fatal(err)
		}
	}
}
