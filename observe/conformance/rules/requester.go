package rules

import (
	"encoding/binary"
	"fmt"

	"github.com/gosoftroce/rocev2/observe/conformance/stage"
	"github.com/gosoftroce/rocev2/rocev2"
)

// requesterRules are those of what the target asks this side.
func requesterRules() []Rule {
	inv, acc, op := rocev2.NAKInvalidRequest, rocev2.NAKRemoteAccess, rocev2.NAKRemoteOperational
	return []Rule{
		{ID: "requester/send", Text: "A SEND is cut into FIRST, MIDDLE and LAST, each full but the last; the last asks for an acknowledgement", Spec: "9.2.1, 9.7.3.1", Script: func(s *stage.Scene) { asksSend(s, 2*stage.MTU+9) }},
		{ID: "requester/send-only", Text: "A SEND of a path MTU is one packet", Spec: "9.2.1", Script: func(s *stage.Scene) { asksSend(s, stage.MTU) }},
		{ID: "requester/send-zero", Text: "A SEND without data is an empty packet", Spec: "9.4.1", Script: func(s *stage.Scene) { asksSend(s, 0) }},
		{ID: "requester/send-imm", Text: "Immediate data are in the last packet", Spec: "9.3.6", Script: asksImm},
		{ID: "requester/write", Text: "The first packet of a WRITE has its address, key and length", Spec: "9.3.3, 9.4.3", Script: asksWrite},
		{ID: "requester/read", Text: "A READ is one request, whose response takes as many PSNs as packets", Spec: "9.4.4, 9.7.2", Script: asksRead},
		{ID: "requester/atomic", Text: "An atomic carries its operands; its result reaches the program", Spec: "9.4.5", Needs: needsAtomic, Script: asksAtomic},
		{ID: "requester/mtu", Text: "Messages are cut at the path MTU of the connection", Spec: "9.2.1", Script: func(s *stage.Scene) {
			s.Connect(stage.Options{MTU: 1024})
			b := stage.Data(2*1024+1, 1)
			s.Fill(0, b)
			s.Post(1, "send", 0, len(b), "")
			ack(s, wantMessage(s, stage.Sends, stage.TargetPSN, b, nil), 1)
			s.WantCompletion(1, stage.StatusSuccess)
		}},
		{ID: "requester/depth", Text: "No more READs are outstanding than were agreed", Spec: "9.7.4, 11.2.5.2", Script: readDepth},
		{ID: "requester/fence", Text: "A request with a fence waits for the READs before it", Spec: "10.8.3.3", Script: func(s *stage.Scene) { fence(s, false) }},
		{ID: "requester/fence-lost", Text: "A request with a fence is sent although the READ before it was lost once", Spec: "10.8.3.3", Script: func(s *stage.Scene) { fence(s, true) }},
		{ID: "requester/implied", Text: "An acknowledgement completes all WRITEs before it", Spec: "9.7.5.1.2", Script: impliedAck},
		{ID: "requester/implied-read", Text: "An acknowledgement of a later request does not complete a READ", Spec: "9.7.5.1.2", Script: impliedRead},
		{ID: "requester/nak-sequence", Text: "After NAK PSN sequence error it goes back to the PSN of the NAK", Spec: "9.7.5.2", Script: goBack},
		{ID: "requester/nak-invalid", Text: "NAK invalid request completes with remote invalid request error", Spec: "9.7.5.2, 11.6.2", Script: func(s *stage.Scene) { fatalNAK(s, inv, stage.StatusRemInv) }},
		{ID: "requester/nak-access", Text: "NAK remote access error completes with remote access error", Spec: "9.7.5.2, 11.6.2", Script: func(s *stage.Scene) { fatalNAK(s, acc, stage.StatusRemAcc) }},
		{ID: "requester/nak-operational", Text: "NAK remote operational error completes with remote operation error", Spec: "9.7.5.2, 11.6.2", Script: func(s *stage.Scene) { fatalNAK(s, op, stage.StatusRemOp) }},
		{ID: "requester/nak-reserved", Text: "A NAK with a reserved code does not complete anything with success", Spec: "9.7.5.2", Script: func(s *stage.Scene) {
			s.Connect(stage.Options{Timeout: answeredTimeout, Retry: 2})
			asks(s, 1)
			reply(s, rocev2.RCAcknowledge, stage.TargetPSN, rocev2.NAKSequence|0x1f, 0, nil)
			s.WantError(1)
		}},
		{ID: "requester/nak-flush", Text: "After a fatal NAK the requests after it are flushed", Spec: "10.3.1.7", Script: nakFlush},
	}
}

