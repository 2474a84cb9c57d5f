package rsocket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// side is one end of a connection in a test, with its memory: the slots at 0,
// the ring after them.
type side struct {
	name   string
	mem    []byte
	block  Block
	stream Stream
	unsent []byte // of the stream
	read   []byte
	toPeer []Write  // on their way, in order
	data   [][]byte // what they write
	posted int      // receives
	wide   int      // credits that the side gives
}

const ringAt = SlotsLen

// pair makes two sides.
func pair(credits [2]uint16, half [2]uint32, bigEndian [2]bool) (a, b *side) {
	var s [2]*side
	for i := range s {
		s[i] = &side{name: string(rune('a' + i)), mem: make([]byte, ringAt+2*half[i]), posted: int(credits[i]) + MaxControl, wide: int(credits[i])}
		s[i].block = Block{
			BigEndian: bigEndian[i], Credits: credits[i],
			Slots: Memory{Addr: 1 << 32, Key: 7, Length: Slots},
			Ring:  Memory{Addr: 1<<32 + ringAt, Key: 7, Length: half[i]},
		}
	}
	s[0].stream = NewStream(&s[0].block, &s[1].block)
	s[1].stream = NewStream(&s[1].block, &s[0].block)
	return s[0], s[1]
}

// send posts a message of at most n bytes, if the peer allows it.
func (s *side) send(n int) bool {
	n = min(n, len(s.unsent), s.stream.Room())
	if n == 0 {
		return false
	}
	s.toPeer = append(s.toPeer, s.stream.Data(n))
	s.data = append(s.data, s.unsent[:n])
	s.unsent = s.unsent[n:]
	return true
}

// say posts what Control returns.
func (s *side) say() bool {
	w, payload, ok := s.stream.Control(nil)
	if ok {
		s.toPeer, s.data = append(s.toPeer, w), append(s.data, payload)
	}
	return ok
}

// deliver carries out the oldest WRITE of s at the peer.
func (s *side) deliver(peer *side) (bool, error) {
	if len(s.toPeer) == 0 {
		return false, nil
	}
	w, data := s.toPeer[0], s.data[0]
	s.toPeer, s.data = s.toPeer[1:], s.data[1:]
	if len(data) != w.Payload {
		return true, fmt.Errorf("%s: a message of %d bytes carries %d", s.name, w.Payload, len(data))
	}
	if len(data) > 0 {
		off := w.Addr - 1<<32
		if w.Key != 7 || off > uint64(len(peer.mem)) || off+uint64(len(data)) > uint64(len(peer.mem)) {
			return true, fmt.Errorf("%s writes %d bytes to %#x, key %d: outside of the memory", s.name, len(data), w.Addr, w.Key)
		}
		copy(peer.mem[off:], data)
	}
	if op, _ := SplitImm(w.Imm); op != OpData {
		s.stream.ControlDone()
	}
	if peer.posted--; peer.posted < 0 {
		return true, fmt.Errorf("%s has no receive for the messages of %s", peer.name, s.name)
	}
	return true, peer.stream.Receive(w.Imm, uint32(len(data)), peer.mem[:SlotsLen])
}

// take reads at most n bytes and posts the receives anew.
func (s *side) take(n int) bool {
	off, have := s.stream.Readable()
	n = min(n, have)
	s.read = append(s.read, s.mem[ringAt+off:][:n]...)
	s.stream.Consume(n)
	return n > 0
}

func (s *side) repost() { s.posted = s.wide + MaxControl }

// widen gives the peer more credits, with receives for them.
func (s *side) widen(by int) {
	s.wide += by
	s.repost()
	s.stream.Widen(uint16(s.wide))
}

// TestStreamModel: whatever the sizes, the credits, the byte orders and the
// order of steps, the bytes arrive as they were sent, in memory that the peer
// has offered, with receives for all messages, and no side waits for ever.
func TestStreamModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		credits := [2]uint16{uint16(1 + rng.IntN(9)), uint16(1 + rng.IntN(9))}
		half := [2]uint32{uint32(1 + rng.IntN(200)), uint32(1 + rng.IntN(200))}
		a, b := pair(credits, half, [2]bool{seed%2 == 0, seed%3 == 0})
		var sent [2][]byte
		for i, s := range []*side{a, b} {
			s.unsent = make([]byte, rng.IntN(5000))
			for j := range s.unsent {
				s.unsent[j] = byte(rng.Uint32())
			}
			sent[i] = bytes.Clone(s.unsent)
		}
		if err := run(rng, a, b); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !bytes.Equal(b.read, sent[0]) || !bytes.Equal(a.read, sent[1]) {
			t.Fatalf("seed %d: the bytes differ: %d of %d and %d of %d", seed, len(b.read), len(sent[0]), len(a.read), len(sent[1]))
		}
		if !a.stream.PeerDone() || !b.stream.PeerDone() || !a.stream.PeerGone() && !b.stream.PeerGone() {
			t.Errorf("seed %d: they have not taken leave", seed)
		}
	}
}

