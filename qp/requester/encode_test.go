package requester

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
)

// newEncoder returns an encoder of packets of 256 bytes to queue pair 7, the
// memory that it reads, and its key, without the other parts.
func newEncoder(t *testing.T) (encoder, *memreg.Region, []byte) {
	t.Helper()
	table := memreg.NewTable(rand.New(rand.NewPCG(1, 1)).Uint32)
	pd := table.AllocPD()
	memory := make([]byte, 1024)
	for i := range memory {
		memory[i] = byte(i * 7)
	}
	mr, err := table.Register(pd, memreg.Local(memory), memreg.Options{Access: ib.LocalWrite})
	if err != nil {
		t.Fatal(err)
	}
	ring := new(queue.SendRing)
	ring.Init(16, 1, 64)
	c := &conn.Conn{MTU: 256, Shift: 8, Memory: table, PD: pd}
	c.Attr.DestQPN = 7
	return encoder{c, ring}, mr, memory
}

// parsed returns what a packet says.
func (e encoder) parsed(t *testing.T, rq *request) rocev2.Packet {
	t.Helper()
	var buf [rocev2.MaxPacketLen]byte
	n, f := e.packet(rq, buf[:])
	if f != ib.FaultNone {
		t.Fatal(f)
	}
	var p rocev2.Packet
	if err := p.Parse(buf[:n+rocev2.ICRCLen]); err != nil {
		t.Fatal(err)
	}
	p.Payload = bytes.Clone(p.Payload)
	return p
}

// TestEncoder: a packet has the opcode of its place, the extended headers of
// that (IBTA 9.2.1), and its part of the message.
func TestEncoder(t *testing.T) {
	t.Parallel()
	e, mr, memory := newEncoder(t)
	remote := ib.RemoteAddr{Addr: 0x1000, RKey: 0x55}
	for i, c := range []struct {
		wr   ib.SendWR
		rq   request
		want rocev2.Opcode
		va   uint64
		dma  uint32
		imm  uint32
		last bool
	}{
		{ib.SendWR{Opcode: ib.OpWrite}, request{n: 256, psns: 1}, rocev2.RCWriteFirst, 0x1000, 600, 0, false},
		{ib.SendWR{Opcode: ib.OpWrite}, request{rel: 1, off: 256, n: 256, psns: 1}, rocev2.RCWriteMiddle, 0, 0, 0, false},
		{ib.SendWR{Opcode: ib.OpWriteImm, Imm: 9}, request{rel: 2, off: 512, n: 88, psns: 1}, rocev2.RCWriteLastImm, 0, 0, 9, true},
		{ib.SendWR{Opcode: ib.OpSend}, request{rel: 2, off: 512, n: 88, psns: 1}, rocev2.RCSendLast, 0, 0, 0, true},
		{ib.SendWR{Opcode: ib.OpRead}, request{rel: 1, off: 256, n: 344, psns: 2}, rocev2.RCReadRequest, 0x1100, 344, 0, true},
	} {
		c.wr.SGList, c.wr.Remote, c.wr.Solicited = []ib.SGE{mr.SGE(0, 600)}, remote, true
		e.ring.Push(&c.wr, 600, false)
		rq := c.rq
		rq.i, rq.w, rq.psn, rq.ack = uint32(i), e.ring.At(uint32(i)), rocev2.PSN(100+i), i%2 == 0
		rq.w.PSNs = 3
		p := e.parsed(t, &rq)
		h := rocev2.BTH{Opcode: c.want, Solicited: c.last && rq.w.Kind&ib.OpConsumesRecv != 0, PKey: rocev2.DefaultPKey, DestQPN: 7, PSN: rq.psn, AckReq: rq.ack}
		if p.BTH != h {
			t.Errorf("%v: %+v, want %+v", c.want, p.BTH, h)
		}
		if c.dma > 0 && (p.RETH != rocev2.RETH{VA: c.va, RKey: 0x55, Length: c.dma}) || c.imm > 0 && p.Imm != c.imm {
			t.Errorf("%v: %+v, immediate data %d", c.want, p.RETH, p.Imm)
		}
		if rq.w.Kind&ib.OpCarries != 0 && !bytes.Equal(p.Payload, memory[rq.off:rq.off+rq.n]) {
			t.Errorf("%v: another part of the message", c.want)
		}
	}
}

// TestEncoderOperands: an atomic has its operands in the header, whatever else
// has gone through the ring (IBTA 9.4.5).
func TestEncoderOperands(t *testing.T) {
	t.Parallel()
	e, mr, _ := newEncoder(t)
	for i, c := range []struct {
		wr   ib.SendWR
		want rocev2.AtomicETH
	}{
		{ib.SendWR{Opcode: ib.OpFetchAdd, CompareAdd: 5, Swap: 6}, rocev2.AtomicETH{VA: 8, RKey: 9, SwapAdd: 5}},
		{ib.SendWR{Opcode: ib.OpCompareSwap, CompareAdd: 5, Swap: 6}, rocev2.AtomicETH{VA: 8, RKey: 9, SwapAdd: 6, Compare: 5}},
	} {
		c.wr.SGList, c.wr.Remote = []ib.SGE{mr.SGE(0, 8)}, ib.RemoteAddr{Addr: 8, RKey: 9}
		e.ring.Push(&c.wr, 8, false)
		w := e.ring.At(uint32(i))
		w.PSNs = 1
		if p := e.parsed(t, &request{w: w, i: uint32(i), psns: 1}); p.AtomicETH != c.want {
			t.Errorf("%v: %+v, want %+v", c.wr.Opcode, p.AtomicETH, c.want)
		}
	}
}

// TestEncoderFault: of memory that is not registered no packet is made.
func TestEncoderFault(t *testing.T) {
	t.Parallel()
	e, _, _ := newEncoder(t)
	e.ring.Push(&ib.SendWR{Opcode: ib.OpWrite, SGList: []ib.SGE{{Addr: 1, Length: 8, LKey: 0xbad}}}, 8, false)
	w := e.ring.At(0)
	w.PSNs = 1
	var buf [rocev2.MaxPacketLen]byte
	if _, f := e.packet(&request{w: w, psns: 1, n: 8}, buf[:]); f == ib.FaultNone {
		t.Error("a packet is made of memory with another key")
	}
}
