package conformance_test

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/gosoftroce/rocev2/observe/conformance/stage"
	"github.com/gosoftroce/rocev2/rocev2"
)

// sequence has the PSN that each queue pair expects.
type sequence map[rocev2.QPN]rocev2.PSN

// duplicate takes a request, and reports whether its PSN is an earlier one.
func (s sequence) duplicate(p *rocev2.Packet) bool {
	if !anyRequest(p) {
		return false
	}
	next, known := s[p.BTH.DestQPN]
	if known && p.BTH.PSN.Before(next) {
		return true
	}
	n := 1
	if anyRead(p) {
		n = max(1, (int(p.RETH.Length)+stage.MTU-1)/stage.MTU)
	}
	s[p.BTH.DestQPN] = p.BTH.PSN.Add(n)
	return false
}

// ofDuplicates makes a fault of what a responder does with duplicates.
func ofDuplicates(make func(match func(*rocev2.Packet) bool) func() plant) func() plant {
	return func() plant { return make(sequence{}.duplicate)() }
}

// writes is a fault that executes the WRITE of requests which are not to be
// executed: the memory shows their bytes.
func writes(match func(*rocev2.Packet) bool) func() plant {
	return func() plant {
		var va uint64
		shadow := map[int]byte{}
		return plant{
			rx: func(p *rocev2.Packet) bool {
				if match(p) {
					for i, b := range p.Payload {
						shadow[int(p.RETH.VA-va)+i] = b
					}
				}
				return true
			},
			says: func(command, answer string) string {
				switch name, _, _ := strings.Cut(command, " "); name {
				case "qp":
					va = parameter(answer, "va")
					clear(shadow)
				case "mem":
					return overlay(command, answer, shadow)
				}
				return answer
			},
		}
	}
}

func overlay(command, answer string, shadow map[int]byte) string {
	b, _ := hex.DecodeString(strings.TrimPrefix(answer, "ok hex=")) // the target's own
	for i := range b {
		if v, ok := shadow[int(parameter(command, "off"))+i]; ok {
			b[i] = v
		}
	}
	return fmt.Sprintf("ok hex=%x", b)
}

// completes is a fault that takes a receive for requests which take none.
func completes(match func(*rocev2.Packet) bool) func() plant {
	return func() plant {
		n := 0
		return plant{
			rx: func(p *rocev2.Packet) bool {
				if match(p) {
					n++
				}
				return true
			},
			says: func(command, answer string) string {
				if n > 0 && strings.HasPrefix(command, "wc ") {
					n--
					return fmt.Sprintf("ok id=%d status=0 len=0 imm=0", stage.FirstRecv+1)
				}
				return answer
			},
		}
	}
}

// duplicateFaults are those of what comes again.
var duplicateFaults = []fault{
	{"duplicates are dropped", ofDuplicates(loses), "duplicate/* psn/wrap-read"},
	{"duplicates write", ofDuplicates(writes), "duplicate/write duplicate/atomic-write psn/far"},
	{"duplicates take receives", ofDuplicates(completes), "duplicate/send"},
	{"the acknowledgement of a duplicate has an old MSN", func() plant {
		seen, again := sequence{}, false
		return plant{
			rx: func(p *rocev2.Packet) bool {
				again = seen.duplicate(p)
				return true
			},
			tx: func(p *rocev2.Packet) bool {
				if again {
					p.AETH.MSN = p.AETH.MSN.Add(-1)
				}
				return true
			},
		}
	}, "duplicate/noack duplicate/send duplicate/write"},
	{"atomics are executed again", ofDuplicates(func(match func(*rocev2.Packet) bool) func() plant {
		return answers(match, func(p *rocev2.Packet) bool {
			p.AtomicAck.Original += 3
			return true
		})
	}), "duplicate/atomic duplicate/atomics-depth"},
	{"READs cannot be repeated from the middle", ofDuplicates(func(match func(*rocev2.Packet) bool) func() plant {
		return answers(both(match, func(p *rocev2.Packet) bool { return p.RETH.Length%stage.MTU != 0 && p.RETH.Length < 4*stage.MTU }), nak(invalid))
	}), "duplicate/read-part duplicate/read-twice"},
	{"a READ that comes again has no response", ofDuplicates(func(match func(*rocev2.Packet) bool) func() plant {
		return answers(both(match, anyRead), nak(rocev2.ACKNoCredits))
	}), "duplicate/read*"},
	{"a duplicate atomic whose result is forgotten is executed", func() plant {
		n := 0
		return plant{tx: func(p *rocev2.Packet) bool {
			if n++; n > 40 {
				p.BTH.Opcode, p.AtomicAck.Original = rocev2.RCAtomicAcknowledge, 40
			}
			return true
		}}
	}, "duplicate/atomic-forgotten"},
}

// memoryFaults are those of what programs at the peer see: memory and
// completions of receives.
var memoryFaults = []fault{
	{"bytes of one packet are swapped", spoils(op(rocev2.RCSendOnly, rocev2.RCWriteOnly, rocev2.RCAtomicWrite)), "write/only write/address atomic-write/executed key/end refused/before send/order"},
	{"bytes of the middle are swapped", spoils(op(rocev2.RCSendMiddle, rocev2.RCWriteMiddle)), "send/multi write/multi"},
	{"addresses are multiples of 4", takes(anyRETH, func(p *rocev2.Packet) { p.RETH.VA &^= 3 }), "write/address"},
	{"immediate data are in the other byte order", takes(op(rocev2.RCSendOnlyImm, rocev2.RCWriteLastImm, rocev2.RCWriteOnlyImm), func(p *rocev2.Packet) {
		p.Imm = p.Imm>>24 | p.Imm>>8&0xff00 | p.Imm<<8&0xff0000 | p.Imm<<24
	}), "send/imm write/imm send/rnr-write-imm"},
	{"what is refused is written", writes(op(rocev2.RCWriteFirst, rocev2.RCWriteOnly)), "key/straddle length/write-more right/write refused/after"},
	{"what follows a gap or RNR NAK is written", writes(func(p *rocev2.Packet) bool { return is(p, rocev2.RCWriteOnly) && p.BTH.PSN >= 0x10001 }), "psn/gap send/rnr-after"},
	{"an empty SEND completes nothing", says("wc", func(_, answer string) string {
		if parameter(answer, "len") == 0 {
			return "ok none"
		}
		return answer
	}), "send/zero"},
	{"receives are filled in another order", says("wc", func(_, answer string) string {
		return strings.Replace(strings.Replace(strings.Replace(answer, "id=101", "id=-", 1), "id=102", "id=101", 1), "id=-", "id=102", 1)
	}), "send/order uc/send"},
	{"the length of a completion is wrong", says("wc", func(_, answer string) string {
		return strings.Replace(answer, "len=", "len=1", 1)
	}), "send/only send/multi send/full-last write/imm uc/send ud/send"},
	{"a receive that is too small completes with success", says("wc", func(_, answer string) string {
		return strings.Replace(answer, "status=1 ", "status=0 ", 1)
	}), "send/too-long"},
	{"nothing is flushed", says("wc", func(_, answer string) string {
		if parameter(answer, "status") == stage.StatusFlush {
			return "ok none"
		}
		return answer
	}), "refused/after requester/nak-flush"},
	{"bytes after a receive are written", says("mem", func(command, answer string) string {
		if parameter(command, "off") == stage.RecvBase+300 {
			return "ok hex=00" + strings.TrimPrefix(answer, "ok hex=")[2:]
		}
		return answer
	}), "send/too-long"},
}
