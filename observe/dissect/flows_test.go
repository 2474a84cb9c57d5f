package dissect_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/observe/dissect"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// A response tells which two queue pairs are connected.
func TestPairByPSN(t *testing.T) {
	t.Parallel()
	c := &traffic{}
	c.request(rocev2.RCSendOnly, 100, 16)
	// Another connection of the same hosts, elsewhere in the PSNs.
	c.packet(hostA, hostB, rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendOnly, DestQPN: 0x21, PSN: 5000}})
	c.packet(hostB, hostA, rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCAcknowledge, DestQPN: 0x11, PSN: 5000}, AETH: rocev2.AETH{Syndrome: 0x1f}})
	c.ack(100)
	got, flows := c.run(t)
	list := flows.Connections()
	if len(list) != 2 {
		t.Fatalf("%d connections, want 2", len(list))
	}
	for i, want := range [][2]rocev2.QPN{{qpA, qpB}, {0x11, 0x21}} {
		if a, b := list[i].A, list[i].B; a.QPN != want[0] || b.QPN != want[1] || !a.Known || !b.Known {
			t.Errorf("connection %d: %v and %v", i+1, a, b)
		}
	}
	if got[3].RTT != 3*step || got[2].RTT != step || got[3].Completes.Count != 1 || got[3].Acked != 1 {
		t.Errorf("round trips %v and %v, %d completed", got[3].RTT, got[2].RTT, got[3].Completes.Count)
	}
}

// A request of the other side may come before the first acknowledgement.
func TestPairLater(t *testing.T) {
	t.Parallel()
	c := &traffic{}
	c.request(rocev2.RCSendOnly, 100, 16)
	c.packet(hostB, hostA, rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendOnly, DestQPN: qpA, PSN: 900}, Payload: make([]byte, 8)})
	c.ack(100)
	c.packet(hostA, hostB, rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCAcknowledge, DestQPN: qpB, PSN: 900}, AETH: rocev2.AETH{Syndrome: 0x1f}})
	got, flows := c.run(t)
	conn := only(t, flows)
	if conn.A.QPN != qpA || conn.B.QPN != qpB {
		t.Errorf("%v and %v", conn.A, conn.B)
	}
	for i := range conn.Requests {
		if s := conn.Requests[i]; s.Packets != 1 || s.Completed != 1 || s.Acks != 1 {
			t.Errorf("side %d: %+v", i, s.Counters)
		}
	}
	if got[3].Conn != conn || got[3].RTT != 2*step {
		t.Errorf("%+v", got[3].Analysis)
	}
}

// Two connections with equal PSNs cannot be told apart: none is guessed.
func TestPairIsNotGuessed(t *testing.T) {
	t.Parallel()
	c := &traffic{}
	c.request(rocev2.RCSendOnly, 100, 16)
	c.packet(hostA, hostB, rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendOnly, DestQPN: 0x21, PSN: 100}})
	c.ack(100)
	_, flows := c.run(t)
	for _, conn := range flows.Connections() {
		if conn.A.Known && conn.B.Known {
			t.Errorf("%v and %v are paired", conn.A, conn.B)
		}
	}
}

// A lost packet: what comes after it is a gap, the NAK says why it is sent
// again, and what was acknowledged before it is complete.
func TestLoss(t *testing.T) {
	t.Parallel()
	c := &traffic{}
	c.request(rocev2.RCSendOnly, 0xfffffe, 16)
	c.request(rocev2.RCSendOnly, 0xffffff, 16)
	c.request(rocev2.RCSendOnly, 1, 16) // 0 is missing
	c.response(rocev2.RCAcknowledge, 0, rocev2.NAKSequence, 0)
	c.request(rocev2.RCSendOnly, 0, 16)
	c.request(rocev2.RCSendOnly, 1, 16)
	c.request(rocev2.RCSendOnly, 2, 16)
	c.ack(2)
	got, flows := c.run(t)
	if want := "- - gap - retransmitted retransmitted - -"; marks(got) != want {
		t.Errorf("%s, want %s", marks(got), want)
	}
	if got[2].Missing != 1 || got[4].Cause != "nak" || got[5].Since != 3*step {
		t.Errorf("missing %d, cause %q, since %v", got[2].Missing, got[4].Cause, got[5].Since)
	}
	if got[3].Acked != 2 || got[3].Completes.Count != 2 || got[7].Acked != 3 || got[7].Completes.Count != 3 {
		t.Errorf("the NAK acknowledges %d, the ACK %d", got[3].Acked, got[7].Acked)
	}
	if s := only(t, flows).Requests[0]; s.Retransmitted != 2 || s.Missing != 1 || s.NAKSequence != 1 || s.Completed != 5 || s.Duplicates != 0 {
		t.Errorf("%+v", s.Counters)
	}
	// Karn: the packet that was sent twice measures nothing.
	if got[7].RTT != step {
		t.Errorf("round trip %v, want %v", got[7].RTT, step)
	}
}

