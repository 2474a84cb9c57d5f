package transport

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
)

var (
	addrA  = netip.MustParseAddr("10.0.0.1")
	addrB  = netip.MustParseAddr("10.0.0.2")
	localA = netip.AddrPortFrom(addrA, rocev2.UDPPort)
	localB = netip.AddrPortFrom(addrB, rocev2.UDPPort)
)

func packet(psn, n int) []byte {
	p := rocev2.Packet{
		BTH:     rocev2.BTH{Opcode: rocev2.RCWriteMiddle, PKey: rocev2.DefaultPKey, DestQPN: 7, PSN: rocev2.PSN(psn)},
		Payload: bytes.Repeat([]byte{byte(psn)}, n),
	}
	return p.AppendTo(nil)
}

func fill(t testing.TB, b *TxBatch, p *Path, sizes ...int) {
	t.Helper()
	for i, n := range sizes {
		room := b.Room()
		if room == nil {
			t.Fatal("no room")
		}
		b.Commit(copy(room, packet(i, n)), p)
	}
}

// The packets of a batch as runs, per the rules of UDP_SEGMENT.
func TestRuns(t *testing.T) {
	t.Parallel()
	p, q := NewPath(addrA, Path{Dst: addrB}), NewPath(addrA, Path{Dst: addrB})
	many := make([]int, 70)
	for _, c := range []struct {
		why   string
		sizes []int
		other int // index of a packet to another path, -1 = none
		want  []int
	}{
		{"equal sizes are one run", []int{64, 64, 64}, -1, []int{3}},
		{"a shorter one closes the run", []int{64, 64, 8, 64}, -1, []int{3, 1}},
		{"a longer one begins another", []int{64, 256, 256}, -1, []int{1, 2}},
		{"another path begins another", []int{64, 64, 64, 64}, 1, []int{1, 1, 2}},
		{"64 segments at most", many, -1, []int{64, 6}},
		{"65507 bytes at most", []int{4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096}, -1, []int{15, 2}},
	} {
		b := NewTxBatch(1 << 20)
		for i, n := range c.sizes {
			path := p
			if i == c.other {
				path = q
			}
			fill(t, b, path, n)
		}
		var got []int
		data := 0
		for i := 0; i < b.Len(); {
			r := b.Run(i, true)
			if r.First != i || len(r.Data) > MaxRunBytes {
				t.Fatalf("%s: run %+v at %d", c.why, r, i)
			}
			got = append(got, r.Len())
			data += len(r.Data)
			i = r.Last
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: runs of %v, want %v", c.why, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: runs of %v, want %v", c.why, got, c.want)
			}
		}
		if data != b.Bytes() {
			t.Errorf("%s: runs cover %d of %d bytes", c.why, data, b.Bytes())
		}
		if r := b.Run(0, false); r.Len() != 1 {
			t.Errorf("%s: a run of %d without offload", c.why, r.Len())
		}
	}
}

// A sealed run splits into the same packets, whose ICRCs (IBTA 7.8.1, A17.3.3)
// are verified in full.
func TestSealAndSplit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ a, b netip.Addr }{{addrA, addrB}, {netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}} {
		src, dst := netip.AddrPortFrom(c.a, 4791), netip.AddrPortFrom(c.b, 4791)
		b := NewTxBatch(1 << 20)
		fill(t, b, NewPath(c.a, Path{Dst: c.b}), 1024, 1024, 1024, 1024, 12)
		r := b.Run(0, true)
		b.Seal(&r, src)
		rx := NewRxBatch(1)
		v := NewVerifier(dst)
		if bad := rx.Split(r.Data, r.SegmentSize, RxPacket{Src: c.a, SrcPort: 4791}, v); bad != 0 || rx.Len() != 5 {
			t.Fatalf("%d packets, %d malformed", rx.Len(), bad)
		}
		for i, p := range rx.Packets() {
			sealed, id := b.Sealed(i)
			if !bytes.Equal(p.Data, sealed) || p.ICRC != ICRCVerified || int(id) != i {
				t.Errorf("packet %d: ICRC %v, Identification %d", i, p.ICRC, id)
			}
			p.Data[13] ^= 1
		}
		rx.Reset()
		rx.Split(r.Data, r.SegmentSize, RxPacket{Src: c.a, SrcPort: 4791}, v)
		for i, p := range rx.Packets() {
			if p.ICRC != ICRCBad || p.IPID != 0 {
				t.Errorf("damaged packet %d: ICRC %v", i, p.ICRC)
			}
		}
	}
}

