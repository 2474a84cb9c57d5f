package guard_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/guard"
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
	arrived        []datagram
	verifier       *transport.Verifier
	noPorts        bool

	mu    sync.Mutex
	sent  []datagram
	fails int // calls of Send that are to fail
}

func (c *cable) Addr() netip.Addr { return c.addr }

func (c *cable) Close() error { return nil }

func (c *cable) Capabilities() transport.Capabilities {
	return transport.Capabilities{Port: rocev2.UDPPort, LinkMTU: 1500, MTU: rocev2.MTU1024, SourcePorts: true}
}

func (c *cable) OpenSourcePort(port uint16, exact bool) (uint16, error) {
	if c.noPorts {
		return 0, errors.New("no port is free")
	}
	return port, nil
}

func (c *cable) Send(b *transport.TxBatch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fails > 0 {
		c.fails--
		return &transport.SendError{Failed: b.Len(), Err: errors.New("no route")}
	}
	local := netip.AddrPortFrom(c.addr, rocev2.UDPPort)
	for i := 0; i < b.Len(); {
		r := b.Run(i, true)
		i = r.Last
		b.Seal(&r, local)
		d := datagram{data: bytes.Clone(r.Data), src: netip.AddrPortFrom(c.addr, cmp.Or(r.Path.SrcPort, rocev2.UDPPort))}
		if r.Len() > 1 {
			d.segment = r.SegmentSize
		}
		c.sent = append(c.sent, d)
	}
	return nil
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

// side is a link with what is below it, and what it has asked for.
type side struct {
	*guard.Link
	cable *cable
	table *guard.Table
	rx    *transport.RxBatch

	mu    sync.Mutex
	asked []string
}

func newSide(a netip.Addr, slot uint8, serial uint32, through func([]byte) bool) *side {
	s := &side{cable: &cable{addr: a, verifier: transport.NewVerifier(netip.AddrPortFrom(a, rocev2.UDPPort))}, table: guard.NewTable(), rx: transport.NewRxBatch(256)}
	s.Link = guard.New(s.cable, guard.Config{Table: s.table, Slot: slot, Serial: serial, Through: through, Want: func(p netip.Addr, why guard.Reason) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked = append(s.asked, fmt.Sprint(p, " ", why))
	}})
	return s
}

func (s *side) asks() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// sends sends packets, and returns what is on the cable.
func (s *side) sends(t testing.TB, dst netip.Addr, packets ...[]byte) []datagram {
	t.Helper()
	b := transport.NewTxBatch(1 << 20)
	path := transport.NewPath(s.Addr(), transport.Path{Dst: dst})
	for _, p := range packets {
		b.Commit(copy(b.Room(), p), path)
	}
	if err := s.Send(b); err != nil {
		t.Fatal(err)
	}
	return s.taken()
}

func (s *side) taken() []datagram {
	s.cable.mu.Lock()
	defer s.cable.mu.Unlock()
	sent := s.cable.sent
	s.cable.sent = nil
	return sent
}

// take receives datagrams, and returns the packets that come out.
func (s *side) take(t testing.TB, all ...datagram) []transport.RxPacket {
	t.Helper()
	for _, d := range all {
		d.data = bytes.Clone(d.data)
		s.cable.arrived = append(s.cable.arrived, d)
	}
	n, err := s.Recv(s.rx)
	if err != nil || n != s.rx.Len() {
		t.Fatalf("Recv: %d, %v, and the batch has %d", n, err, s.rx.Len())
	}
	return s.rx.Packets()
}

func secret(number uint16, slots int, seed byte) guard.Secret {
	return guard.Secret{Number: number, Slots: uint16(slots), Version: psp.GCM128, Master: [psp.MasterKeyLen]byte{seed, 1, 2}}
}

// agree gives two sides keys for both directions.
func agree(a, b *side, number uint16, slotsA, slotsB int) {
	toB, toA := secret(number, slotsB, byte(number)), secret(number+1, slotsA, byte(number)+100)
	a.table.Set(&guard.Peer{Addr: b.Addr(), Send: toB, Receives: []guard.Secret{toA}})
	b.table.Set(&guard.Peer{Addr: a.Addr(), Send: toA, Receives: []guard.Secret{toB}})
}

// packet returns BTH to pad.
func packet(qpn, psn, n int) []byte {
	p := rocev2.Packet{
		BTH:     rocev2.BTH{Opcode: rocev2.RCWriteMiddle, PKey: rocev2.DefaultPKey, DestQPN: rocev2.QPN(qpn), PSN: rocev2.PSN(psn)},
		Payload: bytes.Repeat([]byte{byte(psn)}, n),
	}
	return p.AppendTo(nil)
}