// responseRules are those of responses that do not fit.
func responseRules() []Rule {
	return []Rule{
		{ID: "requester/ack-future", Text: "An acknowledgement of a PSN that was not sent completes nothing", Spec: "9.7.5.1.1", Script: ackFuture},
		{ID: "requester/ack-old", Text: "An acknowledgement that comes again completes nothing", Spec: "9.7.5.1.1", Script: ackOld},
		{ID: "requester/read-plain-ack", Text: "A plain acknowledgement does not complete a READ", Spec: "9.7.5.1.2", Script: readPlainAck},
		{ID: "requester/read-icrc", Text: "A response with a wrong ICRC is dropped", Spec: "9.6", Script: readBadICRC},
		{ID: "requester/read-short", Text: "A READ response that is too short does not complete the READ with success, nor hang it", Spec: "9.7.5.1.6, 9.9.2", Script: func(s *stage.Scene) {
			wrongResponse(s, rocev2.RCReadResponseOnly, stage.Data(60, 3))
		}},
		{ID: "requester/read-opcode", Text: "A READ response FIRST in place of ONLY does not complete the READ with success, nor hang it", Spec: "9.7.5.1.3, 9.9.2", Script: func(s *stage.Scene) {
			wrongResponse(s, rocev2.RCReadResponseFirst, stage.Data(64, 3))
		}},
		{ID: "requester/read-last", Text: "A READ response LAST in place of MIDDLE does not complete the READ with success, nor hang it", Spec: "9.7.5.1.3, 9.9.2", Script: func(s *stage.Scene) {
			s.Connect(stage.Options{Timeout: answeredTimeout, Retry: 2})
			b := stage.Data(3*stage.MTU, 1)
			s.Post(1, "read", 0, len(b), remote)
			wantReadRequest(s, stage.TargetPSN, len(b))
			reply(s, rocev2.RCReadResponseFirst, stage.TargetPSN, rocev2.ACKNoCredits, 1, b[:stage.MTU])
			reply(s, rocev2.RCReadResponseLast, stage.TargetPSN+1, rocev2.ACKNoCredits, 1, b[stage.MTU:2*stage.MTU])
			s.WantError(1)
		}},
		{ID: "requester/read-gap", Text: "A READ of which a response is lost is asked for again", Spec: "9.7.5.1.5", Script: readGap},
		{ID: "requester/read-syndrome", Text: "A READ response with a reserved syndrome does not complete the READ with success, nor hang it", Spec: "9.7.5.2.1, 9.9.2", Script: func(s *stage.Scene) {
			s.Connect(stage.Options{Timeout: answeredTimeout, Retry: 2})
			s.Post(1, "read", 0, postLen, remote)
			wantReadRequest(s, stage.TargetPSN, postLen)
			reply(s, rocev2.RCReadResponseOnly, stage.TargetPSN, 0x40, 1, stage.Data(postLen, 1))
			s.WantError(1)
		}},
		{ID: "requester/write-read-response", Text: "A READ response for a WRITE does not complete it with success, nor hang it", Spec: "9.7.5.1.3, 9.9.2", Script: responseToWrite},
	}
}

// postLen is how many bytes the target posts in most rules.
const postLen = 64

// reply sends a response.
func reply(s *stage.Scene, op rocev2.Opcode, psn rocev2.PSN, syndrome rocev2.Syndrome, msn rocev2.PSN, payload []byte) {
	s.Send(response(s, op, psn, syndrome, msn, payload))
}

func response(s *stage.Scene, op rocev2.Opcode, psn rocev2.PSN, syndrome rocev2.Syndrome, msn rocev2.PSN, payload []byte) *rocev2.Packet {
	return &rocev2.Packet{
		BTH:  rocev2.BTH{Opcode: op, MigReq: true, PKey: rocev2.DefaultPKey, DestQPN: s.Pair().QPN, PSN: psn},
		AETH: rocev2.AETH{Syndrome: syndrome, MSN: msn}, Payload: payload,
	}
}

func ack(s *stage.Scene, psn, msn rocev2.PSN) {
	reply(s, rocev2.RCAcknowledge, psn, rocev2.ACKNoCredits, msn, nil)
}

