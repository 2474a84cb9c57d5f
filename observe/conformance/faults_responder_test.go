package conformance_test

import (
	"github.com/gosoftroce/rocev2/observe/conformance/stage"
	"github.com/gosoftroce/rocev2/rocev2"
)

var (
	anyRead       = op(rocev2.RCReadRequest)
	anyAtomic     = op(rocev2.RCFetchAdd, rocev2.RCCompareSwap)
	anyRETH       = op(rocev2.RCWriteFirst, rocev2.RCWriteOnly, rocev2.RCWriteOnlyImm, rocev2.RCReadRequest, rocev2.RCAtomicWrite, rocev2.RCFlush)
	invalid       = rocev2.NAKInvalidRequest
	remoteAccess  = rocev2.NAKRemoteAccess
	anyRCResponse = op(rocev2.RCReadResponseFirst, rocev2.RCReadResponseMiddle, rocev2.RCReadResponseLast, rocev2.RCReadResponseOnly, rocev2.RCAtomicAcknowledge, rocev2.RCAcknowledge)
)

// both matches what two functions match.
func both(a, b func(*rocev2.Packet) bool) func(*rocev2.Packet) bool {
	return func(p *rocev2.Packet) bool { return a(p) && b(p) }
}

// length matches requests with a RETH of n bytes.
func length(n int) func(*rocev2.Packet) bool {
	return both(anyRETH, func(p *rocev2.Packet) bool { return p.RETH.Length == uint32(n) })
}

// carries matches packets with n bytes of payload.
func carries(n int) func(*rocev2.Packet) bool {
	return func(p *rocev2.Packet) bool { return len(p.Payload) == n }
}

// executes is a fault that acknowledges requests which are to be refused.
func executes(match func(*rocev2.Packet) bool) func() plant {
	return answers(match, func(p *rocev2.Packet) bool {
		if is(p, rocev2.RCAcknowledge) {
			p.AETH.Syndrome, p.AETH.MSN = rocev2.ACKNoCredits, p.AETH.MSN.Next()
		}
		return true
	})
}

// turns is a fault that sends one syndrome for another.
func turns(from, to rocev2.Syndrome) func() plant {
	return sends(func(p *rocev2.Packet) bool {
		if isNAK(p, from) {
			p.AETH.Syndrome = to
		}
		return true
	})
}

// renames is a fault that sends packets under another opcode.
func renames(match func(*rocev2.Packet) bool, to rocev2.Opcode) func() plant {
	return sends(func(p *rocev2.Packet) bool {
		if match(p) {
			p.BTH.Opcode = to
		}
		return true
	})
}

// spoils is a fault that alters a byte of what comes.
func spoils(match func(*rocev2.Packet) bool) func() plant { return takes(match, flip) }