// A lost acknowledgement: the request goes again after a timeout, and the
// capture shows whether that was needless.
func TestTimeoutAndDuplicate(t *testing.T) {
	t.Parallel()
	c := &traffic{}
	c.request(rocev2.RCSendOnly, 5, 16)
	c.wait(time.Millisecond)
	c.request(rocev2.RCSendOnly, 5, 16)
	c.ack(5)
	c.request(rocev2.RCSendOnly, 5, 16)
	c.ack(5)
	got, flows := c.run(t)
	if want := "- retransmitted - retransmitted+duplicate duplicate_ack"; marks(got) != want {
		t.Errorf("%s, want %s", marks(got), want)
	}
	if got[1].Cause != "timeout" || got[1].Since != time.Millisecond+step || got[2].RTT != 0 {
		t.Errorf("cause %q since %v, round trip %v", got[1].Cause, got[1].Since, got[2].RTT)
	}
	if s := only(t, flows).Requests[0]; s.Duplicates != 1 || s.DuplicateAcks != 1 || s.Completed != 1 {
		t.Errorf("%+v", s.Counters)
	}
}

func TestRNR(t *testing.T) {
	t.Parallel()
	c := &traffic{}
	c.request(rocev2.RCSendOnly, 5, 16)
	c.request(rocev2.RCSendOnly, 6, 16)
	c.response(rocev2.RCAcknowledge, 5, rocev2.SyndromeRNR(12), 0)
	c.response(rocev2.RCAcknowledge, 5, rocev2.NAKSequence, 0) // for PSN 6
	c.wait(time.Millisecond)
	c.request(rocev2.RCSendOnly, 5, 16)
	c.request(rocev2.RCSendOnly, 6, 16)
	c.ack(6)
	got, flows := c.run(t)
	if got[4].Cause != "rnr" || got[5].Cause != "rnr" || got[6].Completes.Count != 2 {
		t.Errorf("causes %q and %q", got[4].Cause, got[5].Cause)
	}
	if s := only(t, flows).Requests[0]; s.RNRs != 1 || s.Retransmitted != 2 {
		t.Errorf("%+v", s.Counters)
	}
}

func TestReordered(t *testing.T) {
	t.Parallel()
	c := &traffic{}
	c.request(rocev2.RCSendFirst, 10, 1024)
	c.request(rocev2.RCSendMiddle, 12, 1024)
	c.request(rocev2.RCSendMiddle, 11, 1024)
	c.request(rocev2.RCSendLast, 13, 100)
	c.ack(13)
	got, _ := c.run(t)
	if want := "- gap out_of_order - -"; marks(got) != want {
		t.Errorf("%s, want %s", marks(got), want)
	}
	if got[2].At != 1024 || got[3].At != 3072 || got[3].Message.Length != 3172 || got[3].Message.Number != 1 {
		t.Errorf("at %d and %d of %v", got[2].At, got[3].At, &got[3].Message)
	}
}

// A READ takes as many PSNs as it has responses, which only the path MTU tells.
// The capture shows that at the first full response, or with the next request.
func TestRead(t *testing.T) {
	t.Parallel()
	for _, next := range []bool{false, true} {
		c := &traffic{}
		c.read(10, 3000)
		if next {
			c.request(rocev2.RCSendOnly, 13, 4)
		}
		c.response(rocev2.RCReadResponseFirst, 10, 0x1f, 1024)
		c.response(rocev2.RCReadResponseMiddle, 11, 0x1f, 1024)
		c.response(rocev2.RCReadResponseLast, 12, 0x1f, 952)
		if !next {
			c.request(rocev2.RCSendOnly, 13, 4)
		}
		c.ack(13)
		got, flows := c.run(t)
		if want := "- - - - - -"; marks(got) != want {
			t.Errorf("%s, want %s", marks(got), want)
		}
		conn := only(t, flows)
		if conn.MTU != 1024 || conn.Requests[0].Completed != 2 || conn.Requests[0].ResponsePayload != 3000 {
			t.Errorf("MTU %d, %+v", conn.MTU, conn.Requests[0].Counters)
		}
		last := got[3]
		if next {
			last = got[4]
		}
		if last.At != 2048 || last.Completes.Count != 1 || last.Completes.Last.Operation != rocev2.OpReadRequest {
			t.Errorf("the last response is at %d, completes %d", last.At, last.Completes.Count)
		}
	}
}