// wantRequest waits for a packet of the target's. more says what else is wrong
// with it, or is nil.
func wantRequest(s *stage.Scene, op rocev2.Opcode, psn rocev2.PSN, payload []byte, more func(*rocev2.Packet) string) *rocev2.Packet {
	return s.Expect(stage.Want{Text: fmt.Sprintf("%v psn=%#x [%d bytes]", op, uint32(psn), len(payload)), Fits: func(p *rocev2.Packet) string {
		if p.BTH.Opcode != op || p.BTH.PSN != psn {
			return stage.Another
		}
		if d := stage.Differs(p.Payload, payload); d != "" {
			return d
		}
		if more != nil {
			return more(p)
		}
		return ""
	}})
}

// wantMessage waits for the packets of a message of the target's, whose first
// has the PSN, and returns the PSN of the last.
func wantMessage(s *stage.Scene, k stage.Kind, psn rocev2.PSN, b []byte, reth *rocev2.RETH) rocev2.PSN {
	mtu := max(s.Options().MTU, stage.MTU)
	n := packets(len(b), mtu)
	for i := range n {
		op := k.Middle
		switch {
		case n == 1:
			op = k.Only
		case i == 0:
			op = k.First
		case i == n-1:
			op = k.Last
		}
		wantRequest(s, op, psn.Add(i), b[i*mtu:min((i+1)*mtu, len(b))], func(p *rocev2.Packet) string {
			switch {
			case i == n-1 && !p.BTH.AckReq:
				return "the last packet asks for no acknowledgement"
			case i == 0 && reth != nil && p.RETH != *reth:
				return fmt.Sprintf("its RETH is not va=%#x rkey=%#x len=%d", reth.VA, reth.RKey, reth.Length)
			}
			return ""
		})
	}
	return psn.Add(n - 1)
}

func asksSend(s *stage.Scene, n int) {
	s.Connect(stage.Options{})
	b := stage.Data(n, 1)
	s.Fill(0, b)
	s.Post(1, "send", 0, n, "")
	last := wantMessage(s, stage.Sends, stage.TargetPSN, b, nil)
	ack(s, last, 1)
	s.WantCompletion(1, stage.StatusSuccess)
}

func asksImm(s *stage.Scene) {
	s.Connect(stage.Options{})
	b := stage.Data(stage.MTU+5, 1)
	s.Fill(0, b)
	s.Post(1, "send-imm", 0, len(b), "imm=0x01020304")
	wantRequest(s, rocev2.RCSendFirst, stage.TargetPSN, b[:stage.MTU], nil)
	wantRequest(s, rocev2.RCSendLastImm, stage.TargetPSN+1, b[stage.MTU:], func(p *rocev2.Packet) string {
		if p.Imm != 0x01020304 {
			return "its immediate data are not 0x1020304"
		}
		return ""
	})
	ack(s, stage.TargetPSN+1, 1)
	s.WantCompletion(1, stage.StatusSuccess)
	s.Post(2, "write-imm", 0, len(b), remote+" imm=0x05060708")
	wantRequest(s, rocev2.RCWriteFirst, stage.TargetPSN+2, b[:stage.MTU], nil)
	wantRequest(s, rocev2.RCWriteLastImm, stage.TargetPSN+3, b[stage.MTU:], func(p *rocev2.Packet) string {
		if p.Imm != 0x05060708 {
			return "its immediate data are not 0x5060708"
		}
		return ""
	})
	ack(s, stage.TargetPSN+3, 2)
	s.WantCompletion(2, stage.StatusSuccess)
}

// remote is a place of this side, which has no memory: the scripts answer.
const remote = "va=0x1122334455667788 rkey=0xabcdef01"

var remoteRETH = rocev2.RETH{VA: 0x1122334455667788, RKey: 0xabcdef01}

func asksWrite(s *stage.Scene) {
	s.Connect(stage.Options{})
	b := stage.Data(3*stage.MTU+1, 1)
	s.Fill(0, b)
	s.Post(1, "write", 0, len(b), remote)
	reth := remoteRETH
	reth.Length = uint32(len(b))
	ack(s, wantMessage(s, stage.Writes, stage.TargetPSN, b, &reth), 1)
	s.WantCompletion(1, stage.StatusSuccess)
}

// wantReadRequest waits for a READ of n bytes.
func wantReadRequest(s *stage.Scene, psn rocev2.PSN, n int) {
	reth := remoteRETH
	reth.Length = uint32(n)
	wantRequest(s, rocev2.RCReadRequest, psn, nil, func(p *rocev2.Packet) string {
		if p.RETH != reth {
			return fmt.Sprintf("its RETH is not va=%#x rkey=%#x len=%d", reth.VA, reth.RKey, reth.Length)
		}
		return ""
	})
}

