package conformance_test

import (
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/observe/conformance/stage"
	"github.com/gosoftroce/rocev2/rocev2"
)

// first is the PSN of the first request of a peer.
const first = stage.TargetPSN

// repeats makes a fault of what a requester sends again: change gets how often
// a packet was sent before; false loses it.
func repeats(change func(p *rocev2.Packet, before int) bool) func() plant {
	type key struct {
		qpn rocev2.QPN
		psn rocev2.PSN
	}
	return func() plant {
		sent := map[key]int{}
		return plant{tx: func(p *rocev2.Packet) bool {
			if !anyRequest(p) {
				return true
			}
			k := key{p.BTH.DestQPN, p.BTH.PSN}
			sent[k]++
			return change(p, sent[k]-1)
		}}
	}
}

// twice is a fault that sends some requests more than once.
func twice(match func(*rocev2.Packet) bool) func() plant {
	return adds(func(p *rocev2.Packet) []*rocev2.Packet {
		if match(p) {
			return []*rocev2.Packet{p}
		}
		return nil
	})
}

func adds(more func(*rocev2.Packet) []*rocev2.Packet) func() plant {
	return func() plant { return plant{more: more} }
}

// succeeds is a fault that completes with success what has failed.
var succeeds = says("wc", func(_, answer string) string {
	if s := parameter(answer, "status"); s != 0 {
		return "ok id=1 status=0 len=64 imm=0"
	}
	return answer
})

// hangs is a fault that never completes what has failed.
var hangs = says("wc", func(_, answer string) string {
	if parameter(answer, "status") != 0 {
		return "ok none"
	}
	return answer
})

const failing = "requester/nak-invalid requester/nak-access requester/nak-operational requester/nak-reserved requester/nak-flush " +
	"requester/read-short requester/read-opcode requester/read-last requester/read-syndrome requester/write-read-response " +
	"retry/count retry/zero retry/seven rnr/count rnr/zero"

