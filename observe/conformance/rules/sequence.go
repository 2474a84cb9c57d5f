package rules

import (
	"fmt"

	"github.com/gosoftroce/rocev2/observe/conformance/stage"
	"github.com/gosoftroce/rocev2/rocev2"
)

// sequenceRules are those of PSNs: gaps, duplicates, replays, and the order of
// opcodes.
func sequenceRules() []Rule {
	return []Rule{
		{ID: "psn/gap", Bare: true, Text: "A request after a gap gets NAK PSN sequence error with the PSN that is expected, and is not executed", Spec: "9.7.4.1.2, 9.7.5.2", Script: psnGap},
		{ID: "psn/gap-once", Bare: true, Text: "Further requests after the same gap get no other NAK than that", Spec: "9.7.4.1.2", Script: psnGapOnce},
		{ID: "psn/gap-again", Bare: true, Severity: Should, Text: "If what comes again has the same gap, there is another NAK: the missing packet was lost twice", Spec: "9.7.5.2", Script: psnGapAgain},
		{ID: "psn/wrap", Text: "After PSN 0xffffff comes 0", Spec: "9.7.2", Script: psnWrap},
		{ID: "psn/wrap-read", Text: "The response to a READ crosses PSN 0xffffff", Spec: "9.7.2, 9.7.5.1.5", Script: psnWrapRead},
		{ID: "psn/stale", Bare: true, Text: "A duplicate before anything was executed is not answered with a PSN that was never received", Spec: "9.7.5.1.4", Script: staleFirst},
		{ID: "psn/far", Text: "A PSN that is 2^22 ahead is a gap, and one that is 2^22 back a duplicate", Spec: "9.7.2", Script: psnFar},
		{ID: "duplicate/send", Text: "A duplicate SEND is acknowledged again and takes no receive", Spec: "9.7.5.1.4", Script: duplicateSend},
		{ID: "duplicate/write", Bare: true, Text: "A duplicate WRITE is acknowledged again and does not write", Spec: "9.7.5.1.4", Script: duplicateWrite},
		{ID: "duplicate/noack", Bare: true, Text: "The acknowledgement of a duplicate has the current message count", Spec: "9.7.5.1.4, 9.7.7.1", Script: duplicateMSN},
		{ID: "duplicate/read", Text: "A duplicate READ is executed again", Spec: "9.7.5.1.5", Script: func(s *stage.Scene) { duplicateRead(s, 0) }},
		{ID: "duplicate/read-part", Text: "A READ may be asked for again from a packet in the middle", Spec: "9.7.5.1.5", Script: func(s *stage.Scene) { duplicateRead(s, 2) }},
		{ID: "duplicate/read-twice", Severity: Should, Text: "A READ that was repeated from the middle can be repeated from the start", Spec: "9.7.5.1.5", Script: duplicateReadTwice},
		{ID: "duplicate/read-zero", Bare: true, Text: "A READ of length 0 is answered again, whatever its key", Spec: "9.7.4.1.5, 9.7.5.1.5", Script: duplicateReadZero},
		{ID: "duplicate/read-after-empty", Text: "A READ is answered again after a WRITE of length 0", Spec: "9.7.5.1.5", Script: duplicateAfterEmpty},
		{ID: "duplicate/atomic", Text: "A duplicate atomic gets the stored result and is not executed again", Spec: "9.7.5.1.5", Needs: needsAtomic, Script: duplicateAtomic},
		{ID: "duplicate/atomics-depth", Text: "As many results of atomics are kept as READs and atomics were agreed", Spec: "9.7.5.1.5", Needs: needsAtomic, Script: duplicateAtomics},
		{ID: "duplicate/atomic-forgotten", Severity: Should, Text: "A duplicate atomic whose result is not kept any more gets NAK invalid request, not silence", Spec: "9.7.5.1.5", Needs: needsAtomic, Script: forgottenAtomic},
		{ID: "duplicate/atomic-write", Text: "A duplicate ATOMIC WRITE is answered again and does not write", Spec: "A19", Needs: []string{"rc", "atomic-write"}, Script: duplicateAtomicWrite},
		{ID: "duplicate/flush", Text: "A duplicate FLUSH is answered again", Spec: "A19", Needs: []string{"rc", "flush"}, Script: duplicateFlush},
	}
}