// Datagrams of Identification 0 that a network card coalesced, and a foreign
// sender that counts, are told apart; the verifier adapts to what it sees.
func TestVerifierIdentification(t *testing.T) {
	t.Parallel()
	flow := rocev2.NewFlow(addrA, addrB, 4791, 4791)
	v := NewVerifier(localB)
	peer := v.Peer(localA)
	for _, c := range []struct {
		index int
		id    uint16
		want  ICRCState
	}{{0, 0, ICRCVerified}, {3, 3, ICRCVerified}, {3, 0, ICRCVerified}, {3, 4, ICRCWeak}, {0, 9, ICRCWeak}, {0, 0, ICRCVerified}, {1, 1, ICRCVerified}} {
		if got, id := peer.Check(c.index, flow.Seal(c.id, packet(1, 64))); got != c.want || id != c.id {
			t.Errorf("segment %d with Identification %d: %v, %d", c.index, c.id, got, id)
		}
	}
}

func TestVerifierManySources(t *testing.T) {
	t.Parallel()
	v := NewVerifier(localB)
	for range 2 {
		for port := uint16(49152); port < 49152+2000; port++ {
			flow := rocev2.NewFlow(addrA, addrB, port, 4791)
			if got, _ := v.Peer(netip.AddrPortFrom(addrA, port)).Check(0, flow.Seal(0, packet(1, 4))); got != ICRCVerified {
				t.Fatalf("port %d: %v", port, got)
			}
		}
	}
}

// A FLUSH (IBTA A19) to a kernel is sealed as the kernel expects it; other
// packets are not affected.
func TestSealKernelPeer(t *testing.T) {
	t.Parallel()
	flow := rocev2.NewFlow(addrA, addrB, 4791, 4791)
	flush := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCFlush, PKey: rocev2.DefaultPKey}}
	data := flush.AppendTo(nil)
	for _, kernel := range []bool{false, true} {
		b := NewTxBatch(1 << 16)
		path := NewPath(addrA, Path{Dst: addrB, KernelPeer: kernel})
		b.Commit(copy(b.Room(), data), path)
		fill(t, b, path, 64)
		b.SealAll(localA, false)
		want := flow.Seal(0, bytes.Clone(data))
		if kernel {
			want = flow.SealKernelFlush(0, bytes.Clone(data))
		}
		if got, _ := b.Sealed(0); !bytes.Equal(got, want) {
			t.Errorf("kernel peer %v: FLUSH ends in %x, want %x", kernel, got[len(got)-4:], want[len(want)-4:])
		}
		if got, _ := b.Sealed(1); !flow.Verify(0, got) {
			t.Errorf("kernel peer %v: another packet does not verify", kernel)
		}
	}
}

func TestTxBatch(t *testing.T) {
	t.Parallel()
	b := NewTxBatch(0)
	if len(b.Room()) != rocev2.MaxPacketLen {
		t.Fatalf("room for %d bytes", len(b.Room()))
	}
	p := NewPath(addrA, Path{Dst: netip.MustParseAddr("::ffff:10.0.0.2")})
	if p.Dst != addrB {
		t.Errorf("destination %v", p.Dst)
	}
	fill(t, b, p, 4)
	if b.Room() != nil {
		t.Error("room in a full batch")
	}
	b.Damage(0, 1)
	c := NewTxBatch(64)
	if !c.CopyPacket(b, 0) || c.Len() != 1 {
		t.Fatal("packet not copied")
	}
	c.SealAll(localA, true)
	if got, _ := c.Sealed(0); p.Flow(localA).Verify(0, got) {
		t.Error("damage was not copied")
	}
	b.Reset()
	if b.Len() != 0 || b.Bytes() != 0 || b.Room() == nil {
		t.Error("batch is not empty after Reset")
	}
	for _, n := range []int{0, rocev2.BTHLen - 1, rocev2.MaxPacketLen - rocev2.ICRCLen + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Commit(%d) did not panic", n)
				}
			}()
			b.Commit(n, p)
		}()
	}
}

func TestPathPorts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		p        Path
		link     uint16
		src, dst uint16
	}{
		{Path{}, 4791, 4791, 4791},
		{Path{}, 9000, 9000, 9000},
		{Path{DstPort: 1}, 9000, 9000, 1},
		{Path{SrcPort: 50000}, 4791, 50000, 4791},
	} {
		c.p.Dst = addrB
		want := rocev2.NewFlow(addrA, addrB, c.src, c.dst)
		if got := NewPath(addrA, c.p).Flow(netip.AddrPortFrom(addrA, c.link)); *got != want {
			t.Errorf("%+v on a link of port %d has another flow", c.p, c.link)
		}
	}
}

// plainLink is a link of which only the abilities matter.
type plainLink struct {
	Link
	caps Capabilities
}

func (l plainLink) Capabilities() Capabilities { return l.caps }
func (l plainLink) Addr() netip.Addr           { return addrA }