// requesterFaults are those of what a peer asks for.
var requesterFaults = []fault{
	{"requests ask for no acknowledgement", sends(func(p *rocev2.Packet) bool {
		p.BTH.AckReq = false
		return true
	}), "requester/send requester/send-only requester/send-zero requester/write requester/mtu"},
	{"the length of a WRITE is that of its packet", sends(func(p *rocev2.Packet) bool {
		p.RETH.Length = min(p.RETH.Length, 256)
		return true
	}), "requester/write requester/read"},
	{"a full packet is a FIRST", renames(both(op(rocev2.RCSendOnly), carries(stage.MTU)), rocev2.RCSendFirst), "requester/send-only"},
	{"an empty SEND has a byte", sends(func(p *rocev2.Packet) bool {
		if is(p, rocev2.RCSendOnly) && len(p.Payload) == 0 {
			p.Payload = []byte{0}
		}
		return true
	}), "requester/send-zero requester/read"},
	{"immediate data are in the other byte order", sends(func(p *rocev2.Packet) bool {
		p.Imm = 0x04030201
		return true
	}), "requester/send-imm"},
	{"a WRITE with immediate data has none", renames(op(rocev2.RCWriteLastImm), rocev2.RCWriteLast), "requester/send-imm"},
	{"operands of COMPARE_SWAP are mixed up", sends(func(p *rocev2.Packet) bool {
		if is(p, rocev2.RCCompareSwap) {
			p.AtomicETH.SwapAdd, p.AtomicETH.Compare = p.AtomicETH.Compare, p.AtomicETH.SwapAdd
		}
		return true
	}), "requester/atomic"},
	{"packets are cut at 512 bytes", sends(func(p *rocev2.Packet) bool {
		p.Payload = p.Payload[:min(len(p.Payload), 512)]
		return true
	}), "requester/mtu"},
	{"operands of atomics have 32 bits", sends(func(p *rocev2.Packet) bool {
		p.AtomicETH.SwapAdd &= 1<<32 - 1
		return true
	}), "requester/atomic"},
	{"one READ more than was agreed", adds(func(p *rocev2.Packet) []*rocev2.Packet {
		if !anyRead(p) || p.BTH.PSN != first+stage.Depth-1 {
			return nil
		}
		q := *p
		q.BTH.PSN++
		return []*rocev2.Packet{&q}
	}), "requester/depth"},
	{"a fence does not hold requests", adds(func(p *rocev2.Packet) []*rocev2.Packet {
		if !anyRead(p) {
			return nil
		}
		q := *p
		q.BTH.Opcode, q.BTH.PSN, q.Payload = rocev2.RCWriteOnly, p.BTH.PSN+1, make([]byte, 64)
		return []*rocev2.Packet{&q}
	}), "requester/fence requester/fence-lost"},
	{"a request with a fence is forgotten where the READ comes again", func() plant {
		reads := 0
		return plant{tx: func(p *rocev2.Packet) bool {
			if anyRead(p) {
				reads++
			}
			return reads < 2 || !is(p, rocev2.RCWriteOnly)
		}}
	}, "requester/fence-lost"},

	{"acknowledgements complete one request", takes(isACK, func(p *rocev2.Packet) { p.BTH.PSN = first }), "requester/implied"},
	{"acknowledgements complete READs", takes(isACK, func(p *rocev2.Packet) {
		p.BTH.Opcode, p.BTH.PSN, p.Payload = rocev2.RCReadResponseOnly, first, make([]byte, 64)
	}), "requester/implied-read requester/read-plain-ack"},
	{"acknowledgements of the future complete all", takes(isACK, func(p *rocev2.Packet) { p.BTH.PSN = min(p.BTH.PSN, first) }), "requester/ack-future"},
	{"each acknowledgement completes a request", func() plant {
		n := 0
		return plant{rx: func(p *rocev2.Packet) bool {
			if isACK(p) {
				p.BTH.PSN = first.Add(n)
				n++
			}
			return true
		}}
	}, "requester/ack-old"},
	{"after a gap it goes on where it was", takes(func(p *rocev2.Packet) bool { return isNAK(p, rocev2.NAKSequence) }, func(p *rocev2.Packet) { p.BTH.PSN++ }), "requester/nak-sequence retry/nak-progress"},
	{"NAK PSN sequence error is not obeyed", loses(func(p *rocev2.Packet) bool { return isNAK(p, rocev2.NAKSequence) }), "requester/nak-sequence retry/nak-progress"},
	{"NAKs are taken for one another", takes(func(p *rocev2.Packet) bool { return p.AETH.Syndrome.IsNAK() && p.AETH.Syndrome > invalid-1 }, func(p *rocev2.Packet) {
		p.AETH.Syndrome = map[rocev2.Syndrome]rocev2.Syndrome{invalid: remoteAccess, remoteAccess: rocev2.NAKRemoteOperational}[p.AETH.Syndrome]
		if p.AETH.Syndrome == 0 {
			p.AETH.Syndrome = invalid
		}
	}), "requester/nak-invalid requester/nak-access requester/nak-operational requester/nak-flush"},
	{"what is no NAK that is known is an ACK", takes(op(rocev2.RCAcknowledge), func(p *rocev2.Packet) {
		if p.AETH.Syndrome > rocev2.NAKInvalidRD {
			p.AETH.Syndrome = rocev2.ACKNoCredits
		}
	}), "requester/nak-reserved"},
	{"syndromes of READ responses are not looked at", takes(op(rocev2.RCReadResponseOnly), func(p *rocev2.Packet) { p.AETH.Syndrome = rocev2.ACKNoCredits }), "requester/read-syndrome"},
	{"lengths of READ responses are not looked at", takes(op(rocev2.RCReadResponseOnly), func(p *rocev2.Packet) {
		p.Payload = append(p.Payload, make([]byte, 64)...)[:64]
	}), "requester/read-short"},
	{"opcodes of READ responses are not looked at", takes(op(rocev2.RCReadResponseFirst), func(p *rocev2.Packet) { p.BTH.Opcode = rocev2.RCReadResponseOnly }), "requester/read-opcode"},
	{"a READ response acknowledges a WRITE", takes(op(rocev2.RCReadResponseOnly), func(p *rocev2.Packet) { p.BTH.Opcode, p.Payload = rocev2.RCAcknowledge, nil }), "requester/write-read-response"},
	{"what has failed succeeds", succeeds, failing},
	{"what has failed never completes", hangs, failing},
	{"requests fail with a wrong status", says("wc", func(_, answer string) string {
		if parameter(answer, "status") == 0 {
			return answer
		}
		return "ok id=1 status=21 len=0 imm=0"
	}), "requester/nak-invalid requester/nak-access requester/nak-operational retry/count retry/zero retry/seven rnr/count rnr/zero"},
	{"transport retry exceeded is RNR retry exceeded, and the other way", says("wc", func(_, answer string) string {
		return strings.Replace(strings.Replace(strings.Replace(answer, "status=12 ", "status=- ", 1), "status=13 ", "status=12 ", 1), "status=- ", "status=13 ", 1)
	}), "retry/count retry/zero retry/seven rnr/count rnr/zero"},
	{"a READ brings other bytes", spoils(op(rocev2.RCReadResponseOnly, rocev2.RCReadResponseFirst)), "requester/read requester/implied-read requester/read-plain-ack requester/read-icrc requester/read-gap retry/read-resume"},
	{"the result of an atomic is in the other byte order", takes(op(rocev2.RCAtomicAcknowledge), func(p *rocev2.Packet) { p.AtomicAck.Original = 0x0807060504030201 }), "requester/atomic"},

	{"other bytes the second time", repeats(func(p *rocev2.Packet, before int) bool {
		if len(p.Payload) > 0 && before > 0 {
			flip(p)
		}
		return true
	}), "retry/same retry/write-resume"},
	{"nothing is sent again", repeats(func(_ *rocev2.Packet, before int) bool { return before == 0 }),
		"retry/same retry/early retry/count retry/seven retry/write-resume retry/progress retry/nak-progress requester/nak-sequence rnr/waits rnr/count rnr/infinite requester/fence-lost requester/implied-read requester/read-icrc"},
	{"the rest of a READ is not asked for", sends(func(p *rocev2.Packet) bool { return !anyRead(p) || p.BTH.PSN == first }), "retry/read-resume requester/read-gap"},
	{"requests are sent twice at once", twice(op(rocev2.RCWriteOnly, rocev2.RCSendOnly)), "retry/early retry/count retry/zero retry/seven rnr/waits"},
	{"a request comes again although it has failed", func() plant {
		sent := map[rocev2.QPN]bool{}
		return plant{late: func(p *rocev2.Packet) time.Duration {
			if !is(p, rocev2.RCWriteOnly) || sent[p.BTH.DestQPN] {
				return 0
			}
			sent[p.BTH.DestQPN] = true
			return 320 * time.Millisecond
		}}
	}, "retry/count retry/zero retry/seven"},
	{"the rest of a READ has the length of all", repeats(func(p *rocev2.Packet, _ int) bool {
		if anyRead(p) && p.BTH.PSN != first {
			p.RETH.Length += stage.MTU
		}
		return true
	}), "retry/read-resume requester/read-gap"},
	{"progress gives no retries back", repeats(func(_ *rocev2.Packet, before int) bool { return before < 2 }), "retry/progress"},
	{"a WRITE goes back to its beginning", adds(func(p *rocev2.Packet) []*rocev2.Packet {
		if !is(p, rocev2.RCWriteLast) {
			return nil
		}
		q := *p
		q.BTH.Opcode, q.BTH.PSN, q.Payload = rocev2.RCWriteFirst, first, make([]byte, stage.MTU)
		return []*rocev2.Packet{&q}
	}), "retry/write-resume retry/same"},
	{"six repetitions are all there are", repeats(func(_ *rocev2.Packet, before int) bool { return before <= 6 }), "retry/seven rnr/infinite"},
	{"RNR NAK is no reason to wait", func() plant {
		return plant{more: func(p *rocev2.Packet) []*rocev2.Packet {
			if is(p, rocev2.RCSendOnly) {
				return []*rocev2.Packet{p}
			}
			return nil
		}}
	}, "rnr/waits"},
	{"RNR NAKs are dropped", loses(isRNR), "rnr/zero rnr/count rnr/infinite"},
}
