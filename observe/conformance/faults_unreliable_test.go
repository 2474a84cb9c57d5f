package conformance_test

import (
	"github.com/gosoftroce/rocev2/observe/conformance/stage"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

var (
	anyUC = op(rocev2.UCSendFirst, rocev2.UCSendMiddle, rocev2.UCSendLast, rocev2.UCSendOnly, rocev2.UCWriteFirst, rocev2.UCWriteMiddle, rocev2.UCWriteLast, rocev2.UCWriteOnly)
	anyUD = op(rocev2.UDSendOnly, rocev2.UDSendOnlyImm)
)

// endsAfter is a fault that takes nothing more after some packets.
func endsAfter(match func(*rocev2.Packet) bool) func() plant {
	return func() plant {
		ended := map[rocev2.QPN]bool{}
		return plant{rx: func(p *rocev2.Packet) bool {
			if ended[p.BTH.DestQPN] {
				return false
			}
			ended[p.BTH.DestQPN] = match(p)
			return true
		}}
	}
}

// unreliableFaults are those of UC and UD.
var unreliableFaults = []fault{
	{"bytes are swapped", spoils(both(func(p *rocev2.Packet) bool { return anyUC(p) || anyUD(p) }, func(p *rocev2.Packet) bool { return len(p.Payload) > 0 })), "uc/send uc/write ud/send"},
	{"a message that is lost ends UC", func() plant {
		next := map[rocev2.QPN]rocev2.PSN{}
		return plant{rx: func(p *rocev2.Packet) bool {
			if want, known := next[p.BTH.DestQPN]; known && p.BTH.PSN != want {
				return false
			}
			next[p.BTH.DestQPN] = p.BTH.PSN.Next()
			return true
		}}
	}, "uc/lost-message uc/lost-middle ud/psn"},
	{"a message that is cut off ends UC", endsAfter(op(rocev2.UCSendFirst, rocev2.UCWriteMiddle)), "uc/lost-middle uc/write-cut"},
	{"a wrong key ends UC", endsAfter(op(rocev2.UCWriteOnly)), "uc/key"},
	{"keys of UC are not checked", writes(op(rocev2.UCWriteOnly)), "uc/key"},
	{"UC is acknowledged", sends(func(p *rocev2.Packet) bool {
		if is(p, rocev2.UCSendLast) {
			p.BTH.AckReq = true
		}
		return true
	}), "uc/requester"},
	{"immediate data are in the other byte order", takes(op(rocev2.UDSendOnlyImm), func(p *rocev2.Packet) { p.Imm = 0x99000000 }), "ud/imm"},
	{"Q_Key is not checked", raws(func(p *transport.RxPacket) {
		if p.Data[0] == byte(rocev2.UDSendOnly) {
			copy(p.Data[rocev2.BTHLen:], []byte{1, 0x23, 0x45, 0x67})
		}
	}), "ud/qkey"},
	{"a datagram that is too long ends UD", endsAfter(both(anyUD, carries(200))), "ud/too-long"},
	{"a datagram that is too long is cut", takes(both(anyUD, carries(200)), func(p *rocev2.Packet) { p.Payload = p.Payload[:60] }), "ud/too-long"},
	{"a datagram without a receive ends UD", endsAfter(both(anyUD, carries(20))), "ud/no-receive"},
	{"a datagram without a receive waits for one", completes(both(anyUD, carries(20))), "ud/no-receive ud/qkey"},
	{"a message that lost a packet is received", takes(op(rocev2.UCSendLast), func(p *rocev2.Packet) {
		p.BTH.Opcode, p.Payload = rocev2.UCSendOnly, p.Payload[:min(len(p.Payload), stage.MTU)]
	}), "uc/lost-middle uc/send"},
}
