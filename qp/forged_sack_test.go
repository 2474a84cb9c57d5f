package qp

import (
	"bytes"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Forged selective acknowledgements make the requester believe that the path
// does not keep the order, and that the peer keeps what it has never got. All
// is sent again nevertheless, and soon: what the peer asks for shows it.
func TestForgedSelectiveAcksDelayLittle(t *testing.T) {
	t.Parallel()
	const packets = 64
	p := keepers(t, pairConfig{config: Config{MinProbe: time.Millisecond}}, 256)
	una := p.a.halves.req.Snapshot().Una
	claim := func(kept ...byte) {
		pkt := packet(rocev2.SelectiveAck, una)
		pkt.AETH = rocev2.AETH{Syndrome: rocev2.ACKNoCredits}
		pkt.Payload = kept
		if d := p.arrive(p.a, p.now, pkt); d != DropNone {
			t.Fatal(d)
		}
	}
	p.drop = func(from *testEnd, pkt *rocev2.Packet) bool { return from == p.a }
	must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpWrite, Signaled: true, SGList: p.a.sge(0, packets*1024), Remote: p.b.remote(0)}))
	p.transfer(p.a, packets)
	claim(0x80, 0, 0, 0)
	claim(0xff, 0, 0, 0)
	claim(0xff, 0xff, 0xff, 0x7f) // all that may have been sent
	p.drop = nil
	p.settle()
	if !bytes.Equal(p.a.mem[:packets*1024], p.b.mem[:packets*1024]) {
		t.Error("the data is wrong")
	}
	s := p.a.Stats()
	t.Logf("%v, %d sent again, %d probes, %d timeouts", time.Duration(p.now), s.Retransmits, s.Probes, s.Timeouts)
	if p.a.sq.n != 1 || s.Timeouts > 0 || time.Duration(p.now) > 20*time.Millisecond {
		t.Errorf("%d are done at %v, after %d timeouts", p.a.sq.n, time.Duration(p.now), s.Timeouts)
	}
}

// TestLongGapsAreToldLessOften: a selective acknowledgement costs the more the
// further it reaches, so there are fewer of them after a gap that has much
// after it.
func TestLongGapsAreToldLessOften(t *testing.T) {
	t.Parallel()
	const packets = 8192
	p := newPair(t, pairConfig{})
	p.b.SetReorder(MakePool(PoolConfig{Limit: 64 << 20, Reach: MostReorder}))
	told, buf := 0, make([]byte, rocev2.MaxPacketLen)
	for i := range packets {
		pkt := packet(rocev2.RCWriteMiddle, p.a.halves.req.Snapshot().Una.Add(1+i))
		pkt.Payload = make([]byte, 1024)
		if d := p.arrive(p.b, p.now, pkt); d != DropNone {
			t.Fatalf("packet %d: %v", i, d)
		}
		for n := p.b.poll(p.now, buf); n > 0; n = p.b.poll(p.now, buf) {
			if rocev2.Opcode(buf[0]) == rocev2.SelectiveAck {
				told++
			}
		}
	}
	if told < 256 || told > 700 {
		t.Errorf("%d selective acknowledgements of %d packets after a gap", told, packets)
	}
}

// TestForgedRoom: whatever a peer says of its room, credits of no meaning among
// them, while packets are lost, all is done in the end, nothing waits for the
// local ACK timeout, and afterwards as much may be in flight as before.
func TestForgedRoom(t *testing.T) {
	t.Parallel()
	for code := range 32 {
		for _, lost := range []int{1, 2, 17} {
			p := keepers(t, pairConfig{config: Config{MinProbe: time.Millisecond}}, 256)
			n := 0
			p.drop = func(from *testEnd, pkt *rocev2.Packet) bool {
				if pkt.BTH.Opcode == rocev2.SelectiveAck {
					pkt.AETH.Syndrome, pkt.BTH.Solicited = rocev2.SyndromeACK(uint8(code)), true
				}
				n++
				return from == p.a && n%64 == lost
			}
			for range 2 {
				must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpWrite, Signaled: true, SGList: p.a.sge(0, 64*1024), Remote: p.b.remote(0)}))
			}
			p.settle()
			s := p.a.Stats()
			if p.a.sq.n != 2 || s.Timeouts > 0 || time.Duration(p.now) > 50*time.Millisecond || !bytes.Equal(p.a.mem[:64*1024], p.b.mem[:64*1024]) {
				t.Errorf("room code %d, packet %d lost: %d are done at %v, after %d timeouts and %d packets sent again",
					code, lost, p.a.sq.n, time.Duration(p.now), s.Timeouts, s.Retransmits)
			}
			if s.Retransmits > 3*128 {
				t.Errorf("room code %d, packet %d lost: %d packets sent again", code, lost, s.Retransmits)
			}
		}
	}
}

// TestNoRoomBehindGaps: a pool that has no room, or room for next to nothing,
// as when other queue pairs have taken it all, costs round trips, and the local
// ACK timeout hardly ever.
func TestNoRoomBehindGaps(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 700, 2100, 5000, 20000} {
		for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
			for _, every := range []int{20, 50, 300} {
				p := newPair(t, pairConfig{config: Config{MinProbe: time.Millisecond}})
				p.a.SetReorder(MakePool(PoolConfig{Limit: limit}))
				p.b.SetReorder(MakePool(PoolConfig{Limit: limit}))
				n := 0
				p.drop = func(*testEnd, *rocev2.Packet) bool {
					n++
					return n%every == every-1
				}
				for range 8 {
					must(t, p.a.PostSend(&ib.SendWR{Opcode: op, Signaled: true, SGList: p.a.sge(0, 32*1024), Remote: p.b.remote(0)}))
				}
				p.settle()
				s := p.a.Stats()
				if p.a.sq.n != 8 || s.Timeouts > 1 || !bytes.Equal(p.a.mem[:32*1024], p.b.mem[:32*1024]) {
					t.Errorf("%d bytes of room, %v, every %dth packet lost: %d are done at %v after %d timeouts, %d probes, %d sent again",
						limit, op, every, p.a.sq.n, time.Duration(p.now), s.Timeouts, s.Probes, s.Retransmits)
				}
			}
		}
	}
}
