package rsocket

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// MaxControl is how many SGL and CTRL messages may be on their way. They take a
// receive of the peer that no credit stands for, so it keeps some for them.
const MaxControl = 4

// ErrProtocol is wrapped by the errors of [Stream.Receive]: the peer does not
// keep to the protocol.
var ErrProtocol = errors.New("rsockets protocol violated by the peer")

// Stream is the state of one connection.
type Stream struct {
	tx       sender
	rx       receiver
	local    binary.ByteOrder       // of the slots of this side
	remote   binary.AppendByteOrder // of those of the peer
	controls int                    // SGL and CTRL messages on their way

	shutdown   sending // of what this side says
	disconnect sending
	peerDone   bool // the peer sends no more bytes
	peerGone   bool // the peer is gone
}

// sending is how far a message that goes once has come.
type sending uint8

const (
	notAsked sending = iota
	asked
	sent
)

// NewStream begins a connection between local and peer, whose Ring is the first
// half of the ring. Both blocks come from ParseBlock, or would pass it.
func NewStream(local, peer *Block) Stream {
	s := Stream{tx: newSender(peer), rx: newReceiver(local, peer), local: binary.LittleEndian, remote: binary.LittleEndian}
	if local.BigEndian {
		s.local = binary.BigEndian
	}
	if peer.BigEndian {
		s.remote = binary.BigEndian
	}
	return s
}

// Room returns how many bytes the next DATA message can have: 0 means that the
// peer must give credits or a target first, or that nothing may be sent any
// more.
func (s *Stream) Room() int {
	if s.shutdown != notAsked || s.disconnect != notAsked || s.peerGone {
		return 0
	}
	return s.tx.room()
}

// Data returns the message for the next n bytes of the stream: 1 to Room.
func (s *Stream) Data(n int) Write {
	if n <= 0 || n > s.Room() {
		panic(fmt.Sprintf("rsocket: a message of %d bytes, there is room for %d", n, s.Room()))
	}
	return s.tx.take(n)
}

// Control returns the next message that is not DATA, if there is one to be sent
// and not too many are on their way. What it writes is appended to buf. When
// the WRITE completes, call ControlDone.
func (s *Stream) Control(buf []byte) (w Write, payload []byte, ok bool) {
	if s.controls >= MaxControl || s.peerGone {
		return Write{}, nil, false
	}
	switch {
	case s.shutdown == asked && s.disconnect != sent:
		s.shutdown = sent
		w.Imm = Imm(OpControl, ControlShutdown)
	case s.disconnect == asked:
		s.disconnect = sent
		w.Imm = Imm(OpControl, ControlDisconnect)
	case s.disconnect == notAsked && !s.peerDone && s.rx.due():
		var m Memory
		if w, m = s.rx.update(); w.Payload > 0 {
			buf = appendMemory(buf, s.remote, m)
		}
	default:
		return Write{}, nil, false
	}
	s.controls++
	return w, buf, true
}

// ControlDone records that a message of Control has completed.
func (s *Stream) ControlDone() { s.controls-- }

// Shutdown has the peer told that no more bytes come. Everything that Data has
// returned must be posted before the message of Control.
func (s *Stream) Shutdown() {
	if s.shutdown == notAsked {
		s.shutdown = asked
	}
}

// Disconnect has the peer told that this side is gone.
func (s *Stream) Disconnect() {
	if s.disconnect == notAsked {
		s.disconnect = asked
	}
}

// Saying reports whether a message that Shutdown or Disconnect asked for has
// not been returned by Control yet.
func (s *Stream) Saying() bool {
	return !s.peerGone && (s.disconnect == asked || s.shutdown == asked && s.disconnect == notAsked)
}

// Receive notes a WRITE with immediate data imm that has written n bytes. slots
// are the slots of this side, as the peer has written them. The error wraps
// [ErrProtocol]; the connection is to be ended then.
func (s *Stream) Receive(imm, n uint32, slots []byte) error {
	op, v := SplitImm(imm)
	switch op {
	case OpData:
		return s.receiveData(v, n)
	case OpSGL:
		return s.receiveSGL(v, n, slots)
	case OpControl:
		return s.receiveControl(v)
	case OpIOMap:
		return fmt.Errorf("%w: it maps memory (riomap), which this side has not offered", ErrProtocol)
	}
	return fmt.Errorf("%w: a message of the unknown %v", ErrProtocol, op)
}

func (s *Stream) receiveData(v, n uint32) error {
	switch {
	case v != n:
		return fmt.Errorf("%w: DATA says %d bytes and wrote %d", ErrProtocol, v, n)
	case s.peerDone:
		return fmt.Errorf("%w: DATA after it said that none comes", ErrProtocol)
	case !s.rx.data(n):
		return fmt.Errorf("%w: DATA of %d bytes, %d were allowed", ErrProtocol, n, s.rx.granted-s.rx.received)
	}
	return nil
}

func (s *Stream) receiveSGL(v, n uint32, slots []byte) error {
	switch n {
	case 0:
	case SlotLen:
		m := parseMemory(slots[s.tx.next*SlotLen:][:SlotLen], s.local)
		if m.wraps() {
			return fmt.Errorf("%w: a target of %d bytes at %#x reaches beyond the address space", ErrProtocol, m.Length, m.Addr)
		}
		if !s.tx.grant(m) {
			return fmt.Errorf("%w: a target for slot %d, which is in use", ErrProtocol, s.tx.next)
		}
	default:
		return fmt.Errorf("%w: a target of %d bytes, it has %d", ErrProtocol, n, SlotLen)
	}
	s.tx.limit = uint16(v)
	return nil
}

func (s *Stream) receiveControl(v uint32) error {
	switch v {
	case ControlKeepalive:
	case ControlShutdown:
		s.peerDone = true
	case ControlDisconnect:
		s.peerDone, s.peerGone = true, true
	default:
		return fmt.Errorf("%w: unknown control code %d", ErrProtocol, v)
	}
	return nil
}

// Widen lets the peer have so many messages under way, if that is more than its
// block said: it is told with the next credits. There must be receives for
// them.
func (s *Stream) Widen(credits uint16) { s.rx.credits = max(s.rx.credits, credits) }

// Received returns how many DATA messages have come, modulo 2^16.
func (s *Stream) Received() uint16 { return s.rx.seq }

// Readable returns where the next bytes of the stream are: n bytes from offset
// off of the ring. There may be more at its beginning.
func (s *Stream) Readable() (off, n int) { return s.rx.readable() }

// Consume gives back the first n bytes of Readable.
func (s *Stream) Consume(n int) {
	if _, have := s.rx.readable(); n < 0 || n > have {
		panic(fmt.Sprintf("rsocket: %d bytes consumed of %d", n, have))
	}
	s.rx.consumed += uint64(n)
}

// Owes reports whether the peer waits for credits or a target that this side
// can give: Control will return them.
func (s *Stream) Owes() bool { return !s.peerDone && s.disconnect == notAsked && s.rx.due() }

// PeerDone reports whether the peer has said that it sends no more bytes.
func (s *Stream) PeerDone() bool { return s.peerDone }

// PeerGone reports whether the peer has said that it is gone.
func (s *Stream) PeerGone() bool { return s.peerGone }
