package rules

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/gosoftroce/rocev2/observe/conformance/stage"
	"github.com/gosoftroce/rocev2/rocev2"
)

// memoryRules are those of WRITE, READ and atomics.
func memoryRules() []Rule {
	return []Rule{
		{ID: "write/only", Text: "A WRITE of one packet is in memory when it is acknowledged", Spec: "9.4.3", Script: func(s *stage.Scene) { writes(s, 100, 1, 2, 3) }},
		{ID: "write/multi", Text: "A WRITE of several packets is in memory when it is acknowledged", Spec: "9.4.3", Script: func(s *stage.Scene) { writes(s, 3*stage.MTU+1, 2*stage.MTU, 16*stage.MTU) }},
		{ID: "write/zero", Bare: true, Text: "A WRITE of length 0 needs no valid key", Spec: "9.7.4.1.5", Script: writeZero},
		{ID: "write/imm", Text: "A WRITE with immediate data completes a receive, which it does not fill", Spec: "9.4.3", Script: writeImm},
		{ID: "write/address", Text: "A WRITE may begin at any byte", Spec: "9.3.3", Script: writeAnywhere},
		{ID: "read/only", Text: "A READ of one packet is answered by READ response only", Spec: "9.4.4", Script: func(s *stage.Scene) { reads(s, 100) }},
		{ID: "read/multi", Text: "A READ is answered by FIRST, MIDDLE and LAST with consecutive PSNs, each full but the last", Spec: "9.4.4, 9.7.5.1.5", Script: func(s *stage.Scene) { reads(s, 5*stage.MTU+3) }},
		{ID: "read/two", Text: "A READ of two packets has no MIDDLE", Spec: "9.4.4", Script: func(s *stage.Scene) { reads(s, 2*stage.MTU) }},
		{ID: "read/mtu", Text: "A READ of exactly a path MTU is one packet", Spec: "9.4.4", Script: func(s *stage.Scene) { reads(s, stage.MTU) }},
		{ID: "read/zero", Bare: true, Text: "A READ of length 0 needs no valid key, and is answered by an empty packet", Spec: "9.7.4.1.5", Script: readZero},
		{ID: "read/after-write", Text: "A READ sees the WRITEs before it", Spec: "10.8.3.3", Script: readAfterWrite},
		{ID: "read/many", Text: "As many READs as agreed may be outstanding, and are answered in order", Spec: "9.7.4", Script: readMany},
		{ID: "mtu/512", Text: "WRITE and READ at a path MTU of 512", Spec: "5.2.1, 9.7.4.1.6", Script: func(s *stage.Scene) { atMTU(s, 512) }},
		{ID: "mtu/1024", Text: "WRITE and READ at a path MTU of 1024", Spec: "5.2.1, 9.7.4.1.6", Script: func(s *stage.Scene) { atMTU(s, 1024) }},
		{ID: "mtu/2048", Text: "WRITE and READ at a path MTU of 2048", Spec: "5.2.1, 9.7.4.1.6", Script: func(s *stage.Scene) { atMTU(s, 2048) }},
		{ID: "mtu/4096", Text: "WRITE and READ at a path MTU of 4096", Spec: "5.2.1, 9.7.4.1.6", Script: func(s *stage.Scene) { atMTU(s, 4096) }},
		{ID: "atomic/fetch-add", Text: "FETCH_ADD adds modulo 2^64 and returns what was there", Spec: "9.4.5", Needs: needsAtomic, Script: fetchAdd},
		{ID: "atomic/compare-swap", Text: "COMPARE_SWAP swaps if equal, and returns what was there", Spec: "9.4.5", Needs: needsAtomic, Script: compareSwap},
		{ID: "atomic/msn", Text: "READs and atomics count as messages", Spec: "9.7.7.1", Needs: needsAtomic, Script: atomicMSN},
		{ID: "atomic-write/executed", Text: "ATOMIC WRITE stores 8 bytes and is answered", Spec: "A19", Needs: []string{"rc", "atomic-write"}, Script: atomicWrite},
		{ID: "atomic-write/unaligned", Text: "ATOMIC WRITE to an address that is no multiple of 8 is an invalid request", Spec: "A19", Needs: []string{"rc", "atomic-write"}, Script: func(s *stage.Scene) {
			s.Connect(stage.Options{})
			p := s.Request(rocev2.RCAtomicWrite, stage.Data(8, 1))
			p.RETH.VA += 4
			refused(s, p, rocev2.NAKInvalidRequest)
		}},
		{ID: "flush/global", Text: "FLUSH of a range to global visibility, with the ICRC of the standard, is answered", Spec: "A19, A17.3.3", Needs: []string{"rc", "flush"}, Script: flushGlobal},
	}
}