// opcodeRules are those of the order of packets in a message.
func opcodeRules() []Rule {
	return []Rule{
		{ID: "opcode/middle-first", Bare: true, Text: "A MIDDLE without a FIRST is an invalid request", Spec: "9.7.4.1.3", Script: func(s *stage.Scene) {
			s.Connect(stage.Options{Receives: 1})
			refused(s, s.Request(rocev2.RCSendMiddle, stage.Data(stage.MTU, 1)), rocev2.NAKInvalidRequest)
		}},
		{ID: "opcode/last-first", Bare: true, Text: "A LAST without a FIRST is an invalid request", Spec: "9.7.4.1.3", Script: func(s *stage.Scene) {
			s.Connect(stage.Options{Receives: 1})
			refused(s, s.Request(rocev2.RCWriteLast, stage.Data(8, 1)), rocev2.NAKInvalidRequest)
		}},
		{ID: "opcode/only-inside", Text: "An ONLY inside a message is an invalid request", Spec: "9.7.4.1.3", Script: func(s *stage.Scene) {
			s.Connect(stage.Options{Receives: 2})
			s.Send(s.Request(rocev2.RCSendFirst, stage.Data(stage.MTU, 1)))
			refused(s, s.Request(rocev2.RCSendOnly, stage.Data(8, 1)), rocev2.NAKInvalidRequest)
		}},
		{ID: "opcode/mixed", Text: "A MIDDLE of a WRITE inside a SEND is an invalid request", Spec: "9.7.4.1.3", Script: func(s *stage.Scene) {
			s.Connect(stage.Options{Receives: 2})
			s.Send(s.Request(rocev2.RCSendFirst, stage.Data(stage.MTU, 1)))
			refused(s, s.Request(rocev2.RCWriteMiddle, stage.Data(stage.MTU, 1)), rocev2.NAKInvalidRequest)
		}},
		{ID: "opcode/read-inside", Text: "A READ inside a message is an invalid request", Spec: "9.7.4.1.3", Script: func(s *stage.Scene) {
			s.Connect(stage.Options{Receives: 2})
			s.Send(s.Request(rocev2.RCSendFirst, stage.Data(stage.MTU, 1)))
			p := s.Request(rocev2.RCReadRequest, nil)
			p.RETH.Length = 8
			refused(s, p, rocev2.NAKInvalidRequest)
		}},
	}
}

// refused sends a request that must be refused: a NAK with its PSN, and the
// queue pair is in error.
func refused(s *stage.Scene, p *rocev2.Packet, codes ...rocev2.Syndrome) {
	s.Send(p)
	s.WantNAK(p.BTH.PSN, codes...)
	s.WantState("ERR", "the request was refused")
}

func psnGap(s *stage.Scene) {
	s.Connect(stage.Options{})
	s.Send(s.Message(stage.Writes, stage.Data(8, 1))...)
	s.WantAck(1)
	lost, after := s.Request(rocev2.RCWriteOnly, stage.Data(8, 2)), s.Request(rocev2.RCWriteOnly, stage.Data(16, 3))
	s.Send(after)
	if p := s.WantNAK(lost.BTH.PSN, rocev2.NAKSequence); p != nil && p.AETH.MSN != s.MSN() {
		s.Fail(fmt.Sprintf("a NAK with msn=%d", s.MSN()), stage.Describe(p))
	}
	s.WantMemory(0, append(stage.Data(8, 1), make([]byte, 8)...), "the WRITE after the gap has no effect")
	s.WantState("RTS", "a gap is no error")
	s.Send(lost, after)
	s.WantAck(2)
	s.WantMemory(0, stage.Data(16, 3), "the WRITE after the gap")
}

