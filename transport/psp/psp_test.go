package psp_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
	wire "github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/psp"
)

var (
	addrA = netip.MustParseAddr("10.0.0.1")
	addrB = netip.MustParseAddr("10.0.0.2")
	addrC = netip.MustParseAddr("10.0.0.3")
)

// datagram is what is on the cable.
type datagram struct {
	data    []byte
	segment int // 0: it is a single one
	src     netip.AddrPort
}

// cable is a link that the test holds the other end of.
type cable struct {
	transport.Link // nil: what a test does not call
	addr           netip.Addr
	sent, arrived  []datagram
	verifier       *transport.Verifier
	fail           error
}

func newCable(a netip.Addr) *cable {
	return &cable{addr: a, verifier: transport.NewVerifier(netip.AddrPortFrom(a, rocev2.UDPPort))}
}

func (c *cable) Addr() netip.Addr { return c.addr }

func (c *cable) Capabilities() transport.Capabilities {
	return transport.Capabilities{Port: rocev2.UDPPort, LinkMTU: 4200, MTU: rocev2.MTU4096}
}

// Send sends runs as one datagram each, as a socket with segmentation does.
func (c *cable) Send(b *transport.TxBatch) error {
	var fail transport.SendError
	local := netip.AddrPortFrom(c.addr, rocev2.UDPPort)
	for i := 0; i < b.Len(); {
		r := b.Run(i, true)
		i = r.Last
		if c.fail != nil {
			fail.Add(r.First, r.Len(), c.fail)
			continue
		}
		b.Seal(&r, local)
		d := datagram{data: bytes.Clone(r.Data), src: local}
		if r.Len() > 1 {
			d.segment = r.SegmentSize
		}
		c.sent = append(c.sent, d)
	}
	return fail.Result()
}

func (c *cable) Recv(b *transport.RxBatch) (int, error) {
	b.Reset()
	for _, d := range c.arrived {
		meta := transport.RxPacket{Src: d.src.Addr(), SrcPort: d.src.Port(), Dst: c.addr}
		b.Split(b.Copy(d.data), d.segment, meta, c.verifier)
	}
	c.arrived = nil
	return b.Len(), nil
}

// side is a link with what is below it.
type side struct {
	*psp.Link
	cable *cable
	rx    *transport.RxBatch
}

func newSide(a netip.Addr) *side {
	c := newCable(a)
	return &side{psp.New(c), c, transport.NewRxBatch(64)}
}

// take receives datagrams, and returns the packets that come out.
func (s *side) take(t testing.TB, all ...datagram) []transport.RxPacket {
	t.Helper()
	for i := range all {
		d := all[i]
		d.data = bytes.Clone(d.data)
		s.cable.arrived = append(s.cable.arrived, d)
	}
	n, err := s.Recv(s.rx)
	if err != nil || n != s.rx.Len() {
		t.Fatalf("Recv: %d, %v, and the batch has %d", n, err, s.rx.Len())
	}
	return s.rx.Packets()
}

const spiAB = 0x1234

var secret = [32]byte{1, 2, 3, 4}