func counter(t testing.TB, s *side, name string, want uint64) {
	t.Helper()
	c, got := s.Counters(), uint64(1<<63)
	c.Each(func(n string, v uint64) {
		if n == name {
			got = v
		}
	})
	if got != want {
		t.Errorf("%s is %d, not %d: %+v", name, got, want, c)
	}
}

// TestSealed: what leaves is sealed, and opens at the peer alone.
func TestSealed(t *testing.T) {
	t.Parallel()
	a, b, c := newSide(addrA, 0, 0, nil), newSide(addrB, 0, 0, nil), newSide(addrC, 0, 0, nil)
	agree(a, b, 1, 1, 1)
	agree(c, b, 3, 1, 1)
	one, two := packet(7, 1, 100), packet(8, 2, 100)
	sent := a.sends(t, addrB, one, two)
	if len(sent) != 1 || sent[0].segment == 0 {
		t.Errorf("%d datagrams: packets to a peer with one socket leave as one run", len(sent))
	}
	for _, d := range sent {
		if !transport.IsSealed(d.data) || bytes.Contains(d.data, one[rocev2.BTHLen:]) {
			t.Error("in clear")
		}
	}
	got := b.take(t, sent...)
	if len(got) != 2 || !bytes.Equal(got[0].Data[:len(one)], one) || !bytes.Equal(got[1].Data[:len(two)], two) {
		t.Fatalf("%d packets came out", len(got))
	}
	if p := got[0]; p.Src != addrA || p.SrcPort != rocev2.UDPPort || p.ICRC != transport.ICRCAbsent || p.SPI != 0 {
		t.Errorf("%+v", p)
	}
	if n := len(b.take(t, sent...)); n != 0 {
		t.Errorf("%d replays came out", n)
	}
	counter(t, b, "guard_replayed", 2)
	for i := range sent {
		sent[i].src = netip.AddrPortFrom(addrC, rocev2.UDPPort)
	}
	b.take(t, sent...)
	counter(t, b, "guard_wrong_peer", 2)
	if n := a.Capabilities(); n.LinkMTU != 1460 || n.MTU != rocev2.MTU1024 || a.ReadLinkMTU(addrB) != 1460 || a.ReadLinkMTU(addrA) != 1500 {
		t.Errorf("%+v, %d", n, a.ReadLinkMTU(addrB))
	}
}

// TestEveryByteChanged: no packet opens that differs from the one that was
// sealed, and none moves what is there.
func TestEveryByteChanged(t *testing.T) {
	t.Parallel()
	a, b := newSide(addrA, 0, 0, nil), newSide(addrB, 0, 0, nil)
	agree(a, b, 1, 1, 1)
	d := a.sends(t, addrB, packet(7, 1, 40))[0]
	for i := range d.data {
		for bit := range 8 {
			forged := d
			forged.data = bytes.Clone(d.data)
			forged.data[i] ^= 1 << bit
			if n := len(b.take(t, forged)); n != 0 && i >= 8 {
				t.Fatalf("byte %d bit %d: %d packets", i, bit, n)
			} else if n != 0 { // the SPI of a queue pair, which has no key here
				if p := b.rx.Packets()[0]; p.ICRC != transport.ICRCSealed {
					t.Fatalf("byte %d bit %d: %v", i, bit, p.ICRC)
				}
			}
		}
	}
	if len(b.take(t, d)) != 1 {
		t.Error("the packet itself does not open any more")
	}
}

// TestClear: what comes in clear is dropped, but for what the host has sent to
// itself.
func TestClear(t *testing.T) {
	t.Parallel()
	a, b := newSide(addrA, 0, 0, nil), newSide(addrB, 0, 0, nil)
	agree(a, b, 1, 1, 1)
	raw := &side{cable: &cable{addr: addrA}}
	raw.Link = guard.New(raw.cable, guard.Config{Table: guard.NewTable(), Through: func([]byte) bool { return true }})
	if n := len(b.take(t, raw.sends(t, addrB, packet(7, 1, 40))...)); n != 0 {
		t.Errorf("%d packets in clear were taken", n)
	}
	counter(t, b, "guard_clear", 1)
	own := b.sends(t, addrB, packet(7, 1, 40))
	if len(own) != 1 || transport.IsSealed(own[0].data) || len(b.take(t, own...)) != 1 {
		t.Error("a packet of the own address does not come back")
	}
	if err := b.JoinGroup(netip.MustParseAddr("239.1.2.3")); !errors.Is(err, guard.ErrMulticast) {
		t.Error(err)
	}
}