func psnGapOnce(s *stage.Scene) {
	s.Connect(stage.Options{})
	lost := s.Request(rocev2.RCWriteOnly, stage.Data(8, 2))
	for i := range 8 {
		s.Send(s.Request(rocev2.RCWriteOnly, stage.Data(8, i)))
	}
	s.WantNAK(lost.BTH.PSN, rocev2.NAKSequence)
	s.Quiet("the gap was told")
	s.SetPSN(lost.BTH.PSN.Next())
	s.Send(lost)
	s.WantAck(1)
}

func psnGapAgain(s *stage.Scene) {
	s.Connect(stage.Options{})
	lost, after := s.Request(rocev2.RCWriteOnly, stage.Data(8, 2)), s.Request(rocev2.RCWriteOnly, stage.Data(16, 3))
	for range 2 {
		s.Send(after)
		s.WantNAK(lost.BTH.PSN, rocev2.NAKSequence)
	}
	s.Send(lost, after)
	s.WantAck(2)
}

func psnWrap(s *stage.Scene) {
	s.Connect(stage.Options{PSN: 0xfffffd, Receives: 1})
	for i := range 5 {
		s.Send(s.Request(rocev2.RCWriteOnly, stage.Data(8, i)))
		s.WantAck(1)
	}
	b := stage.Data(2*stage.MTU, 3)
	s.Send(s.Message(stage.Sends, b)...)
	s.WantAck(1)
	s.WantRecv(0, b)
}

func psnWrapRead(s *stage.Scene) {
	s.Connect(stage.Options{PSN: 0xfffffe})
	b := stage.Data(4*stage.MTU, 3)
	s.Fill(0, b)
	p := read(s, 0, len(b))
	s.SetMSN(1)
	wantRead(s, p.BTH.PSN, b, false)
	q := *p
	s.Send(&q) // again, now that its PSNs lie on both sides
	wantRead(s, p.BTH.PSN, b, false)
	s.Alive()
}

func staleFirst(s *stage.Scene) {
	s.Connect(stage.Options{})
	p := s.Request(rocev2.RCWriteOnly, stage.Data(8, 1))
	s.SetPSN(p.BTH.PSN)
	p.BTH.PSN = p.BTH.PSN.Add(-3)
	s.Send(p)
	if a := s.Next(s.Times().Quiet); a != nil {
		// That the PSN before the first is there is known to both.
		before := s.PSN().Add(-1)
		if a.BTH.Opcode != rocev2.RCAcknowledge || !a.AETH.Syndrome.IsACK() || a.BTH.PSN != before && a.BTH.PSN != p.BTH.PSN || a.AETH.MSN != 0 {
			s.Fail(fmt.Sprintf("no packet, or ACK psn=%#x msn=0", uint32(before)), stage.Describe(a))
		}
	}
	s.Alive()
}

func psnFar(s *stage.Scene) {
	s.Connect(stage.Options{PSN: 0x800000})
	s.Send(s.Message(stage.Writes, stage.Data(8, 1))...)
	s.WantAck(1)
	next := s.PSN()
	p := s.Request(rocev2.RCWriteOnly, stage.Data(8, 2))
	p.BTH.PSN = next.Add(1 << 22)
	s.Send(p)
	s.WantNAK(next, rocev2.NAKSequence)
	s.SetPSN(next)
	s.Send(s.Message(stage.Writes, stage.Data(8, 3))...)
	s.WantAck(1)
	q := s.Request(rocev2.RCWriteOnly, stage.Data(8, 4))
	s.SetPSN(q.BTH.PSN)
	q.BTH.PSN = next.Add(-1 << 22)
	s.Send(q)
	for range 2 {
		if a := s.Next(s.Times().Quiet); a != nil && (a.BTH.Opcode != rocev2.RCAcknowledge || a.AETH.Syndrome.IsNAK()) {
			s.Fail("no packet, or an ACK", stage.Describe(a))
		}
	}
	s.WantMemory(0, stage.Data(8, 3), "the duplicate is not executed")
	s.Alive()
}

