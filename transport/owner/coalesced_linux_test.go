//go:build !portable

package owner_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/lease"
	"github.com/gosoftroce/rocev2/transport/owner"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// leases are two leases of one owner, and a link that sends runs of packets to
// their address.
type leases struct {
	addr  netip.Addr
	links []transport.Link
	slots []int
	owner *owner.Owner
	from  *udp.Link
}

func newLeases(t *testing.T) (l leases) {
	dir := t.TempDir()
	t.Setenv(lease.ProgramsEnv, dir)
	addr := func() netip.Addr {
		n := rand.Uint32()
		return netip.AddrFrom4([4]byte{127, byte(n>>16)%250 + 2, byte(n >> 8), byte(n)%250 + 2})
	}
	l.addr = addr()
	var err error
	if l.owner, err = owner.Listen(owner.Config{Addr: l.addr, Dir: dir + "/port", Slots: 8}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.owner.Close() })
	for range 2 {
		k, err := lease.Open(l.addr, lease.Config{})
		if err != nil {
			t.Fatal(err)
		}
		link := k.Links()[0]
		t.Cleanup(func() { link.Close() })
		part, _ := transport.LeaseOf(link)
		l.links, l.slots = append(l.links, link), append(l.slots, part.Slot)
	}
	if l.from, err = udp.Open(addr(), udp.Config{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.from.Close() })
	if !l.from.Capabilities().SegmentOffload || !l.links[0].Capabilities().ReceiveOffload {
		t.Skip("the kernel does not coalesce datagrams (UDP_GRO); Linux 5.0 and later do")
	}
	return l
}

// send sends packets in one call.
func (l *leases) send(t *testing.T, packets ...rocev2.Packet) {
	b, path := transport.NewTxBatch(64<<10), transport.NewPath(l.from.Addr(), transport.Path{Dst: l.addr})
	for i := range packets {
		b.Commit(copy(b.Room(), packets[i].AppendTo(nil)), path)
	}
	if err := l.from.Send(b); err != nil {
		t.Fatal(err)
	}
}

// receive returns n packets that are for lease i, and hands over the others.
func (l *leases) receive(t *testing.T, i, n int) (got []rocev2.Packet) {
	rx := transport.NewRxBatch(16)
	for len(got) < n {
		if err := l.links[i].Wait(); err != nil {
			t.Fatal(err)
		}
		if _, err := l.links[i].Recv(rx); err != nil {
			t.Fatal(err)
		}
		for j := range rx.Packets() {
			var k rocev2.Packet
			p := &rx.Packets()[j]
			if err := k.Parse(p.Data); err != nil || p.Src != l.from.Addr() {
				t.Fatal(err, p)
			}
			if int(k.BTH.DestQPN)%8 != l.slots[i] {
				transport.HandOver(l.links[i], p)
				continue
			}
			got = append(got, k)
		}
	}
	return got
}

// to makes the header of a packet to a queue pair of lease i.
func (l *leases) to(i int, op rocev2.Opcode, psn int) rocev2.BTH {
	return rocev2.BTH{Opcode: op, PKey: rocev2.DefaultPKey, DestQPN: rocev2.QPN(0x100 + l.slots[i]), PSN: rocev2.PSN(psn)}
}

// A buffer with packets for two leases comes to the first of them, which hands
// the others over by the owner: each packet comes to its own lease.
func TestStraysReachTheirLease(t *testing.T) {
	l := newLeases(t)
	var packets []rocev2.Packet
	for i := range 8 {
		packets = append(packets, rocev2.Packet{BTH: l.to(i%2, rocev2.RCWriteMiddle, i), Payload: make([]byte, 64)})
	}
	l.send(t, packets...)
	l.receive(t, 0, 4)
	l.receive(t, 1, 4)
	out, in := l.links[0].Stats(), l.links[1].Stats()
	if out.TxStrays != 4 || out.StraysDropped != 0 || in.RxStrays != 4 || in.TxStrays != 0 || l.owner.Stats().Strays != 4 {
		t.Errorf("%+v\n%+v\n%+v", out, in, l.owner.Stats())
	}
}

// A SEND of few bytes, and an acknowledgement, which is shorter and so ends the
// run, come in one buffer: for one lease, or for two.
func TestRunEndsWithAcknowledgement(t *testing.T) {
	for _, c := range []struct{ send, ack int }{{0, 0}, {0, 1}, {1, 0}} {
		l := newLeases(t)
		l.send(t, rocev2.Packet{BTH: l.to(c.send, rocev2.RCSendOnly, 7), Payload: []byte("8 bytes!")},
			rocev2.Packet{BTH: l.to(c.ack, rocev2.RCAcknowledge, 9)})
		strays := uint64(1)
		if c.send == c.ack {
			strays = 0
		}
		n := 2 - int(strays)
		got := l.receive(t, c.send, n)
		if strays > 0 {
			got = append(got, l.receive(t, c.ack, 1)...)
		}
		send, ack := &got[0], &got[1]
		if send.BTH.Opcode != rocev2.RCSendOnly || send.BTH.PSN != 7 || string(send.Payload) != "8 bytes!" {
			t.Errorf("%+v: the SEND is %+v", c, send)
		}
		if ack.BTH.Opcode != rocev2.RCAcknowledge || ack.BTH.PSN != 9 || int(ack.BTH.DestQPN)%8 != l.slots[c.ack] {
			t.Errorf("%+v: the acknowledgement is %+v", c, ack)
		}
		if out, in := l.links[c.send].Stats(), l.links[c.ack].Stats(); out.TxStrays != strays || in.RxStrays != strays {
			t.Errorf("%+v: %d strays left and %d came, not %d", c, out.TxStrays, in.RxStrays, strays)
		}
	}
}