// TestWithoutKeys: packets wait for keys, in their order, and not for ever; not
// one leaves in clear.
func TestWithoutKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newSide(addrA, 0, 0, nil), newSide(addrB, 0, 0, nil)
		defer a.Close()
		for psn := range guard.WaitPackets + 6 {
			if sent := a.sends(t, addrB, packet(7, psn, 40)); len(sent) != 0 {
				t.Fatal("it has left")
			}
		}
		counter(t, a, "guard_waited", guard.WaitPackets)
		counter(t, a, "guard_no_keys", 6)
		if asked := a.asks(); len(asked) == 0 || asked[0] != "10.0.0.2 0" {
			t.Errorf("asked for %v", asked)
		}
		agree(a, b, 1, 1, 1)
		time.Sleep(10 * time.Millisecond)
		got := b.take(t, a.taken()...)
		if len(got) != guard.WaitPackets {
			t.Fatalf("%d packets came out", len(got))
		}
		for i := range got {
			if psn := binary.BigEndian.Uint32(got[i].Data[8:]); psn != uint32(i) {
				t.Fatalf("packet %d has PSN %d", i, psn)
			}
		}
		a.sends(t, addrC, packet(7, 1, 40))
		time.Sleep(guard.WaitTime + time.Second)
		counter(t, a, "guard_no_keys", 7)
		agree(a, newSide(addrC, 0, 0, nil), 3, 1, 1)
		time.Sleep(time.Second)
		if n := len(a.taken()); n != 0 {
			t.Errorf("%d packets left too late", n)
		}
	})
}

// TestSlots: the low bits of the SPI are the slot of the queue pair, each slot
// has its own runs and keys, and a packet opens in its own slot alone.
func TestSlots(t *testing.T) {
	t.Parallel()
	a := newSide(addrA, 9, 5, func(p []byte) bool { return binary.BigEndian.Uint32(p[4:]) == 1 })
	b := [2]*side{newSide(addrB, 4, 1, nil), newSide(addrB, 5, 2, nil)}
	agree(a, b[0], 1, 256, 8)
	agree(a, b[1], 1, 256, 8)
	sent := a.sends(t, addrB, packet(0x10004, 1, 100), packet(0x2000d, 2, 100), packet(0x10004, 3, 100))
	if len(sent) != 3 {
		t.Fatalf("%d datagrams", len(sent))
	}
	for i, slot := range []byte{4, 5, 4} {
		if d := sent[i].data; d[7] != slot || d[6] != 9 || binary.BigEndian.Uint32(d[8:]) != 5 {
			t.Errorf("header % x", d[:16])
		}
		if n := len(b[slot-4].take(t, sent[i])); n != 1 {
			t.Errorf("packet %d does not open in its slot", i)
		}
		b[5-slot].take(t, sent[i])
	}
	counter(t, b[0], "guard_astray", 1)
	counter(t, b[1], "guard_astray", 2)
	if sent := a.sends(t, addrB, packet(1, 1, 40)); len(sent) != 1 || transport.IsSealed(sent[0].data) {
		t.Error("what the owner of the port seals has left another way")
	}
}

// TestTwoLeases: two that have the same slot one after the other never seal
// with the same initialization vector, and the second one is heard.
func TestTwoLeases(t *testing.T) {
	t.Parallel()
	b := newSide(addrB, 0, 0, nil)
	seen := map[string]bool{}
	for serial := range uint32(3) {
		a := newSide(addrA, 9, serial, nil)
		agree(a, b, 1, 256, 1)
		for psn := range 5 {
			d := a.sends(t, addrB, packet(7, psn, 40))[0]
			if nonce := string(d.data[4:16]); seen[nonce] {
				t.Fatalf("nonce % x twice", nonce)
			} else {
				seen[nonce] = true
			}
			if len(b.take(t, d)) != 1 {
				t.Errorf("serial %d, packet %d does not open", serial, psn)
			}
		}
	}
}

