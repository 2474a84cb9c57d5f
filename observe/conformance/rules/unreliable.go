package rules

import (
	"github.com/gosoftroce/rocev2/observe/conformance/stage"
	"github.com/gosoftroce/rocev2/rocev2"
)

// unreliableRules are those of UC and UD.
func unreliableRules() []Rule {
	uc, ud := []string{"uc"}, []string{"ud"}
	return []Rule{
		{ID: "uc/send", Text: "SENDs of one and of several packets fill receives; nothing is acknowledged", Spec: "9.8.2", Needs: uc, Script: ucSends},
		{ID: "uc/write", Text: "WRITEs reach memory; nothing is acknowledged", Spec: "9.8.2", Needs: uc, Script: ucWrites},
		{ID: "uc/lost-message", Text: "A message that is lost as a whole costs nothing else", Spec: "9.8.2", Needs: uc, Script: ucLostMessage},
		{ID: "uc/lost-middle", Text: "A SEND of which a packet is lost is dropped; the next message is executed", Spec: "9.8.2", Needs: uc, Script: ucLostMiddle},
		{ID: "uc/write-cut", Text: "After a WRITE of which the last packet is lost the next message is executed", Spec: "9.8.2", Needs: uc, Script: ucWriteCut},
		{ID: "uc/key", Text: "A WRITE with a wrong key is dropped in silence, and the queue pair goes on", Spec: "9.8.2", Needs: uc, Script: ucBadKey},
		{ID: "uc/requester", Text: "The requester asks for no acknowledgement and completes without one", Spec: "9.8.2", Needs: uc, Script: ucAsks},
		{ID: "ud/send", Text: "A datagram with the right Q_Key fills a receive, after 40 bytes of header", Spec: "9.8.3, A17.4.5.1", Needs: ud, Script: udSend},
		{ID: "ud/imm", Text: "Immediate data of a datagram reach the completion", Spec: "9.8.3", Needs: ud, Script: udImm},
		{ID: "ud/qkey", Text: "A datagram with another Q_Key is dropped", Spec: "9.6.1.4, 10.2.5", Needs: ud, Script: udQKey},
		{ID: "ud/psn", Text: "PSNs of datagrams are not looked at", Spec: "9.8.3", Needs: ud, Script: udPSN},
		{ID: "ud/too-long", Text: "A datagram that is longer than its receive is dropped, and the queue pair goes on", Spec: "9.8.3", Needs: ud, Script: udTooLong},
		{ID: "ud/no-receive", Text: "A datagram without a receive is dropped, and the queue pair goes on", Spec: "9.8.3", Needs: ud, Script: udNoReceive},
	}
}

func ucSends(s *stage.Scene) {
	s.Connect(stage.Options{Kind: "uc", Receives: 3})
	for i, n := range []int{50, 2*stage.MTU + 9, 0} {
		b := stage.Data(n, i)
		s.Send(s.Message(stage.UCSends, b)...)
		s.WantRecv(i, b)
	}
	s.Quiet("UC has no acknowledgements")
}

// ucMark sends a SEND, whose completion says that what is before it is done.
func ucMark(s *stage.Scene, receive int) {
	s.Send(s.Message(stage.UCSends, stage.Data(16, 70+receive))...)
	s.WantRecv(receive, stage.Data(16, 70+receive))
}

func ucWrites(s *stage.Scene) {
	s.Connect(stage.Options{Kind: "uc", Receives: 1})
	b := stage.Data(3*stage.MTU+2, 1)
	s.Send(s.Message(stage.UCWrites, b)...)
	ucMark(s, 0)
	s.WantMemory(0, b, "the WRITE")
	s.Quiet("UC has no acknowledgements")
}

func ucLostMessage(s *stage.Scene) {
	s.Connect(stage.Options{Kind: "uc", Receives: 2})
	ucMark(s, 0)
	s.Message(stage.UCSends, stage.Data(300, 1)) // is not sent
	ucMark(s, 1)
}

