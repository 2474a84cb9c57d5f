//go:build !portable

package owner_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/owner"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/lease"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// A buffer with packets for two leases comes to the first of them, which hands
// the others over by the owner: each packet comes to its own lease.
func TestStraysReachTheirLease(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(lease.ProgramsEnv, dir)
	addr := func() netip.Addr {
		n := rand.Uint32()
		return netip.AddrFrom4([4]byte{127, byte(n>>16)%250 + 2, byte(n >> 8), byte(n)%250 + 2})
	}
	here := addr()
	o, err := owner.Listen(owner.Config{Addr: here, Dir: dir + "/port", Slots: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	var links []transport.Link
	var slots []int
	for range 2 {
		l, err := lease.Open(here, lease.Config{})
		if err != nil {
			t.Fatal(err)
		}
		link := l.Links()[0]
		defer link.Close()
		part, _ := transport.LeaseOf(link)
		links, slots = append(links, link), append(slots, part.Slot)
	}
	from, err := udp.Open(addr(), udp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	if !from.Capabilities().SegmentOffload || !links[0].Capabilities().ReceiveOffload {
		t.Skip("the kernel does not coalesce")
	}
	b, path := transport.NewTxBatch(64<<10), transport.NewPath(from.Addr(), transport.Path{Dst: here})
	for i := range 8 {
		p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCWriteMiddle, PKey: rocev2.DefaultPKey,
			DestQPN: rocev2.QPN(0x100 + slots[i%2]), PSN: rocev2.PSN(i)}, Payload: make([]byte, 64)}
		b.Commit(copy(b.Room(), p.AppendTo(nil)), path)
	}
	if err := from.Send(b); err != nil {
		t.Fatal(err)
	}
	rx := transport.NewRxBatch(16)
	for i, link := range links {
		for got := 0; got < 4; {
			if err := link.Wait(); err != nil {
				t.Fatal(err)
			}
			if _, err := link.Recv(rx); err != nil {
				t.Fatal(err)
			}
			for j := range rx.Packets() {
				var k rocev2.Packet
				p := &rx.Packets()[j]
				if err := k.Parse(p.Data); err != nil || p.Src != from.Addr() {
					t.Fatal(err, p)
				}
				if int(k.BTH.DestQPN)%8 != slots[i] {
					transport.HandOver(link, p)
					continue
				}
				got++
			}
		}
	}
	out, in := links[0].Stats(), links[1].Stats()
	if out.TxStrays != 4 || out.StraysDropped != 0 || in.RxStrays != 4 || in.TxStrays != 0 || o.Stats().Strays != 4 {
		t.Errorf("%+v\n%+v\n%+v", out, in, o.Stats())
	}
}