// answerRead sends the response to a READ.
func answerRead(s *stage.Scene, psn rocev2.PSN, b []byte, msn rocev2.PSN) {
	mtu := max(s.Options().MTU, stage.MTU)
	n := packets(len(b), mtu)
	for i := range n {
		reply(s, responseOps(i, n, false)[0], psn.Add(i), rocev2.ACKNoCredits, msn, b[i*mtu:min((i+1)*mtu, len(b))])
	}
}

func asksRead(s *stage.Scene) {
	s.Connect(stage.Options{})
	b := stage.Data(3*stage.MTU+1, 1)
	s.Post(1, "read", 0, len(b), remote)
	s.Post(2, "send", 0, 0, "")
	wantReadRequest(s, stage.TargetPSN, len(b))
	wantRequest(s, rocev2.RCSendOnly, stage.TargetPSN+4, nil, nil)
	answerRead(s, stage.TargetPSN, b, 1)
	ack(s, stage.TargetPSN+4, 2)
	s.WantCompletion(1, stage.StatusSuccess)
	s.WantCompletion(2, stage.StatusSuccess)
	s.WantMemory(0, b, "what the READ brought")
}

// readDepth has more READs posted than were agreed. The others may come with
// the first answer, or when all have come: a library may hold requests back
// while others are in flight.
func readDepth(s *stage.Scene) {
	const agreed, n = stage.Depth, stage.Depth + 2
	s.Connect(stage.Options{})
	b := stage.Data(postLen, 1)
	for i := range n {
		s.Post(i+1, "read", i*postLen, postLen, remote)
	}
	for i := range agreed {
		wantReadRequest(s, stage.TargetPSN.Add(i), postLen)
	}
	s.Quiet("all READs that were agreed are outstanding")
	for i := range agreed {
		answerRead(s, stage.TargetPSN.Add(i), b, rocev2.PSN(i+1))
		s.WantCompletion(uint64(i+1), stage.StatusSuccess)
	}
	for i := agreed; i < n; i++ {
		wantReadRequest(s, stage.TargetPSN.Add(i), postLen)
	}
	for i := agreed; i < n; i++ {
		answerRead(s, stage.TargetPSN.Add(i), b, rocev2.PSN(i+1))
		s.WantCompletion(uint64(i+1), stage.StatusSuccess)
	}
}

// fence has a WRITE wait for a READ, whose request is lost the first time or
// not.
func fence(s *stage.Scene, lost bool) {
	s.Connect(stage.Options{Timeout: answeredTimeout})
	b := stage.Data(postLen, 8)
	s.Fill(256, b)
	s.Post(1, "read", 0, postLen, remote)
	s.Post(2, "write", 256, postLen, remote+" fence=1")
	wantReadRequest(s, stage.TargetPSN, postLen)
	if lost {
		wantReadRequest(s, stage.TargetPSN, postLen)
	}
	answerRead(s, stage.TargetPSN, b, 1)
	s.WantCompletion(1, stage.StatusSuccess)
	wantRequest(s, rocev2.RCWriteOnly, stage.TargetPSN+1, b, nil)
	ack(s, stage.TargetPSN+1, 2)
	s.WantCompletion(2, stage.StatusSuccess)
}

// readGap loses the second of three responses.
func readGap(s *stage.Scene) {
	s.Connect(stage.Options{Timeout: answeredTimeout})
	b := stage.Data(3*stage.MTU, 1)
	s.Post(1, "read", 0, len(b), remote)
	wantReadRequest(s, stage.TargetPSN, len(b))
	reply(s, rocev2.RCReadResponseFirst, stage.TargetPSN, rocev2.ACKNoCredits, 1, b[:stage.MTU])
	reply(s, rocev2.RCReadResponseLast, stage.TargetPSN+2, rocev2.ACKNoCredits, 1, b[2*stage.MTU:])
	p := wantPartOf(s, len(b))
	if p == nil {
		return
	}
	answerRead(s, p.BTH.PSN, b[p.BTH.PSN.Sub(stage.TargetPSN)*stage.MTU:], 1)
	s.WantCompletion(1, stage.StatusSuccess)
	s.WantMemory(0, b, "what the READ brought")
}

