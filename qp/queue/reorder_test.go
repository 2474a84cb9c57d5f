package queue

import (
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
)

// A packet that is sent again is the same, whatever was left over in the fields
// of headers that it does not have: parsing does not clear them. For another
// shared receive queue it is another one.
func TestSameMeaning(t *testing.T) {
	t.Parallel()
	type packet = rocev2.Packet
	op := func(o rocev2.Opcode, f func(*packet)) *packet {
		p := &packet{BTH: rocev2.BTH{Opcode: o}, Payload: []byte{1}}
		if f != nil {
			f(p)
		}
		return p
	}
	leftOver := func(p *packet) {
		p.RETH.VA, p.AtomicETH.VA, p.Imm, p.XRCETH.SRQN, p.IETH.RKey, p.FETH.Type, p.AtomicAck.Original = 1, 2, 3, 4, 5, 1, 6
	}
	for name, c := range map[string]struct {
		a, b *packet
		same bool
	}{
		"a middle packet":  {op(rocev2.RCSendMiddle, nil), op(rocev2.RCSendMiddle, leftOver), true},
		"its AckReq":       {op(rocev2.RCSendMiddle, nil), op(rocev2.RCSendMiddle, func(p *packet) { p.BTH.AckReq = true }), true},
		"its data":         {op(rocev2.RCSendMiddle, nil), op(rocev2.RCSendMiddle, func(p *packet) { p.Payload = []byte{2} }), false},
		"its opcode":       {op(rocev2.RCSendMiddle, nil), op(rocev2.RCWriteMiddle, nil), false},
		"its RETH":         {op(rocev2.RCWriteFirst, nil), op(rocev2.RCWriteFirst, func(p *packet) { p.RETH.VA = 1 }), false},
		"its FETH":         {op(rocev2.RCFlush, nil), op(rocev2.RCFlush, func(p *packet) { p.FETH.Type = 1 }), false},
		"its AtomicETH":    {op(rocev2.RCFetchAdd, nil), op(rocev2.RCFetchAdd, func(p *packet) { p.AtomicETH.VA = 1 }), false},
		"its ImmDt":        {op(rocev2.RCSendOnlyImm, nil), op(rocev2.RCSendOnlyImm, func(p *packet) { p.Imm = 1 }), false},
		"its IETH":         {op(rocev2.RCSendOnlyInv, nil), op(rocev2.RCSendOnlyInv, func(p *packet) { p.IETH.RKey = 1 }), false},
		"its AtomicAckETH": {op(rocev2.RCAtomicAcknowledge, nil), op(rocev2.RCAtomicAcknowledge, func(p *packet) { p.AtomicAck.Original = 1 }), false},
		"its XRCETH":       {op(rocev2.XRCSendMiddle, nil), op(rocev2.XRCSendMiddle, func(p *packet) { p.XRCETH.SRQN = 1 }), false},
		"a reserved byte":  {op(rocev2.XRCSendMiddle, nil), op(rocev2.XRCSendMiddle, func(p *packet) { p.XRCETH.Reserved = 1 }), true},
	} {
		if got := sameMeaning(c.a, c.b); got != c.same {
			t.Errorf("%s: the same %v, want %v", name, got, c.same)
		}
	}
}
