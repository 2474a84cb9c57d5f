package attack

import (
	"bytes"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/verbs"
)

// A management datagram that is longer than the buffer that waits for it ended
// the management queue pair of the host, and with it all connecting.
func TestMADLongerThanItsBuffer(t *testing.T) {
	bugClass(t, func(t *Trial) {
		for _, c := range []struct {
			typ  verbs.QPType
			qkey uint32
		}{{verbs.GSI, gsiKey}, {verbs.UD, labQKey}} {
			e := t.lab.service(nil, c.typ, madSlot)
			before := bytes.Clone(e.mr.Bytes())
			for _, n := range []int{madLen + 1, madLen + 4, 512, 1024, 4096} {
				t.lab.forge(t.lab.ghost, rocev2.UDPPort, datagramTo(e, n, c.qkey))
			}
			t.lab.fence()
			t.must(e.qp.State() == verbs.StateRTS, "%v: state %v", c.typ, e.qp.State())
			t.must(bytes.Equal(before, e.mr.Bytes()), "%v: memory has changed", c.typ)
			t.must(e.qp.Stats().Drops.TooLong == 5, "%v: drops %+v", c.typ, e.qp.Stats().Drops)
			for i := range uint64(8) { // no receive was lost
				t.lab.forge(t.lab.ghost, rocev2.UDPPort, datagramTo(e, madLen, c.qkey))
				wc, err := t.lab.wait(e.rcq)
				check(err)
				t.must(wc.ID == i && wc.ByteLen == madSlot, "%v: completion %+v", c.typ, wc)
			}
			mem := e.mr.Bytes()
			t.must(mem[madSlot-1] == 0xee && mem[madSlot] == slotFill, "%v: bytes %x at the end of the receive", c.typ, mem[madSlot-2:madSlot+2])
		}
	})
}

// Datagrams of every length fill their receive and not a byte more: pad was
// counted as payload.
func TestDatagramPadIsNotWritten(t *testing.T) {
	bugClass(t, func(t *Trial) {
		for n := range 8 {
			e := t.lab.service(nil, verbs.UD, madSlot)
			t.lab.forge(t.lab.ghost, rocev2.UDPPort, datagramTo(e, n, labQKey))
			wc, err := t.lab.wait(e.rcq)
			check(err)
			t.must(wc.ByteLen == uint32(verbs.GRHLen+n), "%d bytes: completion %+v", n, wc)
			rest := e.mr.Bytes()[verbs.GRHLen+n : 2*madSlot]
			t.must(bytes.Equal(rest, bytes.Repeat([]byte{slotFill}, len(rest))), "%d bytes: more was written", n)
		}
	})
}

// One bad datagram ended a queue pair that serves all hosts. Whatever is sent
// to it, even with the right Q_Key, a UD queue pair goes on.
func TestNoDatagramEndsTheQueuePair(t *testing.T) {
	bugClass(t, func(t *Trial) {
		for _, typ := range []verbs.QPType{verbs.UD, verbs.GSI} {
			e := t.lab.service(nil, typ, madSlot)
			qkey := e.qp.Query().QKey
			for op := range 256 {
				o := rocev2.Opcode(op)
				info, ok := o.Info()
				if !ok {
					continue
				}
				for _, n := range []int{0, 1, 256, 257, 4096} {
					if n > 0 && info.Payload == rocev2.PayloadNone {
						break
					}
					t.lab.forge(t.lab.ghost, rocev2.UDPPort, encode(o, e.qp.QPN(), verbs.PSN(n), func(p *rocev2.Packet) {
						p.DETH = rocev2.DETH{QKey: qkey, SrcQPN: 1}
						p.RETH = rocev2.RETH{VA: e.mr.Addr(), RKey: uint32(e.mr.RKey()), Length: uint32(n)}
						p.Payload = bytes.Repeat([]byte{0xee}, n)
					}))
					t.result.Sent++
				}
				t.lab.fence()
			}
			t.must(e.qp.State() == verbs.StateRTS, "%v: state %v", typ, e.qp.State())
			t.must(e.qp.Stats().TxPackets == 0, "%v: answered with %d packets", typ, e.qp.Stats().TxPackets)
			s := e.qp.Stats()
			t.must(s.RecvDone == 6, "%v: %d datagrams of the service and of the right length arrived, not 6: %+v", typ, s.RecvDone, s.Drops)
		}
	})
}

// A gap in a WRITE over UC stopped the receiver for ever, and one in a SEND
// took the next message with it. The next message that begins is executed.
func TestUnreliableConnectionIsNotStuck(t *testing.T) {
	bugClass(t, func(t *Trial) {
		h := t.lab.hostile(true)
		full := bytes.Repeat([]byte{0xee}, 1024)
		for _, lost := range []rocev2.Opcode{rocev2.UCWriteFirst, rocev2.UCSendFirst} {
			e := t.lab.service(h, verbs.UC, 4096)
			psn := e.expects()
			send := func(op rocev2.Opcode, ahead int, b []byte) {
				check(h.send(encode(op, e.qp.QPN(), psn.Add(ahead), func(p *rocev2.Packet) {
					p.BTH.AckReq = false
					p.RETH = rocev2.RETH{VA: e.mr.Addr() + 1<<19, RKey: uint32(e.mr.RKey()), Length: 4096}
					p.Payload = b
				})))
			}
			done := e.qp.Stats().RecvDone
			send(lost, 0, full) // and never its last packet
			for i := range 4 {
				send(rocev2.UCSendOnly, 100+i, forged)
			}
			t.lab.fence()
			t.must(e.qp.Stats().RecvDone == done+4, "after a lost end of %v: %d of 4 messages", lost, e.qp.Stats().RecvDone-done)
			t.must(e.qp.Stats().MessagesDropped == 1, "%d messages dropped", e.qp.Stats().MessagesDropped)
			t.must(e.qp.State() == verbs.StateRTS, "state %v", e.qp.State())
		}
	})
}
