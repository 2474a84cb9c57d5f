package rules

import (
	"fmt"

	"github.com/gosoftroce/rocev2/observe/conformance/stage"
	"github.com/gosoftroce/rocev2/rocev2"
)

// sendRules are those of requests that take a receive.
func sendRules() []Rule {
	return []Rule{
		{ID: "send/only", Text: "A SEND of one packet fills a receive and is acknowledged", Spec: "9.4.1, 9.7.5", Script: func(s *stage.Scene) { sends(s, 100) }},
		{ID: "send/zero", Text: "A SEND without data completes a receive", Spec: "9.4.1", Script: func(s *stage.Scene) { sends(s, 0) }},
		{ID: "send/multi", Text: "A SEND of several packets fills one receive", Spec: "9.2.1, 9.4.1", Script: func(s *stage.Scene) { sends(s, 3*stage.MTU+5) }},
		{ID: "send/full-last", Text: "The last packet of a SEND may be full", Spec: "9.7.4.1.6", Script: func(s *stage.Scene) { sends(s, 2*stage.MTU) }},
		{ID: "send/pad", Text: "Payloads of every length modulo 4 arrive without their pad", Spec: "9.2", Script: func(s *stage.Scene) { sends(s, 1, 2, 3, 4) }},
		{ID: "send/imm", Text: "Immediate data reach the completion", Spec: "9.4.1, 9.3.6", Script: sendImm},
		{ID: "send/order", Text: "SENDs fill receives in order", Spec: "9.4.1, 10.8.3", Script: func(s *stage.Scene) { sends(s, 10, 300, 20, 700, 0, 30) }},
		{ID: "send/too-long", Text: "A SEND that is longer than its receive is an invalid request; the receive completes with a local length error", Spec: "9.7.5.2.4, 11.6.2", Script: sendTooLong},
		{ID: "send/rnr", Text: "A SEND without a receive gets RNR NAK with the timer that the queue pair was given; it is executed when it comes again", Spec: "9.7.5.2.8", Script: rnr},
		{ID: "send/rnr-after", Text: "What follows a SEND that got RNR NAK is not executed before it", Spec: "9.7.5.2.8", Script: rnrAfter},
		{ID: "send/rnr-write-imm", Text: "A WRITE with immediate data without a receive gets RNR NAK", Spec: "9.7.5.2.8", Script: rnrWriteImm},
		{ID: "send/invalidate-refused", Text: "A SEND with invalidate whose key cannot be invalidated is refused", Spec: "9.4.1.1.3", Script: sendInvalid},
		{ID: "ack/msn", Text: "The MSN counts completed messages, not packets", Spec: "9.7.7.1", Script: ackMSN},
		{ID: "ack/ackreq", Text: "A packet that asks for an acknowledgement in the middle of a message gets one", Spec: "9.7.3.1", Script: ackMiddle},
		{ID: "ack/last", Bare: true, Text: "Many requests at once are acknowledged up to the last, never beyond, and never backwards", Spec: "9.7.5.1.2", Script: ackMany},
		{ID: "ack/later", Bare: true, Text: "A message whose last packet asks for no acknowledgement is executed, and acknowledged with the next", Spec: "9.7.3.1", Script: ackLater},
	}
}

// sends sends a message of each size.
func sends(s *stage.Scene, sizes ...int) {
	s.Connect(stage.Options{Receives: len(sizes)})
	for i, n := range sizes {
		b := stage.Data(n, i)
		s.Send(s.Message(stage.Sends, b)...)
		s.WantAck(1)
		s.WantRecv(i, b)
	}
}

func sendImm(s *stage.Scene) {
	s.Connect(stage.Options{Receives: 2})
	b := stage.Data(50, 1)
	for i, imm := range []uint32{0x12345678, 0} {
		p := s.Request(rocev2.RCSendOnlyImm, b)
		p.Imm = imm
		s.Send(p)
		s.WantAck(1)
		if c := s.WantRecv(i, b); c.Imm != imm && !s.Over() {
			s.Fail(fmt.Sprintf("immediate data %#x in the completion", imm), fmt.Sprintf("%#x", c.Imm))
		}
	}
}

func sendTooLong(s *stage.Scene) {
	s.Connect(stage.Options{Receives: 1, RecvSize: 300})
	s.Fill(stage.RecvBase+300, stage.Data(64, 50))
	s.Send(s.Message(stage.Sends, stage.Data(600, 1))...)
	s.WantNAK(s.PSN().Add(-2), rocev2.NAKInvalidRequest)
	s.WantCompletion(stage.FirstRecv, stage.StatusLocLen)
	s.WantMemory(stage.RecvBase+300, stage.Data(64, 50), "nothing is written beyond the receive")
	s.WantState("ERR", "the request was refused")
}

func rnr(s *stage.Scene) {
	s.Connect(stage.Options{})
	b := stage.Data(40, 1)
	p := s.Request(rocev2.RCSendOnly, b)
	s.Send(p)
	s.WantNAK(p.BTH.PSN, rocev2.SyndromeRNR(stage.RNRCode))
	s.WantState("RTS", "RNR NAK is no error")
	s.Recv(0)
	s.Send(p)
	s.WantAck(1)
	s.WantRecv(0, b)
}