// A READ whose responses are lost is resumed in the middle.
func TestReadResumed(t *testing.T) {
	t.Parallel()
	c := &traffic{}
	c.read(10, 4096)
	c.response(rocev2.RCReadResponseFirst, 10, 0x1f, 1024)
	c.response(rocev2.RCReadResponseLast, 13, 0x1f, 1024) // 11 and 12 are missing
	c.read(11, 3072)
	c.response(rocev2.RCReadResponseFirst, 11, 0x1f, 1024)
	c.response(rocev2.RCReadResponseMiddle, 12, 0x1f, 1024)
	c.response(rocev2.RCReadResponseLast, 13, 0x1f, 1024)
	got, flows := c.run(t)
	if want := "- - gap retransmitted+duplicate out_of_order out_of_order retransmitted"; marks(got) != want {
		t.Errorf("%s, want %s", marks(got), want)
	}
	if got[2].Missing != 2 || got[3].Message.Number != 1 || got[5].At != 2048 {
		t.Errorf("missing %d, message %d, at %d", got[2].Missing, got[3].Message.Number, got[5].At)
	}
	if s := only(t, flows).Requests[0]; s.Messages != 1 || s.Completed != 1 || s.Repeated != 1 {
		t.Errorf("%+v", s.Counters)
	}
}

// Over UC nothing is acknowledged: a message is complete when its last packet
// has passed.
func TestUC(t *testing.T) {
	t.Parallel()
	c := &traffic{}
	c.request(rocev2.UCSendFirst, 1, 256)
	c.request(rocev2.UCSendLast, 2, 5)
	c.request(rocev2.UCSendOnly, 5, 5)
	c.packet(hostB, hostA, rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.UCSendOnly, DestQPN: qpA, PSN: 77}})
	got, flows := c.run(t)
	if want := "- - gap -"; marks(got) != want {
		t.Errorf("%s, want %s", marks(got), want)
	}
	conn := only(t, flows)
	if conn.A.QPN != qpA || conn.B.QPN != qpB || conn.Requests[0].Completed != 2 || got[1].Completes.Last.Length != 261 {
		t.Errorf("%v and %v: %+v", conn.A, conn.B, conn.Requests[0].Counters)
	}
}

// A queue pair number that is used again, far away in the PSNs, is another
// connection.
func TestRestart(t *testing.T) {
	t.Parallel()
	c := &traffic{}
	for _, psn := range []rocev2.PSN{100, 5000000} {
		c.request(rocev2.RCSendOnly, psn, 16)
		c.ack(psn)
	}
	got, flows := c.run(t)
	if n := len(flows.Connections()); n != 2 || marks(got) != "- - - -" {
		t.Errorf("%d connections, %s", n, marks(got))
	}
}

// A damaged packet is no part of the sequence: its receiver drops it.
func TestBadICRCIsNotAnalysed(t *testing.T) {
	t.Parallel()
	c := &traffic{}
	c.request(rocev2.RCSendOnly, 1, 16)
	c.request(rocev2.RCSendOnly, 2, 16)
	b := c.frames[1].Data
	b[len(b)-6] ^= 1
	c.request(rocev2.RCSendOnly, 2, 16)
	got, flows := c.run(t)
	if marks(got) != "- - -" {
		t.Error(marks(got))
	}
	if conn := only(t, flows); conn.BadICRC != 1 || conn.Requests[0].Packets != 2 {
		t.Errorf("%d bad, %+v", conn.BadICRC, conn.Requests[0].Counters)
	}
}

func request(id mad.CommID) *mad.REQ {
	return &mad.REQ{
		LocalID: id, ServiceID: mad.PortSpaceTCP.Service(7471), LocalQPN: qpA, StartingPSN: 900, PathMTU: 3,
		Primary: mad.Path{LocalGID: hostA, RemoteGID: hostB},
		Private: (&mad.IPHeader{SourcePort: 1234, Source: hostA, Destination: hostB}).AppendTo(nil),
	}
}