func asksAtomic(s *stage.Scene) {
	s.Connect(stage.Options{})
	s.Post(1, "fetch-add", 0, 8, remote+" add=0x1234567890")
	wantRequest(s, rocev2.RCFetchAdd, stage.TargetPSN, nil, func(p *rocev2.Packet) string {
		if e := p.AtomicETH; e.VA != remoteRETH.VA || e.RKey != remoteRETH.RKey || e.SwapAdd != 0x1234567890 {
			return "other operands"
		}
		return ""
	})
	p := response(s, rocev2.RCAtomicAcknowledge, stage.TargetPSN, rocev2.ACKNoCredits, 1, nil)
	p.AtomicAck.Original = 0x0102030405060708
	s.Send(p)
	s.WantCompletion(1, stage.StatusSuccess)
	s.WantMemory(0, binary.LittleEndian.AppendUint64(nil, p.AtomicAck.Original), "the result")
	s.Post(2, "compare-swap", 0, 8, remote+" add=0x1234567890 swap=0x9876543210")
	wantRequest(s, rocev2.RCCompareSwap, stage.TargetPSN+1, nil, func(p *rocev2.Packet) string {
		if e := p.AtomicETH; e.VA != remoteRETH.VA || e.RKey != remoteRETH.RKey || e.Compare != 0x1234567890 || e.SwapAdd != 0x9876543210 {
			return "other operands"
		}
		return ""
	})
	p = response(s, rocev2.RCAtomicAcknowledge, stage.TargetPSN+1, rocev2.ACKNoCredits, 2, nil)
	p.AtomicAck.Original = 0x1112131415161718
	s.Send(p)
	s.WantCompletion(2, stage.StatusSuccess)
	s.WantMemory(0, binary.LittleEndian.AppendUint64(nil, p.AtomicAck.Original), "the result")
}

// asks has the target post WRITEs with the IDs from 1 to n, and waits for them.
func asks(s *stage.Scene, n int) {
	s.Fill(0, stage.Data(postLen, 1))
	for i := range n {
		s.Post(i+1, "write", 0, postLen, remote)
	}
	for i := range n {
		wantRequest(s, rocev2.RCWriteOnly, stage.TargetPSN.Add(i), stage.Data(postLen, 1), nil)
	}
}

func impliedAck(s *stage.Scene) {
	s.Connect(stage.Options{})
	asks(s, 3)
	s.NoCompletion("nothing is acknowledged")
	ack(s, stage.TargetPSN+1, 2)
	s.WantCompletion(1, stage.StatusSuccess)
	s.WantCompletion(2, stage.StatusSuccess)
	s.NoCompletion("the third is not acknowledged")
	ack(s, stage.TargetPSN+2, 3)
	s.WantCompletion(3, stage.StatusSuccess)
}

func impliedRead(s *stage.Scene) {
	s.Connect(stage.Options{Timeout: answeredTimeout})
	b := stage.Data(postLen, 8)
	s.Post(1, "read", 0, postLen, remote)
	s.Post(2, "write", 256, 8, remote)
	wantReadRequest(s, stage.TargetPSN, postLen)
	// It may hold back what comes after.
	p := s.Next(s.Times().Quiet)
	if p == nil || p.BTH.Opcode != rocev2.RCWriteOnly {
		s.Untested(fmt.Errorf("the requester sends nothing after a READ that has no answer"))
		return
	}
	ack(s, stage.TargetPSN+1, 2)
	s.NoCompletion("the READ has no response yet")
	for range 8 { // it asks again, or waits until its timer ends
		if s.Over() {
			return
		}
		p := s.Next(s.Times().Answer)
		if p == nil {
			s.Fail("the READ again", s.Nothing())
			return
		}
		if p.BTH.Opcode == rocev2.RCReadRequest {
			break
		}
	}
	answerRead(s, stage.TargetPSN, b, 2)
	ack(s, stage.TargetPSN+1, 2)
	s.WantCompletion(1, stage.StatusSuccess)
	s.WantMemory(0, b, "what the READ brought")
}

func goBack(s *stage.Scene) {
	s.Connect(stage.Options{})
	asks(s, 3)
	reply(s, rocev2.RCAcknowledge, stage.TargetPSN+1, rocev2.NAKSequence, 1, nil)
	s.WantCompletion(1, stage.StatusSuccess)
	for i := 1; i < 3; i++ {
		wantRequest(s, rocev2.RCWriteOnly, stage.TargetPSN.Add(i), stage.Data(postLen, 1), nil)
	}
	ack(s, stage.TargetPSN+2, 3)
	s.WantCompletion(2, stage.StatusSuccess)
	s.WantCompletion(3, stage.StatusSuccess)
}

