package rules

import (
	"fmt"

	"github.com/gosoftroce/rocev2/observe/conformance/stage"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

func wireRules() []Rule {
	return []Rule{
		{ID: "wire/icrc", Bare: true, Text: "A packet with a wrong ICRC is dropped", Spec: "A17.3.3, 9.6", Script: badICRC},
		{ID: "wire/icrc-masked", Bare: true, Text: "FECN, BECN and the six reserved bits of the BTH are not covered by the ICRC, and are ignored", Spec: "A17.3.3, 9.2", Script: maskedBits},
		{ID: "wire/migreq", Bare: true, Text: "MigReq is accepted as 0 and as 1", Spec: "9.2, A17", Script: migReq},
		{ID: "wire/reserved", Bare: true, Text: "The seven reserved bits before the PSN are ignored", Spec: "9.2", Script: func(s *stage.Scene) {
			good(s, func(p *rocev2.Packet) { p.BTH.Reserved7 = 0x55 })
			sendGood(s, func(p *rocev2.Packet) { p.BTH.Reserved7 = 0x2a })
		}},
		{ID: "wire/solicited", Bare: true, Text: "The solicited event bit changes nothing on the wire", Spec: "9.2.3", Script: func(s *stage.Scene) {
			good(s, func(p *rocev2.Packet) { p.BTH.Solicited = true })
		}},
		{ID: "wire/version", Bare: true, Text: "A packet with another transport header version is dropped", Spec: "9.6.1.1", Script: func(s *stage.Scene) {
			dropped(s, func(p *rocev2.Packet) { p.BTH.Version = 1 })
		}},
		{ID: "wire/pkey-limited", Bare: true, Text: "P_Keys are compared in their low 15 bits: a limited member reaches a full one", Spec: "10.9.3", Script: func(s *stage.Scene) {
			good(s, func(p *rocev2.Packet) { p.BTH.PKey = 0x7fff })
		}},
		{ID: "wire/pkey-wrong", Bare: true, Text: "A packet with a P_Key that is not in the table is dropped", Spec: "9.6.1.1.3, 10.9.4", Script: func(s *stage.Scene) {
			dropped(s, func(p *rocev2.Packet) { p.BTH.PKey = 0x8001 })
		}},
		{ID: "wire/opcode-reserved", Bare: true, Text: "A packet with a reserved opcode is dropped", Spec: "9.6.1.2", Script: reservedOpcodes},
		{ID: "wire/opcode-service", Text: "A packet of another transport service is dropped", Spec: "9.6.1.2", Script: otherService},
		{ID: "wire/qpn", Bare: true, Text: "A packet for a queue pair that does not exist is dropped", Spec: "9.6.1.3", Script: func(s *stage.Scene) {
			dropped(s, func(p *rocev2.Packet) { p.BTH.DestQPN ^= 0x700000 })
		}},
		{ID: "wire/short", Bare: true, Text: "A packet that is shorter than its headers is dropped", Spec: "9.6.1", Script: shortPacket},
		{ID: "wire/pad", Bare: true, Text: "A packet whose pad count exceeds its payload is dropped or refused", Spec: "9.2, 9.7.4.1.6", Script: padBeyond},
		{ID: "wire/response-stray", Bare: true, Text: "An acknowledgement for nothing changes nothing", Spec: "9.7.5.1", Script: strayResponse},
		{ID: "wire/source-port", Bare: true, Text: "Answers go to port 4791, whatever port a request comes from", Spec: "A17", Script: sourcePort},
		{ID: "wire/class", Bare: true, Text: "Traffic class and hop limit are not covered by the ICRC", Spec: "A17.3.3", Script: trafficClass},
		{ID: "wire/cnp", Bare: true, Text: "A congestion notification changes nothing but rates", Spec: "A17.9", Script: func(s *stage.Scene) {
			s.Connect(stage.Options{})
			s.Send(keepPSN(s, s.Request(rocev2.CNP, nil)))
			s.Quiet("it has no answer")
			s.Alive()
		}},
	}
}

// keepPSN gives the PSN of the latest request to the next one too.
func keepPSN(s *stage.Scene, p *rocev2.Packet) *rocev2.Packet {
	s.SetPSN(s.PSN().Add(-1))
	return p
}

// good sends a WRITE that is changed in a way that a receiver must tolerate.
func good(s *stage.Scene, change func(*rocev2.Packet)) {
	s.Connect(stage.Options{})
	sendGood(s, change)
}

// sendGood is good on a queue pair that is there.
func sendGood(s *stage.Scene, change func(*rocev2.Packet)) {
	b := stage.Data(21, int(s.MSN()))
	p := s.Request(rocev2.RCWriteOnly, b)
	change(p)
	s.Send(p)
	s.WantAck(1)
	s.WantMemory(0, b, "the WRITE")
}

// dropped sends a WRITE that must be dropped without an answer, and then one
// with the same PSN, which must be executed.
func dropped(s *stage.Scene, change func(*rocev2.Packet)) {
	s.Connect(stage.Options{})
	p := keepPSN(s, s.Request(rocev2.RCWriteOnly, stage.Data(64, 7)))
	change(p)
	s.Send(p)
	s.Quiet("the packet is dropped")
	s.Alive()
}

func badICRC(s *stage.Scene) {
	s.Connect(stage.Options{})
	for _, damage := range []uint32{1, 1 << 31, 0xffffffff} {
		p := keepPSN(s, s.Request(rocev2.RCWriteOnly, stage.Data(64, 7)))
		s.Emit(p.AppendTo(nil), fmt.Sprintf("%s, with an ICRC that is wrong by %#08x", stage.Describe(p), damage), damage, nil)
	}
	s.Quiet("the packets are dropped")
	s.WantMemory(0, make([]byte, 64), "nothing is written")
	s.Alive()
}

func maskedBits(s *stage.Scene) {
	good(s, func(p *rocev2.Packet) { p.BTH.BECN, p.BTH.Reserved6 = true, 0x2a })
	sendGood(s, func(p *rocev2.Packet) { p.BTH.FECN, p.BTH.Reserved6 = true, 0x15 })
}

func migReq(s *stage.Scene) {
	s.Connect(stage.Options{})
	for _, m := range []bool{true, false, true} {
		p := s.Request(rocev2.RCWriteOnly, stage.Data(8, 2))
		p.BTH.MigReq = m
		s.Send(p)
		s.WantAck(1)
	}
}

func reservedOpcodes(s *stage.Scene) {
	s.Connect(stage.Options{})
	for _, op := range []rocev2.Opcode{0x15, 0x18, 0x1b, 0x1f} {
		p := keepPSN(s, s.Request(op, stage.Data(64, 7)))
		s.Send(p)
	}
	s.Quiet("the packets are dropped")
	s.Alive()
}

func otherService(s *stage.Scene) {
	s.Connect(stage.Options{Receives: 2})
	for _, op := range []rocev2.Opcode{rocev2.UCWriteOnly, rocev2.UCSendOnly, rocev2.UDSendOnly} {
		s.Send(keepPSN(s, s.Request(op, stage.Data(64, 7))))
	}
	s.Quiet("the packets are dropped")
	s.NoCompletion("nothing was received")
	s.Alive()
}

func shortPacket(s *stage.Scene) {
	s.Connect(stage.Options{})
	whole := keepPSN(s, s.Request(rocev2.RCWriteOnly, nil)).AppendTo(nil)
	for _, n := range []int{rocev2.BTHLen, rocev2.BTHLen + 8} {
		s.Emit(whole[:n], fmt.Sprintf("WRITE_ONLY without its RETH, %d bytes", n), 0, nil)
	}
	s.Quiet("the packets are dropped")
	s.Alive()
}

func padBeyond(s *stage.Scene) {
	s.Connect(stage.Options{})
	p := keepPSN(s, s.Request(rocev2.RCWriteOnly, nil))
	p.BTH.PadCount = 3
	s.Emit(p.AppendHeaders(nil), stage.Describe(p)+" with 3 pad bytes, of which there is none", 0, nil)
	if a := s.Next(s.Times().Quiet); a != nil {
		if wrong := stage.NAK(p.BTH.PSN, rocev2.NAKInvalidRequest).Fits(a); wrong != "" {
			s.Fail("no packet, or a NAK invalid request", stage.Describe(a))
		}
		return
	}
	s.Alive()
}

func strayResponse(s *stage.Scene) {
	s.Connect(stage.Options{})
	for _, psn := range []rocev2.PSN{stage.TargetPSN, stage.TargetPSN + 5, stage.TargetPSN - 1} {
		for _, syndrome := range []rocev2.Syndrome{rocev2.ACKNoCredits, rocev2.NAKSequence} {
			p := keepPSN(s, s.Request(rocev2.RCAcknowledge, nil))
			p.BTH.PSN, p.AETH.Syndrome = psn, syndrome
			s.Send(p)
		}
	}
	s.Alive()
	s.WantState("RTS", "the acknowledgements were for nothing")
}

func sourcePort(s *stage.Scene) {
	const other = 50001
	port, err := transport.OpenSourcePort(s.Link(), other, false)
	if err != nil {
		s.Untested(fmt.Errorf("this side's link has one source port: %w", err))
		return
	}
	s.Connect(stage.Options{})
	p := s.Request(rocev2.RCWriteOnly, stage.Data(8, 3))
	path := s.Path(transport.Path{SrcPort: port})
	s.Emit(p.AppendTo(nil), fmt.Sprintf("%s from port %d", stage.Describe(p), port), 0, path)
	s.WantAck(1)
}

func trafficClass(s *stage.Scene) {
	if !s.Link().Capabilities().ECN {
		s.Untested(fmt.Errorf("this side's link does not set traffic classes"))
		return
	}
	s.Connect(stage.Options{})
	p := s.Request(rocev2.RCWriteOnly, stage.Data(8, 3))
	path := s.Path(transport.Path{TrafficClass: 26<<2 | 2, HopLimit: 9})
	s.Emit(p.AppendTo(nil), stage.Describe(p)+" with traffic class 106 and hop limit 9", 0, path)
	s.WantAck(1)
}