// run takes random steps until nothing more can happen.
func run(rng *rand.Rand, a, b *side) error {
	for quiet := 0; quiet < 200; quiet++ {
		s, peer := a, b
		if rng.IntN(2) == 0 {
			s, peer = b, a
		}
		did := false
		var err error
		switch rng.IntN(5) {
		case 0:
			did = s.send(1 + rng.IntN(100))
		case 1:
			did = s.say()
		case 2:
			did, err = s.deliver(peer)
			peer.repost()
		case 3:
			did = s.take(1 + rng.IntN(300))
		case 4:
			did = s.leave()
		}
		if did && s.wide < 30 && rng.IntN(20) == 0 {
			s.widen(rng.IntN(8))
		}
		if err != nil {
			return err
		}
		if did {
			quiet = 0
		}
	}
	return nil
}

// leave says that no more is sent, and then, when the peer has said so too,
// that the side is gone.
func (s *side) leave() bool {
	switch {
	case len(s.unsent) > 0 || s.stream.Saying():
		return false
	case s.stream.shutdown == notAsked:
		s.stream.Shutdown()
		return true
	case s.stream.PeerDone() && s.stream.disconnect == notAsked:
		s.stream.Disconnect()
		return true
	}
	return false
}

// The first messages of a side, as rsockets has them on the wire.
func TestMessages(t *testing.T) {
	t.Parallel()
	a, b := pair([2]uint16{8, 8}, [2]uint32{100, 100}, [2]bool{})
	target := func(off uint64) []byte {
		p := binary.LittleEndian.AppendUint64(nil, 1<<32+ringAt+off)
		p = binary.LittleEndian.AppendUint32(p, 7)
		return binary.LittleEndian.AppendUint32(p, 100)
	}
	// The block has offered the first half of the ring. The second one goes
	// into slot 1. Credits are absolute.
	b.say()
	if want := (Write{Imm: 4<<29 | 8, Addr: 1<<32 + SlotLen, Key: 7, Payload: SlotLen}); b.toPeer[0] != want || !bytes.Equal(b.data[0], target(100)) {
		t.Errorf("SGL is %+v, %x", b.toPeer[0], b.data[0])
	}
	a.unsent = make([]byte, 300)
	if a.send(100); a.toPeer[0] != (Write{Imm: 100, Addr: 1<<32 + ringAt, Key: 7, Payload: 100}) {
		t.Errorf("DATA is %+v", a.toPeer[0])
	}
	a.deliver(b)
	if b.say() {
		t.Error("a target is given while no half of the ring is free")
	}
	b.take(99)
	if b.say() {
		t.Error("a target is given while a byte of the half is not read")
	}
	b.take(1)
	b.say() // 1 message received, and 8 more
	if want := (Write{Imm: 4<<29 | 9, Addr: 1 << 32, Key: 7, Payload: SlotLen}); b.toPeer[1] != want || !bytes.Equal(b.data[1], target(0)) {
		t.Errorf("SGL is %+v, %x", b.toPeer[1], b.data[1])
	}
	b.stream.Shutdown()
	b.stream.Disconnect()
	for _, imm := range []uint32{7<<29 | 2, 7 << 29} {
		if w, payload, ok := b.stream.Control(nil); !ok || w != (Write{Imm: imm}) || len(payload) != 0 {
			t.Errorf("CTRL is %+v, %x, %v; expected imm %#x", w, payload, ok, imm)
		}
	}
	if _, _, ok := b.stream.Control(nil); ok {
		t.Error("something is said after DISCONNECT")
	}
}