func fatalNAK(s *stage.Scene, code rocev2.Syndrome, status int) {
	s.Connect(stage.Options{})
	asks(s, 1)
	reply(s, rocev2.RCAcknowledge, stage.TargetPSN, code, 0, nil)
	s.WantCompletion(1, status)
	s.WantState("ERR", "the request failed")
}

func nakFlush(s *stage.Scene) {
	s.Connect(stage.Options{})
	asks(s, 3)
	reply(s, rocev2.RCAcknowledge, stage.TargetPSN+1, rocev2.NAKRemoteAccess, 1, nil)
	s.WantCompletion(1, stage.StatusSuccess)
	s.WantCompletion(2, stage.StatusRemAcc)
	s.WantCompletion(3, stage.StatusFlush)
}

func ackFuture(s *stage.Scene) {
	s.Connect(stage.Options{})
	asks(s, 1)
	ack(s, stage.TargetPSN+7, 8)
	quietOrRepeats(s, 1)
	s.NoCompletion("the acknowledgement is for a PSN that was not sent")
	ack(s, stage.TargetPSN, 1)
	s.WantCompletion(1, stage.StatusSuccess)
}

// quietOrRepeats waits a little, in which the target may send its n requests
// again.
func quietOrRepeats(s *stage.Scene, n int) {
	for range 16 {
		p := s.Next(s.Times().Quiet)
		if p == nil {
			return
		}
		if d := p.BTH.PSN.Sub(stage.TargetPSN); d < 0 || d >= n {
			s.Fail("nothing, or the requests again", stage.Describe(p))
		}
	}
}

func ackOld(s *stage.Scene) {
	s.Connect(stage.Options{})
	asks(s, 2)
	ack(s, stage.TargetPSN, 1)
	s.WantCompletion(1, stage.StatusSuccess)
	ack(s, stage.TargetPSN, 1)
	ack(s, stage.TargetPSN-1, 0)
	quietOrRepeats(s, 2)
	s.NoCompletion("the second is not acknowledged")
	ack(s, stage.TargetPSN+1, 2)
	s.WantCompletion(2, stage.StatusSuccess)
}

func readPlainAck(s *stage.Scene) {
	s.Connect(stage.Options{})
	b := stage.Data(postLen, 8)
	s.Post(1, "read", 0, postLen, remote)
	wantReadRequest(s, stage.TargetPSN, postLen)
	ack(s, stage.TargetPSN, 1)
	quietOrRepeats(s, 1)
	s.NoCompletion("a plain acknowledgement has no data")
	answerRead(s, stage.TargetPSN, b, 1)
	s.WantCompletion(1, stage.StatusSuccess)
	s.WantMemory(0, b, "what the READ brought")
}

func readBadICRC(s *stage.Scene) {
	s.Connect(stage.Options{Timeout: answeredTimeout})
	b := stage.Data(postLen, 8)
	s.Post(1, "read", 0, postLen, remote)
	wantReadRequest(s, stage.TargetPSN, postLen)
	p := response(s, rocev2.RCReadResponseOnly, stage.TargetPSN, rocev2.ACKNoCredits, 1, stage.Data(postLen, 9))
	s.Emit(p.AppendTo(nil), stage.Describe(p)+", with a wrong ICRC", 0x55, nil)
	wantReadRequest(s, stage.TargetPSN, postLen)
	answerRead(s, stage.TargetPSN, b, 1)
	s.WantCompletion(1, stage.StatusSuccess)
	s.WantMemory(0, b, "what the READ brought")
}

// wrongResponse answers a READ by a packet that does not fit. The requester may
// ask again, and get the right one, or end with an error.
func wrongResponse(s *stage.Scene, op rocev2.Opcode, payload []byte) {
	s.Connect(stage.Options{Timeout: answeredTimeout, Retry: 2})
	s.Post(1, "read", 0, postLen, remote)
	wantReadRequest(s, stage.TargetPSN, postLen)
	reply(s, op, stage.TargetPSN, rocev2.ACKNoCredits, 1, payload)
	s.WantError(1)
}

func responseToWrite(s *stage.Scene) {
	s.Connect(stage.Options{Timeout: answeredTimeout, Retry: 2})
	asks(s, 1)
	reply(s, rocev2.RCReadResponseOnly, stage.TargetPSN, rocev2.ACKNoCredits, 1, stage.Data(8, 3))
	s.WantError(1)
}
