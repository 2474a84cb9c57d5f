package network

// slot is a place for a packet under way. Cables and queues are lists of slots,
// so a packet goes from one to the next without being copied.
type slot struct {
	Packet
	next uint32
	at   Time // when its last bit is at the far end of the cable
}

// control reports whether it is no packet of a host.
func (s *slot) control() bool { return s.kind == pause || s.kind == frame }

// fifo is a list of slots: the indices of the first and of the last. Slot 0 is
// not used, so the zero fifo is empty.
type fifo struct{ head, tail uint32 }

// slots has all slots of a network.
type slots struct {
	all    []slot
	free   uint32 // list
	trails trails
}

// get returns a slot with a zero packet.
func (s *slots) get() uint32 {
	i := s.free
	if i == 0 {
		if len(s.all) == 0 {
			s.all = append(s.all, slot{})
			s.trails.grow()
		}
		s.all = append(s.all, slot{})
		s.trails.grow()
		return uint32(len(s.all) - 1)
	}
	s.free = s.all[i].next
	s.all[i] = slot{}
	return i
}

func (s *slots) put(i uint32) {
	s.all[i].next = s.free
	s.free = i
}

func (s *slots) push(f *fifo, i uint32) {
	s.all[i].next = 0
	if f.head == 0 {
		f.head = i
	} else {
		s.all[f.tail].next = i
	}
	f.tail = i
}

// pop removes the first slot of a list that is not empty.
func (s *slots) pop(f *fifo) uint32 {
	i := f.head
	f.head = s.all[i].next
	return i
}