func writes(s *stage.Scene, sizes ...int) {
	s.Connect(stage.Options{})
	for i, n := range sizes {
		b := stage.Data(n, i)
		s.Send(s.Message(stage.Writes, b)...)
		s.WantAck(1)
		s.WantMemory(0, b, "the WRITE")
	}
}

// anyRETH is one of length 0 that names no memory.
var anyRETH = rocev2.RETH{VA: 0xdead0000beef, RKey: 0x7ead77}

func writeZero(s *stage.Scene) {
	s.Connect(stage.Options{})
	p := s.Request(rocev2.RCWriteOnly, nil)
	p.RETH = anyRETH
	s.Send(p)
	s.WantAck(1)
	s.Alive()
}

func writeImm(s *stage.Scene) {
	s.Connect(stage.Options{Receives: 2})
	b := stage.Data(2*stage.MTU+7, 3)
	all := s.Message(stage.Writes, b)
	all[2].BTH.Opcode, all[2].Imm = rocev2.RCWriteLastImm, 0xabcdef01
	s.Send(all...)
	s.WantAck(1)
	s.WantMemory(0, b, "the WRITE")
	c := s.WantCompletion(stage.FirstRecv, stage.StatusSuccess)
	if !s.Over() && (c.Imm != 0xabcdef01 || c.Length != len(b)) {
		s.Fail(fmt.Sprintf("a completion with immediate data 0xabcdef01 and %d bytes", len(b)), fmt.Sprintf("%#x and %d bytes", c.Imm, c.Length))
	}
	s.WantMemory(stage.RecvBase, make([]byte, 64), "the receive's buffer is as it was")
}

func writeAnywhere(s *stage.Scene) {
	s.Connect(stage.Options{})
	b := stage.Data(17, 4)
	p := s.Request(rocev2.RCWriteOnly, b)
	p.RETH.VA += 4093
	s.Send(p)
	s.WantAck(1)
	s.WantMemory(4092, append(append([]byte{0}, b...), 0), "the WRITE, and nothing around it")
}

// read sends a READ of n bytes at an offset.
func read(s *stage.Scene, off, n int) *rocev2.Packet {
	p := s.Request(rocev2.RCReadRequest, nil)
	p.RETH.VA += uint64(off)
	p.RETH.Length = uint32(n)
	s.SetPSN(p.BTH.PSN.Add(packets(n, max(s.Options().MTU, 1))))
	s.Send(p)
	return p
}

// packets is how many packets n bytes take.
func packets(n, mtu int) int { return max(1, (n+mtu-1)/mtu) }

// wantRead waits for the response to a READ of the bytes, whose first packet
// has the PSN. The opcode of the first may be MIDDLE or LAST if the READ is a
// part of one.
func wantRead(s *stage.Scene, psn rocev2.PSN, b []byte, part bool) {
	wantResponse(s, psn, b, part, s.MSN(), s.MSN())
}

