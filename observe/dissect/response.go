package dissect

import "github.com/gosoftroce/rocev2/rocev2"

// response analyses a response of a reliable connection.
func (f *Flows) response(c *Connection, p *Packet) {
	s := &c.Requests[p.Index]
	s.Responses++
	s.ResponseBytes += uint64(p.Length)
	s.ResponsePayload += uint64(p.PayloadLen)
	psn := p.Wire.BTH.PSN
	if !s.started && s.blind {
		return // it answers what could not be read
	}
	if !s.started {
		// The capture has none of the requests. The response tells
		// where they are.
		s.begin(psn.Next())
		p.Flags |= Unseen
		s.Unseen++
	}
	s.sizeRead(c)
	m := s.messages.find(psn)
	if m != nil {
		p.HasMessage, p.Message = true, *m
	}
	switch p.info.Operation {
	case rocev2.OpReadResponse:
		s.data(c, p, m, f)
	case rocev2.OpAtomicAcknowledge:
		s.data(c, p, m, f)
	default:
		s.acknowledge(p)
	}
}

// data takes a response to a READ or an atomic.
func (s *Side) data(c *Connection, p *Packet, m *Message, f *Flows) {
	psn := p.Wire.BTH.PSN
	if m != nil {
		p.At = place(c, m, p)
	}
	if slot := s.sent.get(psn); slot != nil && slot.flags&slotResponse != 0 {
		p.Flags |= Retransmitted
		s.Repeated++
		p.Cause = "request"
		return
	}
	s.measure(p)
	if m != nil {
		switch d := psn.Sub(m.answered); {
		case d > 0:
			p.Flags |= Gap
			p.Missing = d
			s.ResponseGaps++
			fallthrough
		case d == 0:
			m.answered = psn.Next()
		default:
			p.Flags |= OutOfOrder
		}
	}
	s.sent.put(psn, s.una, p.Offset, &f.budget).flags |= slotResponse
	s.advance(p, psn)
	if m != nil && p.info.Last {
		m.Whole = true
		s.finish(p, m)
	}
}

// measure takes the round trip time from the request of this very PSN, if that
// was sent only once (RFC 6298, Karn).
func (s *Side) measure(p *Packet) {
	slot := s.sent.get(p.Wire.BTH.PSN)
	if slot != nil && slot.flags == slotRequest && p.Offset >= slot.at {
		p.RTT, p.Timed = p.Offset-slot.at, true
		s.addRTT(p.RTT)
	}
}

// acknowledge takes an ACK or a NAK.
func (s *Side) acknowledge(p *Packet) {
	psn := p.Wire.BTH.PSN
	syndrome := p.Wire.AETH.Syndrome
	switch {
	case syndrome.IsACK():
		s.Acks++
		if s.una.After(psn) && s.firstUna {
			p.Flags |= DuplicateAck
			s.DuplicateAcks++
			return
		}
		s.measure(p)
		if slot := s.sent.get(psn); slot != nil {
			slot.flags |= slotResponse
		}
		s.advance(p, psn)
		s.complete(p, psn.Next())
		return
	case syndrome.IsRNR():
		s.RNRs++
		s.cause = "rnr"
	case syndrome == rocev2.NAKSequence:
		s.NAKSequence++
		if s.cause != "rnr" { // what comes after a refused packet is out of sequence
			s.cause = "nak"
		}
	default:
		s.NAKErrors++
	}
	// What is in front of the refused packet is acknowledged (IBTA
	// 9.7.5.1.3).
	if psn.After(s.una) || !s.firstUna {
		s.advance(p, psn.Add(-1))
		s.complete(p, psn)
	}
}

// advance moves the oldest unacknowledged PSN past psn.
func (s *Side) advance(p *Packet, psn rocev2.PSN) {
	behind := psn.Next()
	if behind.After(s.next) {
		if behind.Sub(s.next) > farAway {
			p.Flags |= Unseen
			s.Unseen++
			return
		}
		if !s.looseRead {
			p.Flags |= Unseen
			s.Unseen++
		}
		s.next = behind
	}
	if behind.After(s.una) {
		p.Acked = behind.Sub(s.una)
		s.una = behind
	}
	s.firstUna = true
}

// complete completes the messages that end in front of a PSN. READs and atomics
// are complete only with their response.
func (s *Side) complete(p *Packet, behind rocev2.PSN) {
	list := s.messages.all()
	for s.messages.done < len(list) {
		m := &list[s.messages.done]
		if !m.Done && (!m.Whole || !behind.After(m.Last)) {
			return
		}
		s.messages.done++
		switch m.Operation {
		case rocev2.OpReadRequest, rocev2.OpCompareSwap, rocev2.OpFetchAdd:
		default:
			s.finish(p, m)
		}
	}
}

// finish completes a message.
func (s *Side) finish(p *Packet, m *Message) {
	if m.Done {
		return
	}
	m.Done, m.Completed = true, max(m.Started, p.Offset)
	s.Completed++
	p.Completes.Count++
	p.Completes.Last = *m
	if p.HasMessage && p.Message.Number == m.Number {
		p.Message = *m
	}
}