// Connection management tells the queue pairs and the first PSNs, so that even
// the loss of the first packet shows.
func TestConnectionManagement(t *testing.T) {
	t.Parallel()
	c := &traffic{}
	c.mad(hostA, hostB, request(7))
	c.mad(hostA, hostB, request(7))
	c.mad(hostB, hostA, &mad.REP{LocalID: 8, RemoteID: 7, LocalQPN: qpB, StartingPSN: 100})
	c.mad(hostA, hostB, &mad.RTU{LocalID: 7, RemoteID: 8})
	c.request(rocev2.RCSendOnly, 101, 16)
	c.packet(hostB, hostA, rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendOnly, DestQPN: qpA, PSN: 900}})
	c.mad(hostB, hostA, &mad.DREQ{LocalID: 8, RemoteID: 7, RemoteQPN: qpA})
	c.mad(hostA, hostB, &mad.DREP{LocalID: 7, RemoteID: 8})
	c.mad(hostA, hostB, request(9)) // the same queue pair, again
	c.mad(hostB, hostA, &mad.REJ{RemoteID: 9, Reason: mad.ReasonConsumer})
	got, flows := c.run(t)
	if want := "- retransmitted - - gap - - - - -"; marks(got) != want {
		t.Errorf("%s, want %s", marks(got), want)
	}
	list := flows.Connections()
	if len(list) != 2 || list[0].State != dissect.StateDisconnected || list[1].State != dissect.StateRejected || list[0].Management != 6 {
		t.Fatalf("%d connections", len(list))
	}
	if conn := list[0]; conn.Purpose != "tcp:7471" || conn.MTU != 1024 || conn.A.QPN != qpA || conn.B.QPN != qpB || got[4].Missing != 1 || got[5].From != 1 {
		t.Errorf("%+v", conn)
	}
}

func TestServiceResolution(t *testing.T) {
	t.Parallel()
	c := &traffic{}
	c.mad(hostA, hostB, &mad.SIDRREQ{RequestID: 3, ServiceID: mad.PortSpaceUDP.Service(7174)})
	c.mad(hostB, hostA, &mad.SIDRREP{RequestID: 3, QPN: qpB, QKey: 5})
	send := func(src, dst netip.Addr, from, to rocev2.QPN) {
		c.packet(src, dst, rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.UDSendOnly, DestQPN: to}, DETH: rocev2.DETH{SrcQPN: from}})
	}
	send(hostA, hostB, qpA, qpB)
	send(hostB, hostA, qpB, qpA)
	_, flows := c.run(t)
	conn := only(t, flows)
	if conn.State != dissect.StateEstablished || conn.A.QPN != qpA || conn.Requests[0].Packets != 1 || conn.Requests[1].Packets != 1 {
		t.Errorf("%v and %v, %v", conn.A, conn.B, conn.State)
	}
}

func TestCongestion(t *testing.T) {
	t.Parallel()
	c := &traffic{}
	c.request(rocev2.RCSendOnly, 1, 16)
	c.ack(1)
	c.packet(hostB, hostA, rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.CNP, DestQPN: qpA, BECN: true}})
	_, flows := c.run(t)
	if conn := only(t, flows); conn.CNPs != 1 {
		t.Errorf("%d CNPs, want 1", conn.CNPs)
	}
}

// The clock of the host that captured may be set back: no time is negative.
func TestTimeRunsBackward(t *testing.T) {
	t.Parallel()
	c := &traffic{at: time.Hour}
	c.request(rocev2.RCSendOnly, 1, 16)
	c.wait(-time.Minute)
	c.request(rocev2.RCSendOnly, 1, 16)
	c.request(rocev2.RCSendOnly, 2, 16)
	c.wait(-time.Minute)
	c.ack(2)
	got, flows := c.run(t)
	conn := only(t, flows)
	if got[1].Since != 0 || got[3].RTT != 0 || got[3].Completes.Count != 2 || conn.Last < conn.First {
		t.Errorf("since %v, round trip %v, from %v to %v", got[1].Since, got[3].RTT, conn.First, conn.Last)
	}
	if m := got[3].Completes.Last; m.Completed < m.Started {
		t.Errorf("completed %v before it started", m.Started-m.Completed)
	}
}