// wantResponse is wantRead where the MSN may already count later requests.
func wantResponse(s *stage.Scene, psn rocev2.PSN, b []byte, part bool, least, most rocev2.PSN) {
	mtu := max(s.Options().MTU, stage.MTU)
	n := packets(len(b), mtu)
	for i := range n {
		piece := b[i*mtu : min((i+1)*mtu, len(b))]
		ops := responseOps(i, n, part)
		at := psn.Add(i)
		s.Expect(stage.Want{Text: fmt.Sprintf("%v psn=%#x [%d bytes]", ops[0], uint32(at), len(piece)), Fits: func(p *rocev2.Packet) string {
			info, _ := p.BTH.Opcode.Info()
			switch {
			case !slices.Contains(ops, p.BTH.Opcode) || p.BTH.PSN != at:
				return stage.Another
			case !info.Headers.Has(rocev2.HasAETH):
			case !p.AETH.Syndrome.IsACK():
				return "its syndrome is no ACK"
			case p.AETH.MSN < least || p.AETH.MSN > most:
				return fmt.Sprintf("its MSN is not from %d to %d", least, most)
			}
			return stage.Differs(p.Payload, piece)
		}}, psn)
	}
}

// responseOps are the opcodes that packet i of n of a response may have.
func responseOps(i, n int, part bool) []rocev2.Opcode {
	var ops []rocev2.Opcode
	switch {
	case n == 1:
		ops = []rocev2.Opcode{rocev2.RCReadResponseOnly, rocev2.RCReadResponseLast}
	case i == 0:
		ops = []rocev2.Opcode{rocev2.RCReadResponseFirst, rocev2.RCReadResponseMiddle}
	case i == n-1:
		return []rocev2.Opcode{rocev2.RCReadResponseLast}
	default:
		return []rocev2.Opcode{rocev2.RCReadResponseMiddle}
	}
	if !part {
		return ops[:1]
	}
	return ops
}

func reads(s *stage.Scene, n int) {
	s.Connect(stage.Options{})
	b := stage.Data(n, 2)
	s.Fill(0, b)
	p := read(s, 0, n)
	s.SetMSN(1)
	wantRead(s, p.BTH.PSN, b, false)
	s.Send(s.Message(stage.Writes, stage.Data(8, 1))...) // its PSN is right
	s.WantAck(1)
}

func readZero(s *stage.Scene) {
	s.Connect(stage.Options{})
	p := s.Request(rocev2.RCReadRequest, nil)
	p.RETH = anyRETH
	s.Send(p)
	s.SetMSN(1)
	wantRead(s, p.BTH.PSN, nil, false)
	s.Alive()
}

func readAfterWrite(s *stage.Scene) {
	s.Connect(stage.Options{})
	b := stage.Data(3*stage.MTU, 9)
	s.Send(s.Message(stage.Writes, b)...)
	s.SetMSN(2)
	p := read(s, 0, len(b))
	wantRead(s, p.BTH.PSN, b, false)
}

func readMany(s *stage.Scene) {
	s.Connect(stage.Options{})
	b := stage.Data(4*700, 5)
	s.Fill(0, b)
	var first []rocev2.PSN
	for i := range 4 {
		first = append(first, read(s, i*700, 700).BTH.PSN)
	}
	for i, psn := range first {
		wantResponse(s, psn, b[i*700:(i+1)*700], false, rocev2.PSN(i+1), rocev2.PSN(len(first)))
	}
	s.SetMSN(4)
	s.Alive()
}

func atMTU(s *stage.Scene, mtu int) {
	s.Connect(stage.Options{MTU: mtu})
	b := stage.Data(2*mtu+mtu/2+1, mtu)
	s.Send(s.Message(stage.Writes, b)...)
	s.WantAck(1)
	s.WantMemory(0, b, "the WRITE")
	p := read(s, 0, len(b))
	s.SetMSN(2)
	wantRead(s, p.BTH.PSN, b, false)
}