// wantDuplicateAck waits for the acknowledgement of a duplicate: of its PSN, or
// of the latest in order.
func wantDuplicateAck(s *stage.Scene, psn rocev2.PSN) {
	last := s.PSN().Add(-1)
	s.Expect(stage.Want{Text: fmt.Sprintf("an ACK from psn=%#x to psn=%#x, msn=%d", uint32(psn), uint32(last), s.MSN()), Fits: func(p *rocev2.Packet) string {
		switch {
		case p.BTH.Opcode != rocev2.RCAcknowledge || !p.AETH.Syndrome.IsACK() || p.BTH.PSN.Before(psn) || p.BTH.PSN.After(last):
			return stage.Another
		case p.AETH.MSN != s.MSN():
			return fmt.Sprintf("its MSN is not %d", s.MSN())
		}
		return ""
	}})
}

func duplicateSend(s *stage.Scene) {
	s.Connect(stage.Options{Receives: 2})
	b := stage.Data(30, 1)
	p := s.Request(rocev2.RCSendOnly, b)
	s.Send(p)
	s.WantAck(1)
	s.WantRecv(0, b)
	s.Send(p)
	wantDuplicateAck(s, p.BTH.PSN)
	s.NoCompletion("a duplicate takes no receive")
	s.Send(s.Message(stage.Sends, stage.Data(31, 2))...)
	s.WantAck(1)
	s.WantRecv(1, stage.Data(31, 2))
}

func duplicateWrite(s *stage.Scene) {
	s.Connect(stage.Options{})
	p := s.Request(rocev2.RCWriteOnly, stage.Data(16, 1))
	s.Send(p)
	s.WantAck(1)
	s.Send(s.Message(stage.Writes, stage.Data(16, 2))...)
	s.WantAck(1)
	s.Send(p)
	wantDuplicateAck(s, p.BTH.PSN)
	s.WantMemory(0, stage.Data(16, 2), "the duplicate does not write")
	s.Alive()
}

func duplicateMSN(s *stage.Scene) {
	s.Connect(stage.Options{})
	var first *rocev2.Packet
	for i := range 3 {
		p := s.Request(rocev2.RCWriteOnly, stage.Data(8, i))
		if first == nil {
			first = p
		}
		s.Send(p)
		s.WantAck(1)
	}
	s.Send(first)
	wantDuplicateAck(s, first.BTH.PSN)
	s.Alive()
}

// again is a READ of the same bytes from packet i on.
func again(p *rocev2.Packet, i, mtu int) *rocev2.Packet {
	q := *p
	q.BTH.PSN = p.BTH.PSN.Add(i)
	q.RETH.VA += uint64(i * mtu)
	q.RETH.Length -= uint32(i * mtu)
	return &q
}

// duplicateRead asks for a READ, and again from packet i.
func duplicateRead(s *stage.Scene, i int) {
	s.Connect(stage.Options{})
	b := stage.Data(4*stage.MTU+9, 3)
	s.Fill(0, b)
	p := read(s, 0, len(b))
	s.SetMSN(1)
	wantRead(s, p.BTH.PSN, b, false)
	q := again(p, i, stage.MTU)
	s.Send(q)
	wantRead(s, q.BTH.PSN, b[i*stage.MTU:], i > 0)
	s.Alive()
}

func duplicateReadTwice(s *stage.Scene) {
	s.Connect(stage.Options{})
	b := stage.Data(4*stage.MTU+9, 3)
	s.Fill(0, b)
	p := read(s, 0, len(b))
	s.SetMSN(1)
	wantRead(s, p.BTH.PSN, b, false)
	for _, i := range []int{3, 1, 0} {
		q := again(p, i, stage.MTU)
		s.Send(q)
		wantRead(s, q.BTH.PSN, b[i*stage.MTU:], i > 0)
	}
	s.Alive()
}