// responderFaults are those of responders, but for duplicates and memory.
var responderFaults = []fault{
	{"MSN counts packets", sends(func(p *rocev2.Packet) bool {
		if is(p, rocev2.RCAcknowledge) {
			p.AETH.MSN++
		}
		return true
	}), "send/only ack/msn ack/ackreq"},
	{"acknowledgements have the PSN before", sends(func(p *rocev2.Packet) bool {
		if isACK(p) {
			p.BTH.PSN = p.BTH.PSN.Add(-1)
		}
		return true
	}), "send/only ack/last"},
	{"READs do not count as messages", func() plant {
		reads := 0
		return plant{tx: func(p *rocev2.Packet) bool {
			if is(p, rocev2.RCReadResponseOnly) {
				reads++
			} else {
				p.AETH.MSN = p.AETH.MSN.Add(-reads)
			}
			return true
		}}
	}, "atomic/msn"},
	{"a packet in the middle is not acknowledged", answers(op(rocev2.RCWriteMiddle), lost), "ack/ackreq"},
	{"a message that asks for no acknowledgement is dropped", loses(func(p *rocev2.Packet) bool {
		return is(p, rocev2.RCWriteOnly) && !p.BTH.AckReq
	}), "ack/later"},
	{"a SEND with invalidate is a SEND", takes(op(rocev2.RCSendOnlyInv), func(p *rocev2.Packet) { p.BTH.Opcode = rocev2.RCSendOnly }), "send/invalidate-refused"},
	{"a full LAST is dropped", loses(both(op(rocev2.RCSendLast), carries(stage.MTU))), "send/full-last"},
	{"a SEND that is too long is an operational error", turns(invalid, rocev2.NAKRemoteOperational), "send/too-long"},

	{"RNR NAK without its timer", sends(func(p *rocev2.Packet) bool {
		if isRNR(p) {
			p.AETH.Syndrome = rocev2.SyndromeRNR(0)
		}
		return true
	}), "send/rnr send/rnr-after send/rnr-write-imm"},
	{"a WRITE with immediate data takes no receive", takes(op(rocev2.RCWriteOnlyImm), func(p *rocev2.Packet) { p.BTH.Opcode = rocev2.RCWriteOnly }), "send/rnr-write-imm"},
	{"what follows RNR NAK is acknowledged", answers(op(rocev2.RCSendOnly), func(p *rocev2.Packet) bool {
		if isRNR(p) {
			p.AETH.Syndrome, p.BTH.PSN = rocev2.ACKNoCredits, p.BTH.PSN.Next()
		}
		return true
	}), "send/rnr-after"},

	{"READ responses of swapped bytes", sends(func(p *rocev2.Packet) bool {
		if is(p, rocev2.RCReadResponseMiddle) {
			p.Payload[0] ^= 1
		}
		return true
	}), "read/multi duplicate/read duplicate/read-part"},
	{"READ responses without MIDDLE", sends(func(p *rocev2.Packet) bool { return !is(p, rocev2.RCReadResponseMiddle) }), "read/multi"},
	{"a READ response of one packet is a LAST", renames(op(rocev2.RCReadResponseOnly), rocev2.RCReadResponseLast), "read/only read/zero"},
	{"a full packet is a FIRST", renames(both(op(rocev2.RCReadResponseOnly), carries(stage.MTU)), rocev2.RCReadResponseFirst), "read/mtu"},
	{"a full LAST of a READ response is a MIDDLE", renames(both(op(rocev2.RCReadResponseLast), carries(stage.MTU)), rocev2.RCReadResponseMiddle), "read/two"},
	{"a READ reads before the WRITE", sends(func(p *rocev2.Packet) bool {
		clear(p.Payload)
		return true
	}), "read/after-write key/read-only-read"},
	{"no more than two READs are taken", func() plant {
		n := 0
		return plant{rx: func(p *rocev2.Packet) bool {
			if anyRead(p) {
				n++
			}
			return n <= 2
		}}
	}, "read/many"},
	{"READs are answered in another order", func() plant {
		var held *rocev2.Packet
		return plant{tx: func(p *rocev2.Packet) bool {
			if held == nil && is(p, rocev2.RCReadResponseFirst) {
				held = p
				return false
			}
			return true
		}}
	}, "read/many"},
	{"the key of an empty request counts", answers(length(0), nak(remoteAccess)), "write/zero read/zero duplicate/read-zero duplicate/read-after-empty"},
	{"path MTUs above 256 are not taken", loses(func(p *rocev2.Packet) bool { return len(p.Payload) > 256 }), "mtu/*"},
	{"READ responses are of 256 bytes", sends(func(p *rocev2.Packet) bool {
		if anyRCResponse(p) && len(p.Payload) > 256 {
			p.Payload = p.Payload[:256]
		}
		return true
	}), "mtu/*"},

	{"atomics return the new value", sends(func(p *rocev2.Packet) bool {
		p.AtomicAck.Original++
		return true
	}), "atomic/fetch-add atomic/compare-swap duplicate/atomic duplicate/atomics-depth"},
	{"operands of COMPARE_SWAP are mixed up", takes(op(rocev2.RCCompareSwap), func(p *rocev2.Packet) {
		p.AtomicETH.SwapAdd, p.AtomicETH.Compare = p.AtomicETH.Compare, p.AtomicETH.SwapAdd
	}), "atomic/compare-swap"},
	{"FETCH_ADD has 32 bits", takes(op(rocev2.RCFetchAdd), func(p *rocev2.Packet) { p.AtomicETH.SwapAdd &= 1<<32 - 1 }), "atomic/fetch-add"},
	{"FETCH_ADD ends at the largest number", func() plant {
		word := map[rocev2.QPN]uint64{}
		return plant{rx: func(p *rocev2.Packet) bool {
			if is(p, rocev2.RCFetchAdd) {
				w := max(word[p.BTH.DestQPN], 40)
				p.AtomicETH.SwapAdd = min(p.AtomicETH.SwapAdd, 1<<64-1-w)
				word[p.BTH.DestQPN] = w + p.AtomicETH.SwapAdd
			}
			return true
		}}
	}, "atomic/fetch-add"},
	{"atomics take any address", takes(anyAtomic, func(p *rocev2.Packet) { p.AtomicETH.VA &^= 7 }), "atomic/unaligned"},
	{"ATOMIC WRITE takes any address", takes(op(rocev2.RCAtomicWrite), func(p *rocev2.Packet) { p.RETH.VA &^= 7 }), "atomic-write/unaligned"},
	{"FLUSH is not answered", answers(op(rocev2.RCFlush), lost), "flush/global duplicate/flush"},
	{"ATOMIC WRITE is acknowledged", answers(op(rocev2.RCAtomicWrite), nak(rocev2.ACKNoCredits)), "atomic-write/executed"},

	{"no NAK for a gap", sends(func(p *rocev2.Packet) bool { return !isNAK(p, rocev2.NAKSequence) }), "psn/gap psn/gap-once psn/gap-again psn/far"},
	{"a NAK for each packet after a gap", func() plant {
		return plant{more: func(p *rocev2.Packet) []*rocev2.Packet {
			if isNAK(p, rocev2.NAKSequence) {
				return []*rocev2.Packet{p, p}
			}
			return nil
		}}
	}, "psn/gap-once"},
	{"one NAK for each gap", func() plant {
		told := map[rocev2.PSN]bool{}
		return plant{tx: func(p *rocev2.Packet) bool {
			again := isNAK(p, rocev2.NAKSequence) && told[p.BTH.PSN]
			told[p.BTH.PSN] = true
			return !again
		}}
	}, "psn/gap-again"},
	{"PSNs end at 0xffffff", loses(func(p *rocev2.Packet) bool { return p.BTH.PSN < 0x100 }), "psn/wrap"},
	{"PSNs of READ responses end at 0xffffff", sends(func(p *rocev2.Packet) bool { return p.BTH.PSN >= 0x100 }), "psn/wrap psn/wrap-read"},
	{"a PSN that is far ahead is a duplicate", loses(func(p *rocev2.Packet) bool { return p.BTH.PSN == 0x800001+1<<22 }), "psn/far"},
	{"a duplicate before anything is answered with its MSN", answers(anyRequest, func(p *rocev2.Packet) bool {
		p.AETH.MSN += 3
		return true
	}), "psn/stale"},

	{"nothing is an invalid request", turns(invalid, rocev2.ACKNoCredits),
		"opcode/* length/* right/write right/read right/atomic depth/none atomic/unaligned atomic-write/unaligned send/too-long"},
	{"an invalid request has a NAK of another PSN", sends(func(p *rocev2.Packet) bool {
		if isNAK(p, invalid) {
			p.BTH.PSN = p.BTH.PSN.Add(-1)
		}
		return true
	}), "opcode/* length/first* length/middle-short length/last-empty length/only-long length/write-less length/write-more length/beyond-2g right/write right/read right/atomic depth/none"},
	{"a wrong key is an operational error", turns(remoteAccess, rocev2.NAKRemoteOperational),
		"key/unknown* key/wrong-byte key/domain key/rights key/beyond key/before key/wrap key/straddle atomic/key refused/*"},
	{"keys are not checked", executes(anyRequest),
		"key/unknown* key/wrong-byte key/domain key/rights key/beyond key/before key/wrap key/straddle atomic/key refused/again*"},
	{"a refused request ends nothing", says("state", func(_, _ string) string { return "ok state=RTS" }),
		"opcode/* length/first* length/middle-short length/last-empty length/only-long length/write-less length/write-more length/beyond-2g " +
			"key/unknown key/wrong-byte key/domain key/rights key/beyond key/before right/write right/read right/atomic depth/none atomic/key send/too-long"},
	{"a gap is an error", says("state", func(_, _ string) string { return "ok state=ERR" }), "psn/gap send/rnr uc/key ud/too-long wire/response-stray"},
	{"a region that may be read only cannot be read", answers(anyRead, nak(remoteAccess)), "key/read-only-read read/only"},
	{"the last byte of a region is out of bounds", answers(length(1), nak(remoteAccess)), "key/end"},
	{"a SEND needs the right to write", answers(op(rocev2.RCSendOnly), nak(invalid)), "right/send"},
	{"what came before a refused request does not count", sends(func(p *rocev2.Packet) bool {
		if isNAK(p, remoteAccess) {
			p.AETH.MSN = 0
		}
		return true
	}), "refused/before"},
	{"a refused request is refused once", func() plant {
		told := false
		return plant{tx: func(p *rocev2.Packet) bool {
			again := told && isNAK(p, remoteAccess)
			told = told || isNAK(p, remoteAccess)
			return !again
		}}
	}, "refused/again*"},
}