// tolerateSequenceNAK waits for what may follow an RNR NAK: nothing, or a NAK.
func tolerateSequenceNAK(s *stage.Scene, psn rocev2.PSN) {
	if p := s.Next(s.Times().Quiet); p != nil {
		if wrong := stage.NAK(psn, rocev2.NAKSequence, rocev2.SyndromeRNR(stage.RNRCode)).Fits(p); wrong != "" {
			s.Fail("nothing, or a NAK PSN sequence error for the same PSN", stage.Describe(p))
		}
	}
}

func rnrAfter(s *stage.Scene) {
	s.Connect(stage.Options{})
	b, b2 := stage.Data(40, 1), stage.Data(64, 2)
	p, after := s.Request(rocev2.RCSendOnly, b), s.Request(rocev2.RCWriteOnly, b2)
	s.Send(p, after)
	s.WantNAK(p.BTH.PSN, rocev2.SyndromeRNR(stage.RNRCode))
	tolerateSequenceNAK(s, p.BTH.PSN)
	s.WantMemory(0, make([]byte, len(b2)), "the WRITE after it has not been executed")
	s.Recv(0)
	s.Send(p, after)
	s.WantAck(2)
	s.WantRecv(0, b)
	s.WantMemory(0, b2, "the WRITE")
}

func rnrWriteImm(s *stage.Scene) {
	s.Connect(stage.Options{})
	b := stage.Data(40, 1)
	p := s.Request(rocev2.RCWriteOnlyImm, b)
	p.Imm = 77
	s.Send(p)
	s.WantNAK(p.BTH.PSN, rocev2.SyndromeRNR(stage.RNRCode))
	s.Recv(0)
	s.Send(p)
	s.WantAck(1)
	if c := s.WantCompletion(stage.FirstRecv, stage.StatusSuccess); !s.Over() && (c.Imm != 77 || c.Length != len(b)) {
		s.Fail(fmt.Sprintf("a completion with immediate data 77 and %d bytes", len(b)), fmt.Sprintf("%d and %d bytes", c.Imm, c.Length))
	}
	s.WantMemory(0, b, "the WRITE")
}

func sendInvalid(s *stage.Scene) {
	s.Connect(stage.Options{Receives: 1})
	p := s.Request(rocev2.RCSendOnlyInv, stage.Data(8, 1))
	p.IETH.RKey = s.Pair().RKey // of a region that is registered for good
	s.Send(p)
	s.WantNAK(p.BTH.PSN, rocev2.NAKRemoteAccess, rocev2.NAKInvalidRequest, rocev2.NAKRemoteOperational)
}

func ackMSN(s *stage.Scene) {
	s.Connect(stage.Options{Receives: 2})
	all := s.Message(stage.Sends, stage.Data(2*stage.MTU+9, 1))
	for _, p := range all[:2] {
		p.BTH.AckReq = true
		s.Send(p)
		s.Expect(stage.ACK(p.BTH.PSN, 0), p.BTH.PSN)
	}
	s.Send(all[2])
	s.WantAck(1)
	s.Send(s.Message(stage.Writes, stage.Data(2*stage.MTU, 1))...)
	s.WantAck(1)
	s.Send(s.Message(stage.Sends, stage.Data(9, 1))...)
	s.WantAck(1)
}

func ackMiddle(s *stage.Scene) {
	s.Connect(stage.Options{})
	all := s.Message(stage.Writes, stage.Data(4*stage.MTU, 1))
	all[1].BTH.AckReq = true
	s.Send(all[:2]...)
	s.Expect(stage.ACK(all[1].BTH.PSN, 0), all[1].BTH.PSN)
	s.Send(all[2:]...)
	s.WantAck(1)
}

func ackMany(s *stage.Scene) {
	const n = 16
	s.Connect(stage.Options{})
	first, all := s.PSN(), []*rocev2.Packet{}
	for i := range n {
		all = append(all, s.Request(rocev2.RCWriteOnly, stage.Data(8, i)))
	}
	s.Send(all...)
	last := s.PSN().Add(-1)
	s.SetMSN(n)
	from := first
	for range n {
		p := s.Expect(stage.Want{Text: fmt.Sprintf("an ACK from psn=%#x to psn=%#x, with the MSN that belongs to it", from, last), Fits: func(p *rocev2.Packet) string {
			if p.BTH.Opcode != rocev2.RCAcknowledge || !p.AETH.Syndrome.IsACK() || p.BTH.PSN.Before(from) || p.BTH.PSN.After(last) {
				return stage.Another
			}
			if at := rocev2.PSN(p.BTH.PSN.Sub(first) + 1); p.AETH.MSN.Before(at) || p.AETH.MSN > n {
				return fmt.Sprintf("its MSN is less than %d or more than %d", at, n)
			}
			return ""
		}})
		if p == nil || p.BTH.PSN == last {
			return
		}
		from = p.BTH.PSN
	}
	s.Fail(fmt.Sprintf("an ACK of psn=%#x", last), fmt.Sprintf("%d ACKs of PSNs before it", n))
}

func ackLater(s *stage.Scene) {
	s.Connect(stage.Options{})
	b := stage.Data(32, 5)
	p := s.Request(rocev2.RCWriteOnly, b)
	p.BTH.AckReq = false
	q := s.Request(rocev2.RCWriteOnly, nil)
	s.Send(p, q)
	s.WantAck(2)
	s.WantMemory(0, b, "the WRITE without an acknowledgement of its own")
}
