package network

// MaxTrail is the most that Config.Trail may be.
const MaxTrail = 64

// Hop is what a switch program has noted of a packet that leaves by a port
// (in-band telemetry, INT).
type Hop struct {
	Rate   int64  // of the port, bit/s
	Queued int64  // bytes on the wire that wait at the port, all classes, without the packet
	Sent   int64  // bytes on the wire that the port has sent before the packet
	At     Time   // when the packet begins to leave
	Node   uint32 // switch i is node Hosts+i
	Port   uint16
}

// trails are the hops that packets under way have noted: those of each slot
// stand at its index. So they are bounded by the slots, and free with them.
type trails struct {
	room  int // for each slot; 0: no packet notes anything
	hops  []Hop
	noted []uint8 // by slot
}

// grow makes room for one more slot.
func (t *trails) grow() {
	if t.room > 0 {
		t.noted = append(t.noted, 0)
		for range t.room {
			t.hops = append(t.hops, Hop{})
		}
	}
}

// clear forgets the hops of a slot.
func (t *trails) clear(i uint32) {
	if t.room > 0 {
		t.noted[i] = 0
	}
}

// of returns the hops of a slot.
func (t *trails) of(i uint32) []Hop {
	if t.room == 0 {
		return nil
	}
	first := int(i) * t.room
	return t.hops[first : first+int(t.noted[i]) : first+int(t.noted[i])]
}

// note appends to the hops of a slot, and reports whether there was room.
func (t *trails) note(i uint32, h Hop) bool {
	if t.room == 0 || int(t.noted[i]) == t.room {
		return false
	}
	t.hops[int(i)*t.room+int(t.noted[i])] = h
	t.noted[i]++
	return true
}

// Trail returns what switch programs have noted of the packet that a host is
// receiving, the first hop first. It is valid only during the call of
// Host.Receive, and nil at any other time.
func (n *Network) Trail(number int) []Hop {
	if a := n.hosts[number].part; a.inside == number {
		return a.trail
	}
	return nil
}