func ucLostMiddle(s *stage.Scene) {
	s.Connect(stage.Options{Kind: "uc", Receives: 2})
	all := s.Message(stage.UCSends, stage.Data(3*stage.MTU, 1))
	s.Send(all[0], all[2])
	ucMark(s, 0)
	ucMark(s, 1)
}

func ucWriteCut(s *stage.Scene) {
	s.Connect(stage.Options{Kind: "uc", Receives: 2})
	all := s.Message(stage.UCWrites, stage.Data(3*stage.MTU, 1))
	s.Send(all[0], all[1])
	ucMark(s, 0)
	ucMark(s, 1)
}

func ucBadKey(s *stage.Scene) {
	s.Connect(stage.Options{Kind: "uc", Receives: 1})
	p := s.Request(rocev2.UCWriteOnly, stage.Data(64, 1))
	p.RETH.RKey = s.Pair().ReadOnly
	s.Send(p)
	ucMark(s, 0)
	s.WantMemory(0, make([]byte, 64), "nothing is written")
	s.WantState("RTS", "the request is dropped in silence")
}

func ucAsks(s *stage.Scene) {
	s.Connect(stage.Options{Kind: "uc"})
	b := stage.Data(stage.MTU+9, 1)
	s.Fill(0, b)
	s.Post(1, "send", 0, len(b), "")
	noAck := func(p *rocev2.Packet) string {
		if p.BTH.AckReq {
			return "it asks for an acknowledgement"
		}
		return ""
	}
	wantRequest(s, rocev2.UCSendFirst, stage.TargetPSN, b[:stage.MTU], noAck)
	wantRequest(s, rocev2.UCSendLast, stage.TargetPSN+1, b[stage.MTU:], noAck)
	s.WantCompletion(1, stage.StatusSuccess)
}

const udKey = 0x1234567

func udSend(s *stage.Scene) {
	s.Connect(stage.Options{Kind: "ud", QKey: udKey, Receives: 2})
	for i, n := range []int{100, 1} {
		b := stage.Data(n, i)
		s.Send(s.Request(rocev2.UDSendOnly, b))
		s.WantRecv(i, b)
	}
	s.Quiet("UD has no acknowledgements")
}

func udImm(s *stage.Scene) {
	s.Connect(stage.Options{Kind: "ud", QKey: udKey, Receives: 1})
	p := s.Request(rocev2.UDSendOnlyImm, stage.Data(10, 1))
	p.Imm = 0x99
	s.Send(p)
	if c := s.WantRecv(0, stage.Data(10, 1)); c.Imm != 0x99 && !s.Over() {
		s.Fail("immediate data 0x99 in the completion", "others")
	}
}

// udGood sends a datagram that must arrive.
func udGood(s *stage.Scene, receive int) {
	s.Send(s.Request(rocev2.UDSendOnly, stage.Data(20, receive)))
	s.WantRecv(receive, stage.Data(20, receive))
}

func udQKey(s *stage.Scene) {
	s.Connect(stage.Options{Kind: "ud", QKey: udKey, Receives: 1})
	p := s.Request(rocev2.UDSendOnly, stage.Data(64, 9))
	p.DETH.QKey++
	s.Send(p)
	udGood(s, 0)
}

func udPSN(s *stage.Scene) {
	s.Connect(stage.Options{Kind: "ud", QKey: udKey, Receives: 3})
	for i, psn := range []rocev2.PSN{5, 0xffffff, 5} {
		s.SetPSN(psn)
		udGood(s, i)
	}
}

func udTooLong(s *stage.Scene) {
	s.Connect(stage.Options{Kind: "ud", QKey: udKey, Receives: 2, RecvSize: 100})
	s.Send(s.Request(rocev2.UDSendOnly, stage.Data(200, 9)))
	udGood(s, 0)
	s.WantState("RTS", "the datagram is dropped")
}

func udNoReceive(s *stage.Scene) {
	s.Connect(stage.Options{Kind: "ud", QKey: udKey})
	s.Send(s.Request(rocev2.UDSendOnly, stage.Data(20, 9)))
	s.Quiet("the datagram is dropped")
	s.Recv(0)
	udGood(s, 0)
}