// wantAtomic waits for the answer to an atomic.
func wantAtomic(s *stage.Scene, psn rocev2.PSN, original uint64) {
	s.Expect(stage.Want{Text: fmt.Sprintf("RC_ATOMIC_ACKNOWLEDGE psn=%#x msn=%d original=%d", uint32(psn), s.MSN(), original), Fits: func(p *rocev2.Packet) string {
		switch {
		case p.BTH.Opcode != rocev2.RCAtomicAcknowledge || p.BTH.PSN != psn || !p.AETH.Syndrome.IsACK():
			return stage.Another
		case p.AtomicAck.Original != original:
			return "another original value"
		case p.AETH.MSN != s.MSN():
			return fmt.Sprintf("its MSN is not %d", s.MSN())
		}
		return ""
	}}, psn)
}

// atomic makes an atomic on the word at the beginning of the memory.
func atomic(s *stage.Scene, op rocev2.Opcode, swapAdd, compare uint64) *rocev2.Packet {
	p := s.Request(op, nil)
	p.AtomicETH.SwapAdd, p.AtomicETH.Compare = swapAdd, compare
	return p
}

// storeWord writes the word that atomics work on, in the byte order of the
// target.
func storeWord(s *stage.Scene, v uint64) { s.Fill(0, binary.LittleEndian.AppendUint64(nil, v)) }

func wantWord(s *stage.Scene, v uint64) {
	s.WantMemory(0, binary.LittleEndian.AppendUint64(nil, v), "the word")
}

func fetchAdd(s *stage.Scene) {
	s.Connect(stage.Options{})
	storeWord(s, 40)
	p := atomic(s, rocev2.RCFetchAdd, 2, 0)
	s.Send(p)
	s.SetMSN(1)
	wantAtomic(s, p.BTH.PSN, 40)
	wantWord(s, 42)
	p = atomic(s, rocev2.RCFetchAdd, 1<<64-43, 0)
	s.Send(p)
	s.SetMSN(2)
	wantAtomic(s, p.BTH.PSN, 42)
	wantWord(s, 1<<64-1)
	p = atomic(s, rocev2.RCFetchAdd, 3, 0)
	s.Send(p)
	s.SetMSN(3)
	wantAtomic(s, p.BTH.PSN, 1<<64-1)
	wantWord(s, 2)
}

func compareSwap(s *stage.Scene) {
	s.Connect(stage.Options{})
	storeWord(s, 40)
	p := atomic(s, rocev2.RCCompareSwap, 7, 41)
	s.Send(p)
	s.SetMSN(1)
	wantAtomic(s, p.BTH.PSN, 40)
	wantWord(s, 40)
	p = atomic(s, rocev2.RCCompareSwap, 7, 40)
	s.Send(p)
	s.SetMSN(2)
	wantAtomic(s, p.BTH.PSN, 40)
	wantWord(s, 7)
}

func atomicMSN(s *stage.Scene) {
	s.Connect(stage.Options{})
	s.SetMSN(1)
	wantRead(s, read(s, 0, 8).BTH.PSN, make([]byte, 8), false)
	p := atomic(s, rocev2.RCFetchAdd, 1, 0)
	s.Send(p)
	s.SetMSN(2)
	wantAtomic(s, p.BTH.PSN, 0)
	s.Send(s.Message(stage.Writes, stage.Data(8, 1))...)
	s.WantAck(1)
}

// wantEmptyRead waits for the answer to ATOMIC WRITE or FLUSH.
func wantEmptyRead(s *stage.Scene, psn rocev2.PSN) {
	s.SetMSN(s.MSN().Next())
	wantRead(s, psn, nil, false)
}

func atomicWrite(s *stage.Scene) {
	s.Connect(stage.Options{})
	b := stage.Data(8, 3)
	p := s.Request(rocev2.RCAtomicWrite, b)
	s.Send(p)
	wantEmptyRead(s, p.BTH.PSN)
	s.WantMemory(0, append(b, make([]byte, 8)...), "the word, and nothing after it")
}

func flushGlobal(s *stage.Scene) {
	s.Connect(stage.Options{})
	p := s.Request(rocev2.RCFlush, nil)
	p.FETH.Type, p.RETH.Length = rocev2.FlushGlobal, 64
	s.Send(p)
	wantEmptyRead(s, p.BTH.PSN)
}