// At most 4 messages that no credit stands for are on their way.
func TestControlsAreBounded(t *testing.T) {
	t.Parallel()
	_, b := pair([2]uint16{8, 1}, [2]uint32{100, 100}, [2]bool{})
	said := 0
	for range 20 {
		if err := b.stream.Receive(Imm(OpData, 0), 0, b.mem); err != nil {
			t.Fatal(err)
		}
		if b.say() {
			said++
		}
	}
	if said != MaxControl {
		t.Errorf("%d are on their way", said)
	}
	if b.stream.ControlDone(); !b.say() || b.say() {
		t.Error("one that completes does not let exactly one go")
	}
}

// A peer that does not keep to the protocol is found out.
func TestViolations(t *testing.T) {
	t.Parallel()
	target := func(length uint32) func(*side) {
		return func(s *side) {
			for i := range Slots {
				copy(s.mem[i*SlotLen:], appendMemory(nil, binary.LittleEndian, Memory{1 << 32, 7, length}))
			}
		}
	}
	type message struct{ imm, n uint32 }
	for _, tt := range []struct {
		why   string
		mem   func(*side)
		first []message
		bad   message
	}{
		{"more than was offered", nil, nil, message{Imm(OpData, 101), 101}},
		{"more than was offered, in two", nil, []message{{Imm(OpData, 60), 60}}, message{Imm(OpData, 41), 41}},
		{"says more than it wrote", nil, nil, message{Imm(OpData, 100), 1}},
		{"the largest value", nil, nil, message{Imm(OpData, MaxValue), MaxValue}},
		{"DATA after SHUTDOWN", nil, []message{{Imm(OpControl, ControlShutdown), 0}}, message{Imm(OpData, 1), 1}},
		{"DATA after DISCONNECT", nil, []message{{Imm(OpControl, ControlDisconnect), 0}}, message{Imm(OpData, 1), 1}},
		{"half a target", nil, nil, message{Imm(OpSGL, 9), 8}},
		{"a target too many", target(5), []message{{Imm(OpSGL, 9), SlotLen}}, message{Imm(OpSGL, 9), SlotLen}},
		{"a target beyond the address space", func(s *side) {
			copy(s.mem[SlotLen:], bytes.Repeat([]byte{0xff}, SlotLen))
		}, nil, message{Imm(OpSGL, 9), SlotLen}},
		{"a map that was not offered", nil, nil, message{Imm(OpIOMap, 0), 32}},
		{"an unknown control code", nil, nil, message{Imm(OpControl, 3), 0}},
		{"a reserved kind", nil, nil, message{Imm(1, 0), 0}},
		{"another reserved kind", nil, nil, message{Imm(5, 0), 0}},
	} {
		_, b := pair([2]uint16{8, 8}, [2]uint32{100, 100}, [2]bool{})
		if tt.mem != nil {
			tt.mem(b)
		}
		for _, m := range tt.first {
			if err := b.stream.Receive(m.imm, m.n, b.mem); err != nil {
				t.Errorf("%s: too early: %v", tt.why, err)
			}
		}
		if err := b.stream.Receive(tt.bad.imm, tt.bad.n, b.mem); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", tt.why, err)
		}
	}
}

// FuzzStream has a peer that sends anything, between steps of this side, which
// stays inside its ring, within the room, and never panics.
func FuzzStream(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 50, 1, 2, 3, 4, 0x80, 0, 0, 9, 16, 3, 3})
	f.Fuzz(func(t *testing.T, script []byte) {
		a, b := pair([2]uint16{4, 4}, [2]uint32{64, 64}, [2]bool{})
		_ = a
		b.unsent = make([]byte, 1000)
		for len(script) > 0 {
			step := script[0] % 5
			script = script[1:]
			switch step {
			case 0:
				if len(script) < 5+SlotLen {
					return
				}
				imm := binary.BigEndian.Uint32(script)
				copy(b.mem[b.stream.tx.next*SlotLen:], script[5:5+SlotLen])
				if b.stream.Receive(imm, uint32(script[4]), b.mem) != nil {
					return
				}
				script = script[5+SlotLen:]
			case 1:
				b.say()
			case 2:
				b.send(33)
			case 3:
				b.take(20)
			case 4:
				if b.stream.controls > 0 {
					b.stream.ControlDone()
				}
			}
			r := &b.stream.rx
			if r.consumed > r.received || r.received > r.granted || r.granted-r.consumed > uint64(2*r.half) {
				t.Fatalf("consumed %d, received %d, granted %d", r.consumed, r.received, r.granted)
			}
		}
	})
}
