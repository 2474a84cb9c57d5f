package keychannel_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/guard"
)

// wire is a link that keeps what was sent for its peer.
type wire struct {
	transport.Link // nil: what a test does not call
	addr           netip.Addr
	peer           *wire
	arrived        [][]byte
	last           []byte
}

func (w *wire) Addr() netip.Addr { return w.addr }

func (w *wire) Capabilities() transport.Capabilities {
	return transport.Capabilities{Port: rocev2.UDPPort, LinkMTU: 1500, MTU: rocev2.MTU1024}
}

func (w *wire) Send(b *transport.TxBatch) error {
	for i := range b.Len() {
		data, _ := b.Sealed(i)
		w.last = bytes.Clone(data)
		w.peer.arrived = append(w.peer.arrived, bytes.Clone(data))
	}
	return nil
}

func (w *wire) Recv(b *transport.RxBatch) (int, error) {
	b.Reset()
	v := transport.NewVerifier(netip.AddrPortFrom(w.addr, rocev2.UDPPort))
	for _, d := range w.arrived {
		b.Split(b.Copy(d), 0, transport.RxPacket{Src: w.peer.addr, SrcPort: rocev2.UDPPort, Dst: w.addr}, v)
	}
	w.arrived = nil
	return b.Len(), nil
}

// talk sends a packet each way with the keys of two sides.
func talk(t *testing.T, a, b *side) {
	t.Helper()
	wa, wb := &wire{addr: addrA}, &wire{addr: addrB}
	wa.peer, wb.peer = wb, wa
	la := guard.New(wa, guard.Config{Table: a.table, Want: a.Want})
	lb := guard.New(wb, guard.Config{Table: b.table, Want: b.Want})
	oneWay(t, la, lb)
	oneWay(t, lb, la)
}

// oneWay sends a packet.
func oneWay(t *testing.T, from, to *guard.Link) {
	t.Helper()
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCWriteMiddle, PKey: rocev2.DefaultPKey, DestQPN: 256}, Payload: []byte("data")}
	tx, rx := transport.NewTxBatch(1<<16), transport.NewRxBatch(4)
	tx.Commit(copy(tx.Room(), p.AppendTo(nil)), transport.NewPath(from.Addr(), transport.Path{Dst: to.Addr()}))
	if err := from.Send(tx); err != nil {
		t.Fatal(err)
	}
	if n, err := to.Recv(rx); n != 1 || err != nil {
		t.Errorf("%v to %v: %d packets, %v: %+v, %+v", from.Addr(), to.Addr(), n, err, from.Counters(), to.Counters())
	}
}
