package conformance_test

import (
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/transport"
)

// drops is a fault that drops packets whose bytes are so.
func drops(match func(*transport.RxPacket) bool) func() plant {
	return raws(func(p *transport.RxPacket) {
		if match(p) {
			p.ICRC = transport.ICRCBad
		}
	})
}

func raws(change func(*transport.RxPacket)) func() plant {
	return func() plant { return plant{raw: change} }
}

// replaces is a fault that takes packets with one of the opcodes for another.
func replaces(by rocev2.Opcode, codes ...byte) func() plant {
	return raws(func(p *transport.RxPacket) {
		for _, c := range codes {
			if p.Data[0] == c {
				p.Data = append([]byte{byte(by)}, p.Data[1:]...)
				return
			}
		}
	})
}

// formFaults are those of the form of packets, and of their headers.
var formFaults = []fault{
	{"ICRC is not checked", raws(func(p *transport.RxPacket) { p.ICRC = transport.ICRCVerified }), "wire/icrc requester/read-icrc"},
	{"P_Key is not checked", raws(func(p *transport.RxPacket) { p.Data[2], p.Data[3] = 0xff, 0xff }), "wire/pkey-wrong"},
	{"P_Keys are compared with their member bit", drops(func(p *transport.RxPacket) bool { return p.Data[2]&0x80 == 0 }), "wire/pkey-limited"},
	{"version is not checked", raws(func(p *transport.RxPacket) { p.Data[1] &= 0xf0 }), "wire/version"},
	{"BECN and the bits after it are in the ICRC", drops(func(p *transport.RxPacket) bool { return p.Data[4] != 0 }), "wire/icrc-masked"},
	{"FECN is in the ICRC", drops(func(p *transport.RxPacket) bool { return p.Data[4]&0x80 != 0 }), "wire/icrc-masked"},
	{"one of the reserved bits has to be zero", drops(func(p *transport.RxPacket) bool { return p.Data[8]&0x20 != 0 }), "wire/reserved"},
	{"MigReq has to be set", drops(func(p *transport.RxPacket) bool { return p.Data[1]&0x40 == 0 }), "wire/migreq"},
	{"reserved bits have to be zero", drops(func(p *transport.RxPacket) bool { return p.Data[8]&0x7f != 0 }), "wire/reserved"},
	{"solicited events are not understood", drops(func(p *transport.RxPacket) bool { return p.Data[1]&0x80 != 0 }), "wire/solicited"},
	{"the traffic class is in the ICRC", drops(func(p *transport.RxPacket) bool { return p.TrafficClass != 0 }), "wire/class"},
	{"a reserved opcode is a WRITE", replaces(rocev2.RCWriteOnly, 0x15), "wire/opcode-reserved"},
	{"the service of an opcode is not looked at", replaces(rocev2.RCWriteOnly, byte(rocev2.UCWriteOnly)), "wire/opcode-service"},
	{"a congestion notification is a WRITE", replaces(rocev2.RCWriteOnly, byte(rocev2.CNP)), "wire/cnp"},
	{"a congestion notification ends the queue pair", endsAfter(op(rocev2.CNP)), "wire/cnp"},
	{"a congestion notification is acknowledged", func() plant {
		return plant{raw: func(p *transport.RxPacket) {
			if p.Data[0] == byte(rocev2.CNP) {
				p.Data = append([]byte{byte(rocev2.RCWriteOnly)}, p.Data[1:]...)
				p.Data[8] |= 0x80
			}
		}}
	}, "wire/cnp"},
	{"QPNs have 20 bits", func() plant {
		var qpn uint64
		return plant{
			says: func(_, answer string) string {
				if n := parameter(answer, "qpn"); n != 0 {
					qpn = n
				}
				return answer
			},
			tx: func(p *rocev2.Packet) bool { // by the connection manager
				if _, m, _ := mad.Parse(p.Payload); m != nil {
					if rep, ok := m.(*mad.REP); ok {
						qpn = uint64(rep.LocalQPN)
					}
				}
				return true
			},
			rx: func(p *rocev2.Packet) bool {
				if (uint64(p.BTH.DestQPN)^qpn)&0xfffff == 0 {
					p.BTH.DestQPN = rocev2.QPN(qpn)
				}
				return true
			},
		}
	}, "wire/qpn"},
	{"what a packet is too short for is 0", raws(func(p *transport.RxPacket) {
		if n := rocev2.BTHLen + rocev2.RETHLen + rocev2.ICRCLen; len(p.Data) < n && p.Data[0] == byte(rocev2.RCWriteOnly) {
			p.Data = append(append([]byte(nil), p.Data...), make([]byte, n-len(p.Data))...)
		}
	}), "wire/short"},
	{"pad that is not there is no mistake", raws(func(p *transport.RxPacket) {
		if len(p.Data) == rocev2.BTHLen+rocev2.RETHLen+rocev2.ICRCLen {
			p.Data[1] &^= 0x30
		}
	}), "wire/pad"},
	{"pad is payload", raws(func(p *transport.RxPacket) { p.Data[1] &^= 0x30 }), "send/pad"},
	{"answers go where the request came from", func() plant {
		other := false
		return plant{raw: func(p *transport.RxPacket) { other = p.SrcPort == 50001 }, tx: func(*rocev2.Packet) bool { return !other }}
	}, "wire/source-port"},
	{"an acknowledgement for nothing ends the queue pair", func() plant {
		ended := false
		return plant{
			rx:   func(p *rocev2.Packet) bool { ended = ended || is(p, rocev2.RCAcknowledge); return !ended },
			says: func(_, answer string) string { return answer },
		}
	}, "wire/response-stray"},
	{"responses ask for acknowledgements", sends(func(p *rocev2.Packet) bool {
		p.BTH.AckReq = true
		return true
	}), "send/only read/only"},
	{"a reserved bit is set", sends(func(p *rocev2.Packet) bool {
		p.BTH.Reserved7 = 1
		return true
	}), "send/only requester/send"},
	{"P_Key 0x1234", sends(func(p *rocev2.Packet) bool {
		p.BTH.PKey = 0x1234
		return true
	}), "send/only requester/send"},
}
