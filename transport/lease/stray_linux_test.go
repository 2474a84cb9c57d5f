//go:build !portable

package lease

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// strayPacket returns a packet for a queue pair, as a link has received it.
func strayPacket(qpn rocev2.QPN, psn int) *transport.RxPacket {
	p := rocev2.Packet{
		BTH:     rocev2.BTH{Opcode: rocev2.RCWriteMiddle, PKey: rocev2.DefaultPKey, DestQPN: qpn, PSN: rocev2.PSN(psn)},
		Payload: bytes.Repeat([]byte{byte(psn)}, 64),
	}
	return &transport.RxPacket{Data: append(p.AppendTo(nil), 0, 0, 0, 0), Src: netip.MustParseAddr("192.0.2.1"),
		SrcPort: 49152, TrafficClass: 8, HopLimit: 60, ICRC: transport.ICRCVerified}
}

// newStrayer returns one whose goroutine has not begun: what waits stays.
func newStrayer() *strayer {
	local := netip.MustParseAddr("192.0.2.9")
	return &strayer{token: Token{1, 2, 3}, path: transport.NewPath(local, transport.Path{Dst: local}),
		waiting: transport.NewTxBatch(strayBytes), kick: make(chan struct{}, 1)}
}

// Each packet that came astray is sent to the owner as it was, and unwrapped it
// is the packet again.
func TestStraysAreWrapped(t *testing.T) {
	t.Parallel()
	s := newStrayer()
	for i := range 10 {
		if !s.add(strayPacket(rocev2.QPN(0x100+i), i), time.Now()) {
			t.Fatal("it is dropped")
		}
	}
	if s.out.Load() != 10 || s.waiting.Len() != 10 {
		t.Fatalf("%d counted, %d wait", s.out.Load(), s.waiting.Len())
	}
	local := netip.MustParseAddr("192.0.2.9")
	for i := range 10 {
		data, path := s.waiting.Packet(i)
		got := transport.RxPacket{Data: append(bytes.Clone(data), 0, 0, 0, 0), Src: local, ICRC: transport.ICRCVerified}
		want := strayPacket(rocev2.QPN(0x100+i), i)
		if path.Dst != local || destQPN(data) != managementQPN || !unwrap(&got, local, &s.token) {
			t.Fatal("it is no envelope for the owner")
		}
		if n := len(want.Data) - rocev2.ICRCLen; !bytes.Equal(got.Data[:n], want.Data[:n]) || got.Src != want.Src || got.SrcPort != want.SrcPort ||
			got.TrafficClass != want.TrafficClass || got.HopLimit != want.HopLimit {
			t.Errorf("%+v\nwas %+v", got, want)
		}
		// It came astray once more: it does not go round.
		if s.add(&got, time.Now()) {
			t.Error("a packet that was handed over is handed over again")
		}
	}
}

// What is damaged, too long, came through memory, or is too much, goes nowhere.
func TestStraysAreBounded(t *testing.T) {
	t.Parallel()
	s := newStrayer()
	now := time.Now()
	for _, state := range []transport.ICRCState{transport.ICRCBad, transport.ICRCAbsent} {
		p := strayPacket(2, 1)
		if p.ICRC = state; s.add(p, now) {
			t.Errorf("a packet whose ICRC is %v is handed over", state)
		}
	}
	long := strayPacket(2, 1)
	if long.Data = append(long.Data, make([]byte, MaxInner)...); s.add(long, now) {
		t.Error("a packet that does not fit is handed over")
	}
	taken := func() (n int) {
		for s.add(strayPacket(2, 1), now) {
			n++
			if s.waiting.Len() > 100 {
				s.waiting.Reset() // as the goroutine does
			}
		}
		return n
	}
	if n := taken(); n != mostStrays {
		t.Errorf("%d packets at once, the most is %d", n, mostStrays)
	}
	now = now.Add(time.Second / 10)
	if n := taken(); n < mostStrays/10-1 || n > mostStrays/10+1 {
		t.Errorf("%d packets in a tenth of a second, the most is %d", n, mostStrays/10)
	}
	now = now.Add(time.Second)
	n := 0
	for ; s.add(strayPacket(2, 1), now); n++ {
	}
	if n == 0 || n > strayBytes/64 {
		t.Errorf("%d packets wait", n)
	}
	s.close()
	if s.add(strayPacket(2, 1), now.Add(time.Minute)) {
		t.Error("a lease that has ended hands over")
	}
}

// A buffer that the kernel has not taken apart brings packets of another slot:
// the sender makes one with UDP_SEGMENT, and the loopback passes it as it is.
func TestCoalescedBuffersComeAstray(t *testing.T) {
	t.Parallel()
	here := testAddr()
	s, err := udp.OpenSlots(here, udp.Config{}, 8)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	to, err := s.Link(2)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	other, err := s.Link(3)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	from, err := udp.Open(testAddr(), udp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	if !from.Capabilities().SegmentOffload || !to.Capabilities().ReceiveOffload {
		t.Skip("the kernel does not coalesce datagrams (UDP_GRO); Linux 5.0 and later do")
	}
	b := transport.NewTxBatch(64 << 10)
	path := transport.NewPath(from.Addr(), transport.Path{Dst: here})
	for i := range 8 {
		p := strayPacket(rocev2.QPN(0x102+i%2), i)
		b.Commit(copy(b.Room(), p.Data[:len(p.Data)-rocev2.ICRCLen]), path)
	}
	if err := from.Send(b); err != nil {
		t.Fatal(err)
	}
	rx, strays := transport.NewRxBatch(16), newStrayer()
	for got := 0; got < 8; {
		if err := to.Wait(); err != nil {
			t.Fatal(err)
		}
		n, err := to.Recv(rx)
		if err != nil {
			t.Fatal(err)
		}
		got += n
		for i := range rx.Packets() {
			if p := &rx.Packets()[i]; destQPN(p.Data)%8 != 2 && !strays.add(p, time.Now()) {
				t.Error("it is dropped")
			}
		}
	}
	if n := strays.out.Load(); n != 4 {
		t.Errorf("%d packets were for the other slot, not 4", n)
	}
}

// testAddr returns an address of 127.0.0.0/8 that no other test uses.
func testAddr() netip.Addr {
	n := rand.Uint32()
	return netip.AddrFrom4([4]byte{127, byte(n>>16)%250 + 2, byte(n >> 8), byte(n)%250 + 2})
}

// What the owner relays in one run comes one by one where the socket does not
// coalesce. Then its IP Identification is not known, and the ICRC is weak.
func TestUnwrapStates(t *testing.T) {
	t.Parallel()
	local := netip.MustParseAddr("192.0.2.9")
	inner := strayPacket(0x100, 1)
	for _, c := range []struct {
		state transport.ICRCState
		want  bool
	}{{transport.ICRCVerified, true}, {transport.ICRCWeak, true}, {transport.ICRCAbsent, false}, {transport.ICRCBad, false}} {
		e := Envelope{To: 2, Token: Token{1}, Addr: inner.Src}
		b := make([]byte, 2048)
		n := e.Put(b, inner.Data[:len(inner.Data)-4])
		p := transport.RxPacket{Data: b[:n+4], Src: local, ICRC: c.state}
		if got := unwrap(&p, local, &e.Token); got != c.want {
			t.Errorf("ICRC %v: %v", c.state, got)
		}
	}
}
