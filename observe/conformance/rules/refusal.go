package rules

import (
	"fmt"

	"github.com/gosoftroce/rocev2/observe/conformance/stage"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// lengthRules are those of payloads that do not fit the path MTU or the RETH.
func lengthRules() []Rule {
	inv := rocev2.NAKInvalidRequest
	return []Rule{
		{ID: "length/first-short", Text: "A FIRST that is shorter than the path MTU is an invalid request", Spec: "9.7.4.1.6", Script: func(s *stage.Scene) {
			s.Connect(stage.Options{})
			p := s.Request(rocev2.RCWriteFirst, stage.Data(stage.MTU-4, 1))
			p.RETH.Length = 3 * stage.MTU
			refused(s, p, inv)
		}},
		{ID: "length/first-whole", Text: "A FIRST that is shorter than the path MTU is an invalid request also if it has all of the WRITE", Spec: "9.7.4.1.6", Script: func(s *stage.Scene) {
			s.Connect(stage.Options{})
			refused(s, s.Request(rocev2.RCWriteFirst, stage.Data(64, 1)), inv)
		}},
		{ID: "length/middle-short", Text: "A MIDDLE that is shorter than the path MTU is an invalid request", Spec: "9.7.4.1.6", Script: func(s *stage.Scene) {
			s.Connect(stage.Options{Receives: 1})
			s.Send(s.Request(rocev2.RCSendFirst, stage.Data(stage.MTU, 1)))
			refused(s, s.Request(rocev2.RCSendMiddle, stage.Data(stage.MTU-4, 1)), inv)
		}},
		{ID: "length/last-empty", Text: "A LAST without data is an invalid request", Spec: "9.7.4.1.6", Script: func(s *stage.Scene) {
			s.Connect(stage.Options{Receives: 1})
			s.Send(s.Request(rocev2.RCSendFirst, stage.Data(stage.MTU, 1)))
			refused(s, s.Request(rocev2.RCSendLast, nil), inv)
		}},
		{ID: "length/only-long", Text: "An ONLY that is longer than the path MTU is an invalid request", Spec: "9.7.4.1.6", Script: func(s *stage.Scene) {
			s.Connect(stage.Options{Receives: 1})
			refused(s, s.Request(rocev2.RCSendOnly, stage.Data(stage.MTU+4, 1)), inv)
		}},
		{ID: "length/write-less", Text: "A WRITE that ends before the length of its RETH is an invalid request", Spec: "9.7.4.1.6", Script: func(s *stage.Scene) {
			s.Connect(stage.Options{})
			all := s.Message(stage.Writes, stage.Data(2*stage.MTU, 1))
			all[0].RETH.Length += 8
			s.Send(all[0])
			refused(s, all[1], inv)
		}},
		{ID: "length/write-more", Text: "A WRITE of one packet with more data than its RETH says is an invalid request", Spec: "9.7.4.1.6", Script: func(s *stage.Scene) {
			s.Connect(stage.Options{})
			p := s.Request(rocev2.RCWriteOnly, stage.Data(64, 1))
			p.RETH.Length = 60
			refused(s, p, inv)
			s.WantMemory(60, make([]byte, 4), "nothing is written beyond the length")
		}},
		{ID: "length/write-endless", Text: "A WRITE that goes on after the length of its RETH is an invalid request", Spec: "9.7.4.1.6", Script: writeEndless},
		{ID: "length/beyond-2g", Text: "A READ of more than 2^31 bytes is an invalid request", Spec: "9.7.4.1.6", Script: func(s *stage.Scene) {
			s.Connect(stage.Options{})
			p := s.Request(rocev2.RCReadRequest, nil)
			p.RETH.Length = 1<<31 + 1
			refused(s, p, inv)
		}},
	}
}

// keyRules are those of keys, regions and bounds.
func keyRules() []Rule {
	return []Rule{
		{ID: "key/unknown", Text: "A WRITE with an unknown key is a remote access error", Spec: "9.7.4.1.5", Script: func(s *stage.Scene) { badKey(s, writeOne, func(r *rocev2.RETH) { r.RKey ^= 0x5a5a5a00 }) }},
		{ID: "key/unknown-read", Bare: true, Text: "A READ with an unknown key is a remote access error", Spec: "9.7.4.1.5", Script: func(s *stage.Scene) { badKey(s, readOne, func(r *rocev2.RETH) { r.RKey ^= 0x5a5a5a00 }) }},
		{ID: "key/wrong-byte", Text: "A key whose low byte is wrong is unknown", Spec: "9.7.4.1.5, 10.6.3", Script: func(s *stage.Scene) { badKey(s, writeOne, func(r *rocev2.RETH) { r.RKey ^= 0x5a }) }},
		{ID: "key/domain", Text: "A key of another protection domain is a remote access error", Spec: "9.7.4.1.5", Script: func(s *stage.Scene) { badKey(s, readOne, func(r *rocev2.RETH) { r.RKey = s.Pair().Foreign }) }},
		{ID: "key/rights", Text: "A WRITE into a region that may be read only is a remote access error", Spec: "9.7.4.1.5", Script: func(s *stage.Scene) { badKey(s, writeOne, func(r *rocev2.RETH) { r.RKey = s.Pair().ReadOnly }) }},
		{ID: "key/read-only-read", Text: "A region that may be read only can be read", Spec: "9.7.4.1.5", Script: readReadOnly},
		{ID: "key/beyond", Text: "A READ that ends one byte after the region is a remote access error", Spec: "9.7.4.1.5", Script: func(s *stage.Scene) {
			badKey(s, readOne, func(r *rocev2.RETH) { r.VA += stage.MemoryLen - uint64(r.Length) + 1 })
		}},
		{ID: "key/before", Text: "A WRITE that begins one byte before the region is a remote access error", Spec: "9.7.4.1.5", Script: func(s *stage.Scene) { badKey(s, writeOne, func(r *rocev2.RETH) { r.VA-- }) }},
		{ID: "key/wrap", Bare: true, Text: "An address and a length whose sum wraps around is a remote access error", Spec: "9.7.4.1.5", Script: func(s *stage.Scene) { badKey(s, readOne, func(r *rocev2.RETH) { r.VA = 1<<64 - 4 }) }},
		{ID: "key/straddle", Text: "Of a WRITE of several packets that ends after the region nothing is written", Spec: "9.7.4.1.5", Script: straddle},
		{ID: "key/end", Text: "The last byte of a region can be written", Spec: "9.7.4.1.5", Script: lastByte},
	}
}

// refusalRules are those of rights of the queue pair, and of what comes before
// and after a refusal.
func refusalRules() []Rule {
	inv, acc := rocev2.NAKInvalidRequest, rocev2.NAKRemoteAccess
	return []Rule{
		{ID: "right/write", Text: "A WRITE is an invalid request if the queue pair has no right to it", Spec: "9.7.4.1.5", Script: func(s *stage.Scene) { noRight(s, rocev2.RCWriteOnly, "lra") }},
		{ID: "right/read", Text: "A READ is an invalid request if the queue pair has no right to it", Spec: "9.7.4.1.5", Script: func(s *stage.Scene) { noRight(s, rocev2.RCReadRequest, "lwa") }},
		{ID: "right/atomic", Text: "An atomic is an invalid request if the queue pair has no right to it", Spec: "9.7.4.1.5", Needs: needsAtomic, Script: func(s *stage.Scene) { noRight(s, rocev2.RCFetchAdd, "lrw") }},
		{ID: "right/send", Text: "A SEND needs no right", Spec: "9.7.4.1.5", Script: func(s *stage.Scene) {
			s.Connect(stage.Options{Access: "l", Receives: 1})
			s.Send(s.Message(stage.Sends, stage.Data(9, 1))...)
			s.WantAck(1)
			s.WantRecv(0, stage.Data(9, 1))
		}},
		{ID: "depth/none", Text: "A READ is an invalid request if none was agreed", Spec: "9.7.4.1.4", Script: func(s *stage.Scene) {
			s.Connect(stage.Options{DestRd: -1})
			p := s.Request(rocev2.RCReadRequest, nil)
			p.RETH.Length = 8
			refused(s, p, inv)
		}},
		{ID: "atomic/unaligned", Text: "An atomic on an address that is no multiple of 8 is an invalid request", Spec: "9.4.5.1", Needs: needsAtomic, Script: func(s *stage.Scene) {
			s.Connect(stage.Options{})
			p := atomic(s, rocev2.RCFetchAdd, 1, 0)
			p.AtomicETH.VA += 4
			refused(s, p, inv)
			s.WantMemory(0, make([]byte, 16), "nothing is written")
		}},
		{ID: "atomic/key", Text: "An atomic with a wrong key is a remote access error", Spec: "9.7.4.1.5", Needs: needsAtomic, Script: func(s *stage.Scene) {
			s.Connect(stage.Options{})
			p := atomic(s, rocev2.RCCompareSwap, 1, 0)
			p.AtomicETH.RKey = s.Pair().ReadOnly
			refused(s, p, acc)
		}},
		{ID: "refused/after", Text: "After a refusal nothing more is executed", Spec: "10.3.1.7", Script: afterRefusal},
		{ID: "refused/before", Text: "What came before a refused request is executed, and counts in the NAK", Spec: "9.7.5.2", Script: beforeRefusal},
		{ID: "refused/again-read", Bare: true, Severity: Should, Text: "A refused READ that comes again gets its NAK again", Spec: "9.7.5.2", Script: func(s *stage.Scene) {
			s.Connect(stage.Options{})
			p := readOne(s)
			p.RETH.RKey ^= 0x5a5a5a00
			for range 2 {
				s.Send(p)
				s.WantNAK(p.BTH.PSN, rocev2.NAKRemoteAccess)
			}
		}},
		{ID: "refused/again", Severity: Should, Text: "A refused request that comes again gets its NAK again: the first may have been lost", Spec: "9.7.5.2", Script: refusedAgain},
	}
}

// writeEndless sends a MIDDLE that has all that was left, and a LAST. Either
// may be refused.
func writeEndless(s *stage.Scene) {
	s.Connect(stage.Options{})
	p := s.Request(rocev2.RCWriteFirst, stage.Data(stage.MTU, 1))
	p.RETH.Length = 2 * stage.MTU
	middle, last := s.Request(rocev2.RCWriteMiddle, stage.Data(stage.MTU, 2)), s.Request(rocev2.RCWriteLast, stage.Data(8, 3))
	s.Send(p, middle, last)
	s.Expect(stage.Want{Text: fmt.Sprintf("NAK invalid request psn=%#x or psn=%#x", uint32(middle.BTH.PSN), uint32(last.BTH.PSN)), Fits: func(a *rocev2.Packet) string {
		if stage.NAK(middle.BTH.PSN, rocev2.NAKInvalidRequest).Fits(a) == "" {
			return ""
		}
		return stage.NAK(last.BTH.PSN, rocev2.NAKInvalidRequest).Fits(a)
	}})
	s.WantMemory(2*stage.MTU, make([]byte, 8), "nothing is written beyond the length")
}

func writeOne(s *stage.Scene) *rocev2.Packet { return s.Request(rocev2.RCWriteOnly, stage.Data(64, 1)) }

func readOne(s *stage.Scene) *rocev2.Packet {
	p := s.Request(rocev2.RCReadRequest, nil)
	p.RETH.Length = 64
	return p
}

// badKey sends a request whose RETH is spoilt.
func badKey(s *stage.Scene, make func(*stage.Scene) *rocev2.Packet, spoil func(*rocev2.RETH)) {
	s.Connect(stage.Options{})
	p := make(s)
	spoil(&p.RETH)
	refused(s, p, rocev2.NAKRemoteAccess)
}

func readReadOnly(s *stage.Scene) {
	s.Connect(stage.Options{})
	s.Fill(0, stage.Data(64, 1))
	p := readOne(s)
	p.RETH.RKey = s.Pair().ReadOnly
	s.Send(p)
	s.SetMSN(1)
	wantRead(s, p.BTH.PSN, stage.Data(64, 1), false)
}

func straddle(s *stage.Scene) {
	s.Connect(stage.Options{})
	all := s.Message(stage.Writes, stage.Data(3*stage.MTU, 1))
	const room = 2*stage.MTU + 8
	all[0].RETH.VA += stage.MemoryLen - room
	s.Send(all...)
	s.WantNAK(all[0].BTH.PSN, rocev2.NAKRemoteAccess)
	s.WantMemory(stage.MemoryLen-room, make([]byte, room), "nothing is written")
}

func lastByte(s *stage.Scene) {
	s.Connect(stage.Options{})
	p := s.Request(rocev2.RCWriteOnly, []byte{0x77})
	p.RETH.VA += stage.MemoryLen - 1
	s.Send(p)
	s.WantAck(1)
	s.WantMemory(stage.MemoryLen-1, []byte{0x77}, "the WRITE")
}

func noRight(s *stage.Scene, op rocev2.Opcode, access string) {
	s.Connect(stage.Options{Access: access})
	var b []byte
	if op == rocev2.RCWriteOnly {
		b = stage.Data(8, 1)
	}
	p := s.Request(op, b)
	p.RETH.Length = 8
	refused(s, p, rocev2.NAKInvalidRequest)
	s.WantMemory(0, make([]byte, 8), "nothing is written")
}

func afterRefusal(s *stage.Scene) {
	s.Connect(stage.Options{Receives: 1})
	p := writeOne(s)
	p.RETH.RKey = s.Pair().ReadOnly
	s.Send(p)
	s.WantNAK(p.BTH.PSN, rocev2.NAKRemoteAccess)
	s.Send(keepPSN(s, s.Request(rocev2.RCWriteOnly, stage.Data(32, 9))))
	q := keepPSN(s, s.Request(rocev2.RCWriteOnly, stage.Data(32, 9)))
	q.BTH.PSN = p.BTH.PSN
	s.Send(q)
	// It may tell the requester again.
	if a := s.Next(s.Times().Quiet); a != nil {
		if wrong := stage.NAK(p.BTH.PSN, rocev2.NAKRemoteAccess).Fits(a); wrong != "" {
			s.Fail("no packet, or the NAK again", stage.Describe(a))
		}
	}
	s.WantMemory(0, make([]byte, 32), "the WRITE after the refused one is not executed")
	s.WantCompletion(stage.FirstRecv, stage.StatusFlush)
}

func beforeRefusal(s *stage.Scene) {
	s.Connect(stage.Options{})
	b := stage.Data(24, 1)
	ok, bad := s.Request(rocev2.RCWriteOnly, b), writeOne(s)
	bad.RETH.RKey = s.Pair().ReadOnly
	s.Send(ok, bad)
	s.Expect(stage.Want{Text: fmt.Sprintf("NAK remote access error psn=%#x msn=1", uint32(bad.BTH.PSN)), Fits: func(p *rocev2.Packet) string {
		if wrong := stage.NAK(bad.BTH.PSN, rocev2.NAKRemoteAccess).Fits(p); wrong != "" {
			return wrong
		}
		if p.AETH.MSN != 1 {
			return "its MSN is not 1"
		}
		return ""
	}}, bad.BTH.PSN)
	s.WantMemory(0, b, "the WRITE before the refused one")
}

func refusedAgain(s *stage.Scene) {
	s.Connect(stage.Options{})
	p := writeOne(s)
	p.RETH.RKey = s.Pair().ReadOnly
	for range 2 {
		s.Send(p)
		s.WantNAK(p.BTH.PSN, rocev2.NAKRemoteAccess)
	}
}

// flush sends a FLUSH as the peer takes it: Linux has an ICRC of its own, which
// rule flush/global finds out about.
func flush(s *stage.Scene, p *rocev2.Packet) {
	t := s.Target()
	path := s.Path(transport.Path{KernelPeer: t.Behaves() == stage.LinuxRXE})
	s.Emit(p.AppendTo(nil), stage.Describe(p), 0, path)
}
