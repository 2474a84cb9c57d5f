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
	arrived        []arrival
	last           []byte
}

// arrival is what has come, from an address.
type arrival struct {
	data []byte
	from netip.Addr
}

func (w *wire) Addr() netip.Addr { return w.addr }

func (w *wire) Capabilities() transport.Capabilities {
	return transport.Capabilities{Port: rocev2.UDPPort, LinkMTU: 1500, MTU: rocev2.MTU1024}
}

func (w *wire) Send(b *transport.TxBatch) error {
	for i := range b.Len() {
		data, _ := b.Sealed(i)
		w.last = bytes.Clone(data)
		w.peer.arrived = append(w.peer.arrived, arrival{bytes.Clone(data), w.addr})
	}
	return nil
}

func (w *wire) Recv(b *transport.RxBatch) (int, error) {
	b.Reset()
	v := transport.NewVerifier(netip.AddrPortFrom(w.addr, rocev2.UDPPort))
	for _, d := range w.arrived {
		b.Split(b.Copy(d.data), 0, transport.RxPacket{Src: d.from, SrcPort: rocev2.UDPPort, Dst: w.addr}, v)
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
	sendTo(t, from, to.Addr())
	if n := receives(t, to); n != 1 {
		t.Errorf("%v to %v: %d packets: %+v, %+v", from.Addr(), to.Addr(), n, from.Counters(), to.Counters())
	}
}