// A link that need not open source ports takes any; one that has none refuses
// all but its own.
func TestOpenSourcePort(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		port  uint16
		ports bool
		ok    bool
	}{{0, false, true}, {4791, false, true}, {50000, true, true}, {50000, false, false}} {
		got, err := OpenSourcePort(plainLink{caps: Capabilities{Port: 4791, SourcePorts: c.ports}}, c.port, false)
		if (err == nil) != c.ok || c.ok && got != c.port {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
}

func TestRxBatchCopy(t *testing.T) {
	t.Parallel()
	b := NewRxBatch(0)
	if b.Buffers() != 1 || len(b.Buffer(0)) != RxBufferLen {
		t.Fatal("not one buffer")
	}
	data := make([]byte, 30000)
	for i := range 3 {
		data[0] = byte(i)
		if ok := b.AppendCopy(RxPacket{Data: data}); ok != (i < 2) {
			t.Errorf("copy %d: %v", i, ok)
		}
	}
	if b.Len() != 2 || b.Packets()[0].Data[0] != 0 || b.Packets()[1].Data[0] != 1 {
		t.Error("copies are wrong")
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	if !errors.Is(ErrClosed, net.ErrClosed) {
		t.Error("ErrClosed does not wrap net.ErrClosed")
	}
	if e := (&SendError{Index: 3, Failed: 2, Err: net.ErrClosed}); !errors.Is(e, net.ErrClosed) || e.Error() == "" {
		t.Error("SendError does not unwrap")
	}
	for s, want := range map[ICRCState]string{ICRCBad: "bad", ICRCVerified: "verified", ICRCWeak: "weak", 9: "unknown"} {
		if s.String() != want {
			t.Errorf("%d is %q", s, s.String())
		}
	}
}

// Each names every counter once.
func TestStatsEach(t *testing.T) {
	t.Parallel()
	s := LinkStats{
		TxPackets: 1, TxBytes: 2, TxBuffers: 3, TxErrors: 4, TxWaits: 5, RxPackets: 6, RxBytes: 7, RxBuffers: 8, RxBadICRC: 9,
		RxWeakICRC: 10, RxMalformed: 11, RxOverflow: 12, SocketErrors: 13, OffloadFaults: 14, TxShm: 15, RxShm: 16,
		TxStrays: 17, RxStrays: 18, StraysDropped: 19,
	}
	names, next := map[string]bool{}, uint64(1)
	s.Each(func(name string, v uint64) {
		if names[name] || v != next {
			t.Errorf("%s is %d, want %d", name, v, next)
		}
		names[name] = true
		next++
	})
}

func FuzzSplit(f *testing.F) {
	flow := rocev2.NewFlow(addrA, addrB, 4791, 4791)
	one := flow.Seal(0, packet(1, 64))
	f.Add(one, 0, false)
	f.Add(append(bytes.Clone(one), one...), len(one), false)
	f.Add(bytes.Repeat(one, 10), len(one)-3, true)
	f.Add([]byte{}, 1, false)
	f.Add(make([]byte, 65535), 1, true)
	f.Add(make([]byte, 65535), 17, false)
	b := NewRxBatch(1)
	v := NewVerifier(localB)
	f.Fuzz(func(t *testing.T, data []byte, segment int, v6 bool) {
		b.Reset()
		src := addrA
		if v6 {
			src = netip.MustParseAddr("fd00::1")
		}
		malformed := b.Split(data, segment, RxPacket{Src: src, SrcPort: 4791}, v)
		size := segment
		if size <= 0 || size > len(data) {
			size = len(data)
		}
		segments := 1
		if size > 0 {
			segments = (len(data) + size - 1) / size
		}
		if b.Len()+malformed != segments || b.Len() > maxRunReceived {
			t.Errorf("%d bytes in segments of %d: %d packets and %d malformed", len(data), segment, b.Len(), malformed)
		}
		for _, p := range b.Packets() {
			if len(p.Data) < minPacketLen || len(p.Data) > rocev2.MaxPacketLen || cap(p.Data) != len(p.Data) {
				t.Errorf("packet of %d bytes, capacity %d", len(p.Data), cap(p.Data))
			}
			if v6 && p.ICRC != ICRCBad && p.ICRC != ICRCSealed { // a sealed packet is verified by its key
				t.Error("mixed address families verified")
			}
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	tx := NewTxBatch(1 << 17)
	fill(b, tx, NewPath(addrA, Path{Dst: addrB}), 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096)
	b.SetBytes(int64(tx.Bytes()))
	for b.Loop() {
		tx.SealAll(localA, true)
	}
}

func BenchmarkSplit(b *testing.B) {
	tx := NewTxBatch(1 << 17)
	fill(b, tx, NewPath(addrA, Path{Dst: addrB}), 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096)
	tx.SealAll(localA, true)
	r := tx.Run(0, true)
	rx, v := NewRxBatch(1), NewVerifier(localB)
	b.SetBytes(int64(len(r.Data)))
	for b.Loop() {
		rx.Reset()
		rx.Split(r.Data, r.SegmentSize, RxPacket{Src: addrA, SrcPort: 4791}, v)
	}
}
