package rsocket

// receiver knows what is in the ring, and what the peer may write.
type receiver struct {
	addr uint64 // of the ring
	key  uint32
	half uint32 // bytes; the ring has twice as many

	// Positions in the stream, in bytes. The byte at p is at p modulo the
	// size of the ring.
	granted, received, consumed uint64

	credits uint16 // DATA messages that the peer may be ahead
	seq     uint16 // DATA messages received (rseq_no)
	renew   uint16 // when seq is here, credits are to be given (rseq_comp)

	slots Memory // of the peer
	slot  uint32 // the one for the next target
}

func newReceiver(local, peer *Block) receiver {
	return receiver{
		addr: local.Ring.Addr, key: local.Ring.Key, half: local.Ring.Length, granted: uint64(local.Ring.Length),
		credits: local.Credits, renew: local.Credits / 2,
		slots: peer.Slots, slot: 1,
	}
}

// data notes a DATA message. It reports whether the peer was allowed to send
// it.
func (r *receiver) data(n uint32) bool {
	if uint64(n) > r.granted-r.received {
		return false
	}
	r.received += uint64(n)
	r.seq++
	return true
}

// readable returns the first bytes that were received and not consumed, up to
// the end of the ring: n bytes from offset off of it.
func (r *receiver) readable() (off, n int) {
	size := 2 * uint64(r.half)
	at := r.consumed % size
	return int(at), int(min(r.received-r.consumed, size-at))
}

// due reports whether the peer is to be told of credits or of a target.
func (r *receiver) due() bool { return r.free() || int16(r.seq-r.renew) >= 0 }

// free reports whether half of the ring is free and not promised. Then the
// peer has filled all targets but one.
func (r *receiver) free() bool { return r.granted-r.consumed <= uint64(r.half) }

// update returns the message that tells of credits, and of the next half of
// the ring if that is free. Its target is m.
func (r *receiver) update() (w Write, m Memory) {
	r.renew = r.seq + max(r.credits/2, 1)
	w.Imm = Imm(OpSGL, uint32(r.seq+r.credits))
	if !r.free() {
		return w, m
	}
	m = Memory{Addr: r.addr + r.granted%(2*uint64(r.half)), Key: r.key, Length: r.half}
	r.granted += uint64(r.half)
	w.Addr, w.Key, w.Payload = r.slots.Addr+uint64(r.slot)*SlotLen, r.slots.Key, SlotLen
	r.slot = (r.slot + 1) % r.slots.Length
	return w, m
}