func duplicateReadZero(s *stage.Scene) {
	s.Connect(stage.Options{})
	p := s.Request(rocev2.RCReadRequest, nil)
	p.RETH = anyRETH
	s.SetMSN(1)
	for range 2 {
		s.Send(p)
		wantRead(s, p.BTH.PSN, nil, false)
	}
	s.Alive()
}

func duplicateAfterEmpty(s *stage.Scene) {
	s.Connect(stage.Options{})
	b := stage.Data(100, 3)
	s.Fill(0, b)
	p := read(s, 0, len(b))
	s.SetMSN(1)
	wantRead(s, p.BTH.PSN, b, false)
	empty := s.Request(rocev2.RCWriteOnly, nil)
	empty.RETH = rocev2.RETH{}
	s.Send(empty)
	s.WantAck(1)
	s.Send(p)
	wantRead(s, p.BTH.PSN, b, false)
	s.Alive()
}

func duplicateAtomic(s *stage.Scene) {
	s.Connect(stage.Options{})
	storeWord(s, 5)
	p := atomic(s, rocev2.RCFetchAdd, 3, 0)
	s.SetMSN(1)
	for range 3 {
		s.Send(p)
		wantAtomic(s, p.BTH.PSN, 5)
	}
	wantWord(s, 8)
	s.Alive()
}

func duplicateAtomics(s *stage.Scene) {
	s.Connect(stage.Options{})
	var all []*rocev2.Packet
	for i := range s.Options().DestRd {
		p := atomic(s, rocev2.RCFetchAdd, 1, 0)
		all = append(all, p)
		s.Send(p)
		s.SetMSN(s.MSN().Next())
		wantAtomic(s, p.BTH.PSN, uint64(i))
	}
	for i, p := range all {
		s.Send(p)
		wantAtomic(s, p.BTH.PSN, uint64(i))
	}
	wantWord(s, uint64(len(all)))
	s.Alive()
}

func forgottenAtomic(s *stage.Scene) {
	s.Connect(stage.Options{DestRd: 1})
	first := atomic(s, rocev2.RCFetchAdd, 1, 0)
	for i := range 40 { // more than any responder keeps that was asked for one
		p := first
		if i > 0 {
			p = atomic(s, rocev2.RCFetchAdd, 1, 0)
		}
		s.Send(p)
		s.SetMSN(s.MSN().Next())
		wantAtomic(s, p.BTH.PSN, uint64(i))
	}
	s.Send(first)
	s.Expect(stage.Want{Text: fmt.Sprintf("NAK invalid request psn=%#x, or the result", uint32(first.BTH.PSN)), Fits: func(p *rocev2.Packet) string {
		if p.BTH.Opcode == rocev2.RCAtomicAcknowledge && p.BTH.PSN == first.BTH.PSN && p.AtomicAck.Original == 0 {
			return ""
		}
		return stage.NAK(first.BTH.PSN, rocev2.NAKInvalidRequest).Fits(p)
	}})
	wantWord(s, 40)
}

func duplicateAtomicWrite(s *stage.Scene) {
	s.Connect(stage.Options{})
	p := s.Request(rocev2.RCAtomicWrite, stage.Data(8, 3))
	s.Send(p)
	wantEmptyRead(s, p.BTH.PSN)
	s.Fill(0, stage.Data(8, 4))
	s.Send(p)
	wantRead(s, p.BTH.PSN, nil, false)
	s.WantMemory(0, stage.Data(8, 4), "the duplicate does not write")
	s.Alive()
}

func duplicateFlush(s *stage.Scene) {
	s.Connect(stage.Options{})
	p := s.Request(rocev2.RCFlush, nil)
	p.FETH.Type, p.RETH.Length = rocev2.FlushGlobal, 64
	s.SetMSN(1)
	for range 2 {
		flush(s, p)
		wantRead(s, p.BTH.PSN, nil, false)
	}
	s.Alive()
}
