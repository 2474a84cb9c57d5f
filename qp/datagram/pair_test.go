package datagram

import (
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

type anyCQ struct{ got []ib.Status }

func (q *anyCQ) Complete(wc *ib.WC) bool {
	q.got = append(q.got, wc.Status)
	return true
}

// newPair returns both halves of a service in RTS.
func newPair(typ ib.QPType) (*Pair, *conn.Conn, *anyCQ) {
	table, cq := memreg.NewTable(func() uint32 { return 7 }), new(anyCQ)
	c := &conn.Conn{QPN: 5, State: ib.StateRTS, Memory: table, PD: table.AllocPD(), Scratch: new(conn.Scratch)}
	c.SetMTU(rocev2.MTU1024)
	p := new(Pair)
	p.Init(c, Config{Type: typ, PortMTU: rocev2.MTU1024, MaxSendWR: 4, MaxSendSGE: 1, SendCQ: cq},
		ReceiverConfig{RecvCQ: cq, MaxRecvWR: 4, MaxRecvSGE: 1})
	return p, c, cq
}

// TestPairAlone: each service takes what is for it, refuses the rest, and
// flushes the sends and the receives once when the connection has ended.
func TestPairAlone(t *testing.T) {
	t.Parallel()
	handle := func(p *Pair, op rocev2.Opcode, qpn rocev2.QPN, pkey uint16) conn.Drop {
		info, _ := op.Info()
		a := &conn.Arrival{Packet: &rocev2.Packet{BTH: rocev2.BTH{Opcode: op, DestQPN: qpn, PKey: pkey}}}
		if p.UC != nil {
			return p.HandleRequest(a, info)
		}
		return p.HandleDatagram(a, info)
	}
	uc, c, cq := newPair(ib.UC)
	if d := handle(uc, rocev2.CNP, 5, rocev2.DefaultPKey); d != conn.DropNone || c.Stats.Stats().CNPsReceived != 1 {
		t.Errorf("UC: CNP: %v", d)
	}
	if d := handle(uc, rocev2.UCSendOnly, 5, rocev2.DefaultPKey); d != conn.DropRNR {
		t.Errorf("UC: SEND without a receive: %v", d)
	}
	ud, cd, _ := newPair(ib.UD)
	for _, x := range []struct {
		op   rocev2.Opcode
		qpn  rocev2.QPN
		pkey uint16
		want conn.Drop
	}{
		{rocev2.UDSendOnly, 5, rocev2.DefaultPKey, conn.DropRNR},
		{rocev2.UDSendOnly, rocev2.MulticastQPN, rocev2.DefaultPKey, conn.DropRNR},
		{rocev2.UDSendOnly, 6, rocev2.DefaultPKey, conn.DropQPN},
		{rocev2.UDSendOnly, 5, 1, conn.DropPKey},
		{rocev2.CNP, 5, rocev2.DefaultPKey, conn.DropService},
	} {
		if d := handle(ud, x.op, x.qpn, x.pkey); d != x.want {
			t.Errorf("UD: %+v: %v", x, d)
		}
	}
	if cd.Fail(conn.EndLocal); handle(ud, rocev2.UDSendOnly, 5, rocev2.DefaultPKey) != conn.DropState {
		t.Error("UD: taken in ERR")
	}
	if err := uc.PostRecv(&ib.RecvWR{}); err != nil {
		t.Fatal(err)
	}
	wrs := []ib.SendWR{{Opcode: ib.OpSend}, {Opcode: ib.OpRead}}
	if i, err := uc.Send.PostAll(wrs); i != 1 || err == nil || uc.Send.Queued() != 0 {
		t.Errorf("one of two is refused: %d, %v, %d queued", i, err, uc.Send.Queued())
	}
	if _, err := uc.Send.PostAll(wrs[:1]); err != nil {
		t.Fatal(err)
	}
	c.Fail(conn.EndLocal)
	for range 2 {
		if uc.Flush(); len(cq.got) != 2 {
			t.Errorf("completions %v", cq.got)
		}
	}
	if handle(uc, rocev2.UCSendOnly, 5, rocev2.DefaultPKey) != conn.DropState || uc.Drain() {
		t.Error("UC: taken in ERR")
	}
}
