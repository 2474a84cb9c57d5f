package rules

import (
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/observe/conformance/stage"
	"github.com/gosoftroce/rocev2/rocev2"
)

// retryRules are those of timers and of what is sent again.
func retryRules() []Rule {
	return []Rule{
		{ID: "retry/same", Text: "A request without an answer is sent again, the same bytes under the same PSN", Spec: "9.7.6.1.3", Script: sentAgain},
		{ID: "retry/early", Text: "Nothing is sent again before the local ACK timeout", Spec: "9.7.6.1.3", Script: notEarly},
		{ID: "retry/count", Text: "After as many repetitions as were agreed the request fails with transport retry exceeded", Spec: "9.9.2.1, 11.6.2", Script: func(s *stage.Scene) { retries(s, 2) }},
		{ID: "retry/zero", Text: "With a retry count of 0 nothing is sent again", Spec: "9.9.2.1", Script: func(s *stage.Scene) { retries(s, 0) }},
		{ID: "retry/seven", Text: "A retry count of 7 means seven repetitions, not endless ones", Spec: "9.9.2.1", Script: func(s *stage.Scene) { retries(s, 7) }},
		{ID: "retry/read-resume", Text: "A READ of which a part has come is asked for again, from there or from the start", Spec: "9.7.5.1.5", Script: readResume},
		{ID: "retry/write-resume", Text: "A WRITE whose beginning was acknowledged goes on from there after a timeout", Spec: "9.7.5.1.2, 9.7.6.1.3", Script: writeResume},
		{ID: "retry/progress", Text: "Progress that an acknowledgement brings gives all retries back", Spec: "9.7.6.1.3", Script: progressReloads},
		{ID: "retry/nak-progress", Severity: Should, Text: "Progress that a NAK brings gives all retries back, and each NAK is followed at once", Spec: "9.7.6.1.3", Script: nakProgress},
		{ID: "rnr/waits", Text: "After RNR NAK the request is sent again, not before the time that the NAK says", Spec: "9.7.5.2.8", Script: rnrWaits},
		{ID: "rnr/count", Text: "After as many RNR NAKs as were agreed the request fails with RNR retry exceeded", Spec: "9.9.2.1, 11.6.2", Script: rnrCount},
		{ID: "rnr/zero", Text: "With an RNR retry count of 0 the first RNR NAK ends the request", Spec: "9.9.2.1", Script: func(s *stage.Scene) {
			s.Connect(stage.Options{RNRRetry: -1})
			asks(s, 1)
			reply(s, rocev2.RCAcknowledge, stage.TargetPSN, rocev2.SyndromeRNR(1), 0, nil)
			s.WantCompletion(1, stage.StatusRNRExc)
		}},
		{ID: "rnr/infinite", Text: "An RNR retry count of 7 has no end", Spec: "9.9.2.1", Script: rnrInfinite},
	}
}

const (
	shortTimeout = 12 // 16.8 ms, where nothing is answered

	// answeredTimeout is long enough for an answer to come first, on busy
	// machines, too: 268 ms.
	answeredTimeout = 16
)

func sentAgain(s *stage.Scene) {
	s.Connect(stage.Options{Timeout: answeredTimeout})
	s.Fill(0, stage.Data(2*stage.MTU+8, 1))
	s.Post(1, "write", 0, 2*stage.MTU+8, remote)
	reth := remoteRETH
	reth.Length = 2*stage.MTU + 8
	for range 2 {
		wantMessage(s, stage.Writes, stage.TargetPSN, stage.Data(2*stage.MTU+8, 1), &reth)
	}
	ackAll(s, stage.TargetPSN+2, 1)
}

// ackAll acknowledges the only request, and lets repetitions that are under way
// be.
func ackAll(s *stage.Scene, psn, msn rocev2.PSN) {
	ack(s, psn, msn)
	s.WantCompletion(1, stage.StatusSuccess)
}

func notEarly(s *stage.Scene) {
	const code = answeredTimeout
	s.Connect(stage.Options{Timeout: code})
	asks(s, 1)
	first := s.Came()
	wantRequest(s, rocev2.RCWriteOnly, stage.TargetPSN, stage.Data(postLen, 1), nil)
	// The network may have held back the first.
	if least, was := rocev2.AckTimeout(code)*3/4, s.Came().Sub(first); was < least && !s.Over() {
		s.Fail(fmt.Sprintf("a repetition after %v", rocev2.AckTimeout(code)), fmt.Sprintf("one after %v", was.Round(time.Millisecond)))
	}
	ackAll(s, stage.TargetPSN, 1)
}

// retries answers nothing, and counts what comes.
func retries(s *stage.Scene, n int) {
	s.Connect(stage.Options{Timeout: shortTimeout, Retry: orMinus(n)})
	asks(s, 1)
	for range n {
		wantRequest(s, rocev2.RCWriteOnly, stage.TargetPSN, stage.Data(postLen, 1), nil)
	}
	text := fmt.Sprintf("no more after %d repetitions", n)
	if s.Over() {
		return
	}
	if p := s.Next(4 * rocev2.AckTimeout(shortTimeout) * 2); p != nil {
		s.Fail(text, stage.Describe(p))
	}
	s.WantCompletion(1, stage.StatusRetryExc)
	s.WantState("ERR", "the request failed")
	s.Quiet(text) // also of a peer whose timeout is longer than it was told
}