// TestNewKeys: new keys are used at once, the ones before still open, and what
// changes for others changes nothing.
func TestNewKeys(t *testing.T) {
	t.Parallel()
	a, b := newSide(addrA, 0, 0, nil), newSide(addrB, 0, 0, nil)
	agree(a, b, 1, 1, 1)
	late := a.sends(t, addrB, packet(7, 1, 40))
	agree(a, newSide(addrC, 0, 0, nil), 11, 1, 1)
	again := a.sends(t, addrB, packet(7, 1, 40))
	if iv := binary.BigEndian.Uint64(again[0].data[8:]); iv != 2 {
		t.Errorf("the second IV is %d", iv)
	}
	old, now := secret(1, 1, 1), secret(5, 1, 5)
	a.table.Set(&guard.Peer{Addr: addrB, Send: now})
	b.table.Set(&guard.Peer{Addr: addrA, Receives: []guard.Secret{now, old}})
	fresh := a.sends(t, addrB, packet(7, 2, 40))
	if n := len(b.take(t, fresh[0], late[0], again[0])); n != 3 {
		t.Errorf("%d of 3 packets open", n)
	}
	b.table.Set(&guard.Peer{Addr: addrA, Receives: []guard.Secret{now}})
	b.take(t, again[0])
	counter(t, b, "guard_unknown_spi", 1)
	if asked := b.asks(); len(asked) != 1 || asked[0] != "10.0.0.1 1" {
		t.Errorf("asked for %v", asked)
	}
	a.table.Remove(addrB)
	if sent := a.sends(t, addrB, packet(7, 2, 40)); len(sent) != 0 {
		t.Error("it has left without keys")
	}
}

// TestStrangersAsk: a flood of unknown packets asks a bounded number of times.
func TestStrangersAsk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newSide(addrB, 0, 0, nil)
		head := psp.Header{Next: psp.UDP, SPI: psp.SecondMaster | 77<<16, IV: 1}
		d := datagram{data: append(head.AppendTo(nil), make([]byte, 64)...), src: netip.AddrPortFrom(addrA, 1)}
		for range 5000 {
			b.take(t, d)
		}
		if n := len(b.asks()); n > 100 {
			t.Errorf("asked %d times in no time", n)
		}
		counter(t, b, "guard_unknown_spi", 5000)
	})
}

// TestTableWhileWritten: a reader sees whole entries alone.
func TestTableWhileWritten(t *testing.T) {
	t.Parallel()
	a, b := newSide(addrA, 0, 0, nil), newSide(addrB, 0, 0, nil)
	agree(a, b, 1, 1, 1)
	// Both have the keys: a packet without waits while the table changes.
	if got := b.take(t, a.sends(t, addrB, packet(7, 0, 40))...); len(got) != 1 {
		t.Fatal("a packet was lost")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 2000 {
			addr := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
			if i < guard.MostPeers-1 {
				a.table.Set(&guard.Peer{Addr: addr, Send: secret(9, 1, byte(i))})
			} else {
				a.table.Remove(netip.AddrFrom4([4]byte{10, 1, byte((i - 1000) >> 8), byte(i - 1000)}))
			}
		}
	}()
	for psn := 1; ; psn++ {
		if got := b.take(t, a.sends(t, addrB, packet(7, psn, 40))...); len(got) != 1 {
			t.Fatal("a packet was lost")
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// TestUsedUp: others are wanted when a key has sealed half of what it may, and
// still when it has sealed all; nothing is sealed beyond, and new ones go on.
func TestUsedUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = 4096
		a := newSide(addrA, 0, 0, nil)
		a.Link = guard.New(a.cable, guard.Config{Table: a.table, Limit: limit, Want: func(p netip.Addr, why guard.Reason) {
			a.asked = append(a.asked, fmt.Sprint(p, " ", why))
		}})
		agree(a, newSide(addrB, 0, 0, nil), 1, 1, 1)
		many := func(n int) (all [][]byte) {
			for range n {
				all = append(all, packet(7, 1, 40))
			}
			return all
		}
		a.sends(t, addrB, many(limit/2-1)...)
		if n := len(a.asks()); n != 0 {
			t.Errorf("asked %d times before half", n)
		}
		a.sends(t, addrB, many(limit/2+1)...)
		if n := len(a.asks()); n == 0 || a.asks()[0] != "10.0.0.2 2" {
			t.Errorf("asked for %v", a.asks())
		}
		// The peer was not there all that time: it must be asked again.
		time.Sleep(time.Hour)
		asked := len(a.asks())
		if n := len(a.sends(t, addrB, packet(7, 1, 40))); n != 0 {
			t.Error("a key seals more than it may")
		}
		if len(a.asks()) == asked {
			t.Error("nobody is asked for keys any more")
		}
		agree(a, newSide(addrB, 0, 0, nil), 3, 1, 1)
		if n := len(a.sends(t, addrB, packet(7, 1, 40))); n != 1 {
			t.Error("nothing leaves with new keys")
		}
	})
}
