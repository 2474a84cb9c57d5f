package attack

import (
	"bytes"
	"math/rand/v2"
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/verbs"
)

// random makes packets with random numbers, BTH to pad.
type random struct{ *rand.Rand }

// addr is another address each time.
func (r *random) addr() netip.Addr {
	n := r.Uint32()
	return netip.AddrFrom4([4]byte{127, byte(224 + n>>16%16), byte(n >> 8), byte(n)})
}

// request makes packet i of a flood of requests.
func (r *random) request(i int, to *end, psn verbs.PSN) []byte {
	op := requests[i%len(requests)]
	return encode(op, to.qp.QPN(), psn, func(p *rocev2.Packet) {
		p.RETH = rocev2.RETH{VA: r.Uint64(), RKey: r.Uint32(), Length: slotSize}
		p.AtomicETH = rocev2.AtomicETH{VA: r.Uint64() &^ 7, RKey: r.Uint32()}
		if info, _ := op.Info(); info.Payload != rocev2.PayloadNone {
			p.Payload = forged
		}
	})
}

// response makes packet i of a flood of responses.
func response(i int, to *end, psn verbs.PSN) []byte {
	r := responses[i%len(responses)]
	return encode(r.op, to.qp.QPN(), psn, func(p *rocev2.Packet) {
		p.AETH.Syndrome = r.syndrome
		if info, _ := r.op.Info(); info.Payload != rocev2.PayloadNone {
			p.Payload = forged
		}
	})
}

// datagramTo makes a datagram of n bytes.
func datagramTo(e *end, n int, qkey uint32) []byte {
	return encode(rocev2.UDSendOnly, e.qp.QPN(), 0, func(p *rocev2.Packet) {
		p.DETH = rocev2.DETH{QKey: qkey, SrcQPN: 0x99}
		p.Payload = bytes.Repeat([]byte{0xee}, n)
	})
}

// ucForged is a packet that must not be executed.
func (r *random) ucForged(e *end) []byte {
	ops := []rocev2.Opcode{rocev2.UCSendMiddle, rocev2.UCSendLast, rocev2.UCSendLastImm, rocev2.UCWriteFirst, rocev2.UCWriteMiddle,
		rocev2.UCWriteLast, rocev2.UCWriteOnly, rocev2.UCWriteOnlyImm, rocev2.RCSendOnly, rocev2.RCAcknowledge, rocev2.XRCSendOnly}
	op := ops[r.IntN(len(ops))]
	return encode(op, e.qp.QPN(), verbs.PSN(r.Uint32N(1<<24)), func(p *rocev2.Packet) {
		p.RETH = rocev2.RETH{VA: r.Uint64(), RKey: r.Uint32(), Length: slotSize}
		switch info, _ := op.Info(); info.Payload {
		case rocev2.PayloadMTU:
			p.RETH.Length, p.Payload = 4096, bytes.Repeat([]byte{0xee}, 1024)
		case rocev2.PayloadNone:
		default:
			p.Payload = forged
		}
	})
}