func orMinus(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// wantPartOf waits for a READ that asks for the rest of another of n bytes:
// PSN, address and length belong together.
func wantPartOf(s *stage.Scene, n int) *rocev2.Packet {
	mtu := max(s.Options().MTU, stage.MTU)
	return s.Expect(stage.Want{Text: fmt.Sprintf("RC_RDMA_READ_REQUEST of the %d bytes or of their rest, with the PSN that belongs to it", n), Fits: func(p *rocev2.Packet) string {
		if p.BTH.Opcode != rocev2.RCReadRequest {
			return stage.Another
		}
		i := p.BTH.PSN.Sub(stage.TargetPSN)
		if i < 0 || i >= packets(n, mtu) {
			return "no PSN of the READ"
		}
		w := remoteRETH
		w.VA += uint64(i * mtu)
		w.Length = uint32(n - i*mtu)
		if p.RETH != w {
			return fmt.Sprintf("to this PSN belong va=%#x len=%d", w.VA, w.Length)
		}
		return ""
	}})
}

func readResume(s *stage.Scene) {
	s.Connect(stage.Options{Timeout: answeredTimeout})
	b := stage.Data(4*stage.MTU+5, 1)
	s.Post(1, "read", 0, len(b), remote)
	wantReadRequest(s, stage.TargetPSN, len(b))
	reply(s, rocev2.RCReadResponseFirst, stage.TargetPSN, rocev2.ACKNoCredits, 1, b[:stage.MTU])
	reply(s, rocev2.RCReadResponseMiddle, stage.TargetPSN+1, rocev2.ACKNoCredits, 1, b[stage.MTU:2*stage.MTU])
	p := wantPartOf(s, len(b))
	if p == nil {
		return
	}
	answerRead(s, p.BTH.PSN, b[p.BTH.PSN.Sub(stage.TargetPSN)*stage.MTU:], 1)
	s.WantCompletion(1, stage.StatusSuccess)
	s.WantMemory(0, b, "what the READ brought")
}

func writeResume(s *stage.Scene) {
	s.Connect(stage.Options{Timeout: answeredTimeout})
	b := stage.Data(3*stage.MTU, 1)
	s.Fill(0, b)
	s.Post(1, "write", 0, len(b), remote)
	wantMessage(s, stage.Writes, stage.TargetPSN, b, nil)
	ack(s, stage.TargetPSN, 0)
	wantRequest(s, rocev2.RCWriteMiddle, stage.TargetPSN+1, b[stage.MTU:2*stage.MTU], nil)
	wantRequest(s, rocev2.RCWriteLast, stage.TargetPSN+2, b[2*stage.MTU:], nil)
	ackAll(s, stage.TargetPSN+2, 1)
}

func progressReloads(s *stage.Scene) {
	s.Connect(stage.Options{Timeout: answeredTimeout, Retry: 1})
	asks(s, 3)
	for i := range 3 {
		// The one repetition that there is, for each of them.
		for k := i; k < 3; k++ {
			wantRequest(s, rocev2.RCWriteOnly, stage.TargetPSN.Add(k), stage.Data(postLen, 1), nil)
		}
		ack(s, stage.TargetPSN.Add(i), rocev2.PSN(i+1))
		s.WantCompletion(uint64(i+1), stage.StatusSuccess)
	}
}

func nakProgress(s *stage.Scene) {
	s.Connect(stage.Options{Retry: 1})
	asks(s, 3)
	for i := 1; i < 3; i++ {
		reply(s, rocev2.RCAcknowledge, stage.TargetPSN.Add(i), rocev2.NAKSequence, rocev2.PSN(i), nil)
		s.WantCompletion(uint64(i), stage.StatusSuccess)
		for k := i; k < 3; k++ {
			wantRequest(s, rocev2.RCWriteOnly, stage.TargetPSN.Add(k), stage.Data(postLen, 1), nil)
		}
	}
	ack(s, stage.TargetPSN+2, 3)
	s.WantCompletion(3, stage.StatusSuccess)
}

func rnrWaits(s *stage.Scene) {
	const code = 28 // 163.84 ms
	s.Connect(stage.Options{})
	s.Fill(0, stage.Data(postLen, 1))
	s.Post(1, "send", 0, postLen, "")
	wantRequest(s, rocev2.RCSendOnly, stage.TargetPSN, stage.Data(postLen, 1), nil)
	reply(s, rocev2.RCAcknowledge, stage.TargetPSN, rocev2.SyndromeRNR(code), 0, nil)
	sent := time.Now()
	wantRequest(s, rocev2.RCSendOnly, stage.TargetPSN, stage.Data(postLen, 1), nil)
	if was := s.Came().Sub(sent); was < rocev2.RNRDelay(code)*9/10 && !s.Over() {
		s.Fail(fmt.Sprintf("a repetition after %v", rocev2.RNRDelay(code)), fmt.Sprintf("one after %v", was.Round(time.Millisecond)))
	}
	ackAll(s, stage.TargetPSN, 1)
}

func rnrCount(s *stage.Scene) {
	s.Connect(stage.Options{RNRRetry: 2})
	asks(s, 1)
	for range 2 {
		reply(s, rocev2.RCAcknowledge, stage.TargetPSN, rocev2.SyndromeRNR(1), 0, nil)
		wantRequest(s, rocev2.RCWriteOnly, stage.TargetPSN, stage.Data(postLen, 1), nil)
	}
	reply(s, rocev2.RCAcknowledge, stage.TargetPSN, rocev2.SyndromeRNR(1), 0, nil)
	s.WantCompletion(1, stage.StatusRNRExc)
}

func rnrInfinite(s *stage.Scene) {
	s.Connect(stage.Options{RNRRetry: 7})
	asks(s, 1)
	for range 12 {
		reply(s, rocev2.RCAcknowledge, stage.TargetPSN, rocev2.SyndromeRNR(1), 0, nil)
		wantRequest(s, rocev2.RCWriteOnly, stage.TargetPSN, stage.Data(postLen, 1), nil)
	}
	ackAll(s, stage.TargetPSN, 1)
}
