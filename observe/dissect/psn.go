package dissect

import (
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Side is the requests of one end of a connection, and what answers them.
type Side struct {
	Counters

	started   bool
	next      rocev2.PSN // after the highest that was sent
	una       rocev2.PSN // the oldest that is not acknowledged
	firstUna  bool       // una was learned, from a response or from connection management
	cause     string     // of what is sent again: "nak" or "rnr", until something new is sent
	blind     bool       // what came before the next packet could not be read
	looseRead bool       // next is after a READ whose number of PSNs is not known
	readBytes int64      // of that READ
	sent      ring
	messages  messages
}

const (
	maxWindow = 1 << 14 // PSNs of which a side keeps when they were sent
	minWindow = 1 << 6
	slotSize  = 16 // bytes in memory

	// farAway is how far a PSN may be from the expected one. One that
	// starts a message farther away is of a new connection.
	farAway = 1 << 18
)

// ring keeps when PSNs were first sent, and what was seen of them.
type ring struct {
	slots []slot // a power of two
}

type slot struct {
	psn   rocev2.PSN
	flags uint8
	at    time.Duration
}

const (
	slotRequest  = 1 << iota // a request with this PSN was seen
	slotAgain                // more than once
	slotResponse             // a response with this PSN was seen
)

// get returns the slot of a PSN, or nil if nothing is known of it.
func (r *ring) get(p rocev2.PSN) *slot {
	if len(r.slots) == 0 {
		return nil
	}
	if s := &r.slots[int(p)&(len(r.slots)-1)]; s.flags != 0 && s.psn == p {
		return s
	}
	return nil
}

// put returns the slot of a PSN, new if need be. una is the oldest that is
// still of interest: for it the ring grows, as far as budget allows.
func (r *ring) put(p, una rocev2.PSN, at time.Duration, budget *int) *slot {
	if s := r.get(p); s != nil {
		return s
	}
	for len(r.slots) == 0 || p.Sub(una) >= len(r.slots) && len(r.slots) < maxWindow {
		size := max(minWindow, 2*len(r.slots))
		if len(r.slots) > 0 && *budget < size*slotSize {
			break
		}
		if len(r.slots) > 0 {
			*budget -= size * slotSize
		}
		old := r.slots
		r.slots = make([]slot, size)
		for _, s := range old {
			if s.flags != 0 {
				r.slots[int(s.psn)&(size-1)] = s
			}
		}
	}
	s := &r.slots[int(p)&(len(r.slots)-1)]
	*s = slot{psn: p, at: at}
	return s
}

// held returns what was taken from the budget.
func (r *ring) held() int { return max(0, 2*(len(r.slots)-minWindow)) * slotSize }

// begin sets the first PSN that a side will use.
func (s *Side) begin(p rocev2.PSN) {
	s.started, s.firstUna = true, true
	s.next, s.una = p, p
}

// span returns how many PSNs a request takes; known is false if only the path
// MTU could tell.
func span(p *Packet, mtu int) (n int, known bool) {
	if p.info.Operation != rocev2.OpReadRequest {
		return 1, true
	}
	length := int64(p.Wire.RETH.Length)
	if length <= 256 {
		return 1, true
	}
	if mtu == 0 {
		return int((length + 4095) / 4096), false
	}
	return int(min((length+int64(mtu)-1)/int64(mtu), maxSpan)), true
}

// request analyses a request of a connection.
func (f *Flows) request(c *Connection, p *Packet) {
	s := &c.Requests[p.Index]
	psn := p.Wire.BTH.PSN
	s.Packets++
	s.Bytes += uint64(p.Length)
	s.Payload += uint64(p.PayloadLen)
	if !s.started {
		s.begin(psn)
		s.firstUna, s.blind = false, false
	}
	if s.looseRead && psn != s.next {
		s.settleRead(c, psn)
	}
	switch d := psn.Sub(s.next); {
	case d >= 0:
		if d > 0 {
			p.Flags |= Gap
			p.Missing = d
			s.Gaps++
			s.Missing += uint64(d)
		}
		s.fresh(c, p, f)
	default:
		s.again(c, p, f)
	}
}

// fresh takes a request whose PSN has not been reached before.
func (s *Side) fresh(c *Connection, p *Packet, f *Flows) {
	psn := p.Wire.BTH.PSN
	n, known := span(p, c.MTU)
	if !s.firstUna && c.Service == rocev2.ServiceUC {
		s.una = psn
	}
	s.sent.put(psn, s.una, p.Offset, &f.budget).flags |= slotRequest
	s.next = psn.Add(n)
	s.looseRead, s.readBytes = !known, int64(p.Wire.RETH.Length)
	s.cause = ""
	s.assign(c, p, n, &f.budget)
	if p.info.Last && c.Service == rocev2.ServiceUC {
		// Nothing is acknowledged: what arrives whole is complete.
		s.una = s.next
		s.complete(p, s.next)
	}
}

// again takes a request whose PSN has been passed: it is sent again, or late.
func (s *Side) again(c *Connection, p *Packet, f *Flows) {
	psn := p.Wire.BTH.PSN
	slot := s.sent.get(psn)
	m := s.messages.find(psn)
	late := slot == nil && m == nil || slot == nil && m.Operation != rocev2.OpReadRequest
	if late && s.una.Sub(psn) > 0 && s.firstUna {
		late = false // acknowledged, and then forgotten
	}
	if m != nil {
		p.HasMessage, p.Message = true, *m
		p.At = place(c, m, p)
	}
	if late && m == nil && p.info.First {
		s.assignLate(c, p, f)
	}
	if late && s.cause == "" {
		p.Flags |= OutOfOrder
		s.OutOfOrder++
		s.sent.put(psn, s.una, p.Offset, &f.budget).flags |= slotRequest
		return
	}
	p.Flags |= Retransmitted
	s.Retransmitted++
	p.Cause = s.cause
	if p.Cause == "" {
		p.Cause = "timeout"
	}
	if s.una.After(psn) && s.firstUna {
		p.Flags |= Duplicate
		s.Duplicates++
	}
	if slot == nil {
		s.sent.put(psn, s.una, p.Offset, &f.budget).flags |= slotRequest | slotAgain
		return
	}
	slot.flags |= slotAgain
	p.Since = max(0, p.Offset-slot.at) // the clock of a capture may be set back
}

// assign finds the message of a new request; it takes n PSNs.
func (s *Side) assign(c *Connection, p *Packet, n int, budget *int) {
	psn := p.Wire.BTH.PSN
	m := s.messages.open()
	if m != nil && (p.info.First || m.Operation != p.info.Operation || m.Length >= 0 && place(c, m, p) > m.Length) {
		m.Whole = true // its end is missing
		m = nil
	}
	if m == nil {
		m = s.begins(p, budget)
	}
	m.Last = psn.Add(n - 1)
	m.Whole = p.info.Last
	p.At = place(c, m, p)
	if m.Whole && m.Length < 0 && p.At >= 0 {
		m.Length = p.At + int64(p.PayloadLen)
	}
	p.HasMessage, p.Message = true, *m
}

// begins starts a message with a packet.
func (s *Side) begins(p *Packet, budget *int) *Message {
	psn := p.Wire.BTH.PSN
	s.Messages++
	m := s.messages.add(Message{
		Operation: p.info.Operation, First: psn, Last: psn, answered: psn,
		Partial: !p.info.First, Length: -1, Started: p.Offset,
	}, budget)
	m.describe(p)
	return m
}

// assignLate finds the message of a first packet that comes late.
func (s *Side) assignLate(c *Connection, p *Packet, f *Flows) {
	psn := p.Wire.BTH.PSN
	m := s.messages.find(psn.Next())
	if m != nil && m.Partial && m.First == psn.Next() && m.Operation == p.info.Operation && !p.info.Last {
		m.First, m.Partial = psn, false
		m.describe(p)
	} else {
		n, _ := span(p, c.MTU)
		m = s.begins(p, &f.budget)
		m.Last, m.Whole = psn.Add(n-1), p.info.Last
	}
	p.HasMessage, p.Message = true, *m
	p.At = place(c, m, p)
}

// describe sets what the headers of a message's first packet tell.
func (m *Message) describe(p *Packet) {
	h := p.info.Headers
	switch {
	case h.Has(rocev2.HasRETH):
		m.VA, m.RKey = p.Wire.RETH.VA, p.Wire.RETH.RKey
		m.Length = int64(p.Wire.RETH.Length)
	case h.Has(rocev2.HasAtomicETH):
		m.VA, m.RKey, m.Length = p.Wire.AtomicETH.VA, p.Wire.AtomicETH.RKey, 8
	default:
		if p.info.First && p.info.Last {
			m.Length = int64(p.PayloadLen)
		}
	}
}

// place returns where the payload of a packet lies in its message, or -1.
func place(c *Connection, m *Message, p *Packet) int64 {
	n := p.Wire.BTH.PSN.Sub(m.First)
	switch {
	case m.Partial || n < 0:
		return -1
	case n == 0:
		return 0
	case c.MTU == 0:
		return -1
	}
	return int64(n) * int64(c.MTU)
}

// settleRead learns how many PSNs a READ takes from the PSN of the request that
// follows it, and from that the path MTU.
func (s *Side) settleRead(c *Connection, psn rocev2.PSN) {
	list := s.messages.all()
	if len(list) == 0 {
		return
	}
	m := &list[len(list)-1]
	took := int64(psn.Sub(m.First))
	for mtu := int64(256); mtu <= 4096 && took > 0; mtu *= 2 {
		if (s.readBytes+mtu-1)/mtu == took {
			s.looseRead = false
			c.MTU = int(mtu)
			s.next = psn
			m.Last = psn.Add(-1)
			return
		}
	}
}

// sizeRead sets how many PSNs the latest READ takes, once the path MTU is
// known.
func (s *Side) sizeRead(c *Connection) {
	list := s.messages.all()
	if !s.looseRead || c.MTU == 0 || len(list) == 0 {
		return
	}
	m := &list[len(list)-1]
	mtu := int64(c.MTU)
	behind := m.First.Add(int(min((s.readBytes+mtu-1)/mtu, maxSpan)))
	if behind.After(s.next) {
		s.next = behind
		m.Last = behind.Add(-1)
	}
	s.looseRead = false
}
