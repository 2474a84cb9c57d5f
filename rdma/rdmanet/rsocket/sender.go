package rsocket

// sender knows what the peer can take.
type sender struct {
	seq   uint16 // DATA messages sent (sseq_no)
	limit uint16 // seq may not go beyond; they are equal when there is no credit

	// targets are where bytes go: the current one until it is full, then
	// the other one.
	targets [Slots]Memory
	current int
	next    int // the slot that the peer writes the next target into
}

func newSender(peer *Block) sender {
	return sender{limit: peer.Credits, targets: [Slots]Memory{peer.Ring}, next: 1}
}

// room returns how many bytes the next DATA message can have.
func (s *sender) room() int {
	if s.seq == s.limit {
		return 0
	}
	return int(min(s.targets[s.current].Length, MaxValue))
}

// take uses n bytes of the room.
func (s *sender) take(n int) Write {
	t := &s.targets[s.current]
	w := Write{Imm: Imm(OpData, uint32(n)), Addr: t.Addr, Key: t.Key, Payload: n}
	s.seq++
	t.Addr += uint64(n)
	if t.Length -= uint32(n); t.Length == 0 {
		s.current = (s.current + 1) % Slots
	}
	return w
}

// grant notes a target that the peer has written into the next slot. It
// reports whether that was free.
func (s *sender) grant(m Memory) bool {
	t := &s.targets[s.next]
	if t.Length != 0 {
		return false
	}
	*t = m
	s.next = (s.next + 1) % Slots
	return true
}