func key(t testing.TB, v wire.Version) *wire.Key {
	t.Helper()
	k, err := wire.NewKey(v, secret[:v.KeyLen()])
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// pair returns two sides with an association from the first to the second.
func pair(t testing.TB, v wire.Version) (a, b *side) {
	t.Helper()
	a, b = newSide(addrA), newSide(addrB)
	if err := errors.Join(a.Seal(addrB, spiAB, key(t, v)), b.Accept(addrA, spiAB, key(t, v))); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func sealedPath(spi uint32) *transport.Path {
	return transport.NewPath(addrA, transport.Path{Dst: addrB, SPI: spi})
}

// packet returns BTH to pad.
func packet(psn, n int) []byte {
	p := rocev2.Packet{
		BTH:     rocev2.BTH{Opcode: rocev2.RCWriteMiddle, PKey: rocev2.DefaultPKey, DestQPN: 7, PSN: rocev2.PSN(psn)},
		Payload: bytes.Repeat([]byte{byte(psn)}, n),
	}
	return p.AppendTo(nil)
}

// batch has packets of the given payloads, with PSNs from 0 on.
func batch(p *transport.Path, payloads ...int) *transport.TxBatch {
	b := transport.NewTxBatch(1 << 20)
	for i, n := range payloads {
		b.Commit(copy(b.Room(), packet(i, n)), p)
	}
	return b
}

func send(t testing.TB, s *side, b *transport.TxBatch) []datagram {
	t.Helper()
	s.cable.sent = nil
	if err := s.Send(b); err != nil {
		t.Fatal(err)
	}
	return s.cable.sent
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func repeat(n, times int) (all []int) {
	for range times {
		all = append(all, n)
	}
	return all
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for v := range wire.GMAC256 + 1 {
		for _, payloads := range [][]int{{0}, {8}, {4096}, repeat(4096, 40), repeat(1024, 200), repeat(256, 300), {0, 4096, 1024, 1024, 8, 0, 0}} {
			a, b := pair(t, v)
			sent := send(t, a, batch(sealedPath(spiAB), payloads...))
			got := b.take(t, sent...)
			if len(got) != len(payloads) {
				t.Fatalf("%v: %d of %d packets: %+v", v, len(got), len(payloads), b.Counters())
			}
			for i := range got {
				p := &got[i]
				if want := packet(i, payloads[i]); !bytes.Equal(p.Data[:len(p.Data)-rocev2.ICRCLen], want) {
					t.Fatalf("%v: packet %d is %x, want %x", v, i, p.Data, want)
				}
				if p.SPI != spiAB || p.ICRC != transport.ICRCAbsent || p.Src != addrA || p.SrcPort != rocev2.UDPPort {
					t.Fatalf("%v: packet %d: %+v", v, i, p)
				}
				// The ICRC inside is right, too.
				c := transport.NewVerifier(netip.AddrPortFrom(addrB, rocev2.UDPPort)).Peer(netip.AddrPortFrom(addrA, rocev2.UDPPort))
				if state, _ := c.Check(0, p.Data); state != transport.ICRCVerified {
					t.Fatalf("%v: packet %d has an ICRC that is %v", v, i, state)
				}
			}
			if c := b.Counters(); c != (psp.Counters{Opened: uint64(len(payloads))}) {
				t.Errorf("%v: receiver %+v", v, c)
			}
			if c := a.Counters(); c != (psp.Counters{Sealed: uint64(len(payloads))}) {
				t.Errorf("%v: sender %+v", v, c)
			}
		}
	}
}

// TestNothingReadable looks for a payload in what is on the cable, and opens
// it with crypto/cipher alone.
func TestNothingReadable(t *testing.T) {
	t.Parallel()
	a, _ := pair(t, wire.GCM128)
	sent := send(t, a, batch(sealedPath(spiAB), repeat(512, 20)...))
	block, err := aes.NewCipher(secret[:16])
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, d := range sent {
		for data := d.data; len(data) > 0; n++ {
			size := min(d.segment, len(data))
			if size == 0 {
				size = len(data)
			}
			one := data[:size]
			data = data[size:]
			if n > 1 && bytes.Contains(one, bytes.Repeat([]byte{byte(n)}, 8)) {
				t.Fatalf("packet %d can be read: %x", n, one)
			}
			plain, err := gcm.Open(nil, one[4:16], one[24:], one[:24])
			if err != nil || !bytes.Equal(plain[:len(plain)-4], packet(n, 512)) {
				t.Fatalf("packet %d opens to %x, %v", n, plain, err)
			}
			if src, dst := binary.BigEndian.Uint16(one[16:]), binary.BigEndian.Uint16(one[18:]); src != 4791 || dst != 4791 || int(binary.BigEndian.Uint16(one[20:])) != 8+len(plain) {
				t.Fatalf("packet %d has the UDP header %x", n, one[16:24])
			}
		}
	}
	if n != 20 {
		t.Errorf("%d packets on the cable", n)
	}
}

// TestMixed sends packets in clear and sealed in one batch: their order stays.
func TestMixed(t *testing.T) {
	t.Parallel()
	a, b := pair(t, wire.GCM128)
	paths := []*transport.Path{sealedPath(spiAB), transport.NewPath(addrA, transport.Path{Dst: addrB})}
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		tx := transport.NewTxBatch(1 << 20)
		var clear []bool
		for i := range 1 + r.IntN(40) {
			clear = append(clear, r.IntN(3) == 0)
			which := 0
			if clear[i] {
				which = 1
			}
			tx.Commit(copy(tx.Room(), packet(i, 64*r.IntN(3))), paths[which])
		}
		got := b.take(t, send(t, a, tx)...)
		if len(got) != len(clear) {
			t.Fatalf("%d of %d packets", len(got), len(clear))
		}
		for i := range got {
			p := &got[i]
			psn := int(binary.BigEndian.Uint32(p.Data[8:]) & 0xffffff)
			if (p.SPI == 0) != clear[i] || psn != i || p.ICRC.Refuses() {
				t.Fatalf("packet %d: PSN %d, %+v", i, psn, p)
			}
		}
	}
}

// TestPathsOfAnAssociation has packets of one association leave by two paths:
// each has the ports of its own.
func TestPathsOfAnAssociation(t *testing.T) {
	t.Parallel()
	a, b := pair(t, wire.GCM128)
	ports := []uint16{50000, 60000, 50000, 50000, 60000}
	tx := transport.NewTxBatch(1 << 16)
	for i, port := range ports {
		tx.Commit(copy(tx.Room(), packet(i, 8)), transport.NewPath(addrA, transport.Path{Dst: addrB, SPI: spiAB, SrcPort: port}))
	}
	got := b.take(t, send(t, a, tx)...)
	if len(got) != len(ports) {
		t.Fatalf("%d of %d packets: %+v", len(got), len(ports), b.Counters())
	}
	for i := range got {
		p := &got[i]
		c := transport.NewVerifier(netip.AddrPortFrom(addrB, rocev2.UDPPort)).Peer(netip.AddrPortFrom(addrA, ports[i]))
		if state, _ := c.Check(0, p.Data); p.SrcPort != ports[i] || state != transport.ICRCVerified {
			t.Errorf("packet %d is from port %d, with an ICRC that is %v; want port %d", i, p.SrcPort, state, ports[i])
		}
	}
}

// TestChangedBits changes every bit of a sealed packet: nothing comes out. One
// of them makes the IV 0.
func TestChangedBits(t *testing.T) {
	t.Parallel()
	for _, v := range []wire.Version{wire.GCM128, wire.GMAC128} {
		a, b := pair(t, v)
		d := send(t, a, batch(sealedPath(spiAB), 64))[0]
		for bit := range len(d.data) * 8 {
			d.data[bit/8] ^= 1 << (bit % 8)
			for _, p := range b.take(t, d) {
				if !p.ICRC.Refuses() {
					t.Fatalf("%v, bit %d of byte %d changed: %+v", v, bit%8, bit/8, p)
				}
			}
			d.data[bit/8] ^= 1 << (bit % 8)
		}
		if got := b.take(t, d); len(got) != 1 || got[0].SPI != spiAB {
			t.Fatalf("%v: the packet itself does not open any more: %+v", v, b.Counters())
		}
		if c := b.Counters(); c.Opened != 1 || c.Forged == 0 || c.Unknown == 0 || c.Format == 0 || c.Stale != 1 || c.Replays+c.Peer != 0 {
			t.Errorf("%v: %+v", v, c)
		}
	}
}

// TestStrangers has packets of other peers and SPIs, and what is no packet.
func TestStrangers(t *testing.T) {
	t.Parallel()
	a, b := pair(t, wire.GCM128)
	c := newSide(addrC)
	if err := errors.Join(c.Seal(addrB, spiAB, key(t, wire.GCM128)), a.Seal(addrB, 9, key(t, wire.GCM128)), b.Accept(addrC, 10, key(t, wire.GCM256))); err != nil {
		t.Fatal(err)
	}
	fromC := send(t, c, batch(transport.NewPath(addrC, transport.Path{Dst: addrB, SPI: spiAB}), 8))[0]
	if got := b.take(t, fromC); len(got) != 0 || b.Counters().Peer != 1 {
		t.Errorf("the key of another peer opens: %+v", b.Counters())
	}
	fromC.src = netip.AddrPortFrom(addrA, rocev2.UDPPort) // one that has the key may say so
	if got := b.take(t, fromC); len(got) != 1 {
		t.Errorf("%+v", b.Counters())
	}
	unknown := send(t, a, batch(sealedPath(9), 8))[0]
	if got := b.take(t, unknown); len(got) != 0 || b.Counters().Unknown != 1 {
		t.Errorf("an SPI that nothing accepts: %+v", b.Counters())
	}
	binary.BigEndian.PutUint32(unknown.data[4:], 10)
	unknown.src = netip.AddrPortFrom(addrC, rocev2.UDPPort)
	if got := b.take(t, unknown); len(got) != 0 || b.Counters().Format != 1 {
		t.Errorf("of another version: %+v", b.Counters())
	}
	k := key(t, wire.GCM128)
	for i, inside := range [][]byte{nil, make([]byte, 8), make([]byte, 8+15)} {
		data := k.Seal(nil, &wire.Header{Next: wire.UDP, SPI: spiAB, IV: uint64(100 + i)}, nil, inside)
		if got := b.take(t, datagram{data: data, src: netip.AddrPortFrom(addrA, 4791)}); len(got) != 0 {
			t.Errorf("a packet of %d bytes inside: %+v", len(inside), got)
		}
	}
	data := k.Seal(nil, &wire.Header{Next: 6, SPI: spiAB, IV: 200}, nil, make([]byte, 64))
	data[0] = 6
	for _, p := range b.take(t, datagram{data: data, src: netip.AddrPortFrom(addrA, 4791)}) {
		if !p.ICRC.Refuses() {
			t.Errorf("TCP inside: %+v", p)
		}
	}
}

// TestReplays sends packets, of which each comes again at once, later, and very
// late.
func TestReplays(t *testing.T) {
	t.Parallel()
	rounds := 1000
	if testing.Short() {
		rounds = 50
	}
	a, b := pair(t, wire.GCM128)
	path := sealedPath(spiAB)
	var old []datagram
	opened := 0
	for i := range rounds {
		sent := send(t, a, batch(path, repeat(0, 50)...))
		opened += len(b.take(t, sent...))
		for _, again := range [][]datagram{sent, old} {
			if got := b.take(t, again...); len(got) != 0 {
				t.Fatalf("round %d: %d packets came twice", i, len(got))
			}
		}
		if i%10 == 0 {
			old = append(old, sent...)
			old = old[max(0, len(old)-200):]
		}
	}
	if c := b.Counters(); opened != rounds*50 || c.Opened != uint64(opened) || c.Replays == 0 || !testing.Short() && c.Stale == 0 || c.Forged+c.Format+c.Unknown+c.Peer != 0 {
		t.Errorf("%d opened: %+v", opened, c)
	}
}

func TestAssociations(t *testing.T) {
	t.Parallel()
	a, b := pair(t, wire.GCM128)
	if err := b.Accept(addrC, spiAB, key(t, wire.GCM128)); !errors.Is(err, psp.ErrTaken) {
		t.Errorf("an SPI twice: %v", err)
	}
	if err := a.Seal(addrB, spiAB, key(t, wire.GCM128)); !errors.Is(err, psp.ErrTaken) {
		t.Errorf("a key that begins anew: %v", err)
	}
	if a.Seal(addrB, 0, key(t, wire.GCM128)) == nil || b.Accept(addrA, 0, key(t, wire.GCM128)) == nil {
		t.Error("SPI 0 has a key")
	}
	if err := a.Seal(addrC, spiAB, key(t, wire.GCM128)); err != nil {
		t.Errorf("another peer with the same SPI: %v", err)
	}
	path := sealedPath(spiAB)
	sent := send(t, a, batch(path, 8))
	check(t, b.Accept(addrC, 77, key(t, wire.GCM128)))
	b.EndAccept(spiAB)
	if got := b.take(t, sent...); len(got) != 0 || b.Counters().Unknown != 1 {
		t.Errorf("after the end: %+v, %+v", got, b.Counters())
	}
	a.EndSeal(addrB, spiAB)
	a.cable.sent = nil
	tx := transport.NewTxBatch(1 << 16)
	clear := transport.NewPath(addrA, transport.Path{Dst: addrB})
	for i, p := range []*transport.Path{clear, path, path, clear} {
		tx.Commit(copy(tx.Room(), packet(i, 8)), p)
	}
	err := a.Send(tx)
	var fail *transport.SendError
	if !errors.As(err, &fail) || fail.Index != 1 || fail.Failed != 2 || !errors.Is(err, psp.ErrNoKey) {
		t.Errorf("after the end: %v", err)
	}
	for _, d := range a.cable.sent {
		if transport.IsSealed(d.data) || bytes.Contains(d.data, packet(1, 8)) {
			t.Errorf("after the end there is on the cable: %x", d.data)
		}
	}
	if c := a.Counters(); c.NoKey != 2 {
		t.Errorf("%+v", c)
	}
}

// TestSendErrors has the link inside fail: packets are counted as the caller
// does.
func TestSendErrors(t *testing.T) {
	t.Parallel()
	a, _ := pair(t, wire.GCM128)
	a.cable.fail = errors.New("no route")
	tx := transport.NewTxBatch(1 << 20)
	for i := range 100 {
		p := sealedPath(spiAB)
		if i < 30 {
			p = transport.NewPath(addrA, transport.Path{Dst: addrB})
		}
		tx.Commit(copy(tx.Room(), packet(i, 4096)), p)
	}
	var fail *transport.SendError
	if err := a.Send(tx); !errors.As(err, &fail) || fail.Index != 0 || fail.Failed != 100 || !errors.Is(err, a.cable.fail) {
		t.Errorf("%v", err)
	}
}

func TestMTU(t *testing.T) {
	t.Parallel()
	a, _ := pair(t, wire.GCM128)
	if got := a.MTU(addrB); got != rocev2.LargestMTU(4160) || got == a.Capabilities().MTU {
		t.Errorf("%v, and in clear %v", got, a.Capabilities().MTU)
	}
}

func BenchmarkLink(b *testing.B) {
	for _, v := range []wire.Version{wire.GCM128, wire.GMAC128} {
		for _, size := range []int{8, 4096} {
			b.Run(fmt.Sprintf("%v/%d", v, size), func(b *testing.B) {
				from, to := pair(b, v)
				tx := batch(sealedPath(spiAB), repeat(size, 15)...)
				b.SetBytes(int64(15 * size))
				b.ReportAllocs()
				for b.Loop() {
					to.cable.arrived = send(b, from, tx)
					if n, _ := to.Recv(to.rx); n != 15 {
						b.Fatal(n)
					}
				}
			})
		}
	}
}
