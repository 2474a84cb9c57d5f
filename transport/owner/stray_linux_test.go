//go:build !portable

package owner_test

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/lease"
	"github.com/gosoftroce/rocev2/transport/owner"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// A packet that the kernel has given to another leaseholder comes to the one
// whose it is, as it was.
func TestStrays(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	o := own(t, owner.Config{})
	var links []transport.Link
	for range 2 {
		l, err := lease.OpenAt(o.Socket(), lease.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Links()[0].Close() })
		links = append(links, l.Links()[0])
	}
	to, _ := transport.LeaseOf(links[1])
	inner := packetFor(to)
	from := netip.MustParseAddr("127.0.0.9")
	transport.HandOver(links[0], &transport.RxPacket{Data: append(inner[:len(inner):len(inner)], 0, 0, 0, 0), Src: from, SrcPort: 50000,
		TrafficClass: 2, ICRC: transport.ICRCWeak})
	b := transport.NewRxBatch(4)
	for n := 0; n == 0; {
		if err := links[1].Wait(); err != nil {
			t.Fatal(err)
		}
		var err error
		if n, err = links[1].Recv(b); err != nil {
			t.Fatal(err)
		}
	}
	got := b.Packets()[0]
	if !bytes.Equal(got.Data[:len(got.Data)-rocev2.ICRCLen], inner) || got.Src != from || got.SrcPort != 50000 || got.TrafficClass != 2 {
		t.Errorf("%+v", got)
	}
	if s := o.Stats(); s.Strays != 1 {
		t.Errorf("%+v", s)
	}
}

func packetFor(to transport.Lease) []byte {
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendOnly, DestQPN: rocev2.QPN(5*to.Slots + to.Slot)}, Payload: []byte("lost and found..")}
	return p.AppendTo(nil)
}

// A leaseholder that hands over more than it may has no more of the owner's
// time, and cannot flood another one by it.
func TestStraysOfOneLeaseAreBounded(t *testing.T) {
	const rate = 20000
	if !testnet.Isolated(t) {
		return
	}
	o := own(t, owner.Config{})
	begin := time.Now()
	token := leaseToken(t, o)
	victim, sender := openLease(t, o, lease.Config{}), openLease(t, o, lease.Config{})
	to, _ := transport.LeaseOf(victim)
	sendForged(t, sender, o, token, packetFor(to), 4*rate)
	s := o.Stats()
	took := time.Since(begin) // on a busy machine seconds
	if most := rate * (1 + took.Seconds()); s.Strays == 0 || float64(s.Strays) > most+1 {
		t.Errorf("%d were handed over in %v, and %d not", s.Strays, took, s.Dropped)
	}
}

// What the owner relays in a run comes one by one to a socket that does not
// coalesce, and is unwrapped all the same.
func TestRelayedWithoutGRO(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	o := own(t, owner.Config{})
	token := leaseToken(t, o)
	to, sender := openLease(t, o, lease.Config{UDP: udp.Config{DisableGRO: true}}), openLease(t, o, lease.Config{})
	part, _ := transport.LeaseOf(to)
	sendForged(t, sender, o, token, packetFor(part), 64)
	b := transport.NewRxBatch(64)
	for got := 0; got < 64; {
		if err := to.Wait(); err != nil {
			t.Fatal(err)
		}
		n, err := to.Recv(b)
		if err != nil {
			t.Fatal(err)
		}
		got += n
		for i, p := range b.Packets() {
			if lease.IsEnvelope(p.Data) {
				t.Fatalf("packet %d stays wrapped: ICRC %v", i, p.ICRC)
			}
		}
	}
}

func openLease(t *testing.T, o *owner.Owner, c lease.Config) transport.Link {
	t.Helper()
	l, err := lease.OpenAt(o.Socket(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Links()[0].Close() })
	return l.Links()[0]
}

// leaseToken takes a lease whose token it tells.
func leaseToken(t *testing.T, o *owner.Owner) lease.Token {
	t.Helper()
	c := knock(t, o)
	hello := lease.Message{Hello: &lease.Hello{Version: lease.Version, Shards: 1}}
	if _, err := c.Write(hello.Append(nil)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, lease.MaxMessage)
	n, err := c.Read(answer)
	if err != nil {
		t.Fatal(err)
	}
	m, err := lease.Parse(answer[:n])
	if err != nil || m.Grant == nil {
		t.Fatalf("%s, %v", answer[:n], err)
	}
	return m.Grant.Token
}

// sendForged sends envelopes to an owner until it has taken the given number,
// whatever it does with them.
func sendForged(t *testing.T, from transport.Link, o *owner.Owner, token lease.Token, inner []byte, many uint64) {
	t.Helper()
	local := netip.MustParseAddr("127.0.0.1")
	path := transport.NewPath(local, transport.Path{Dst: local})
	b := transport.NewTxBatch(64 << 10)
	for s := o.Stats(); s.Strays+s.Dropped < many; s = o.Stats() {
		b.Reset()
		for range 64 {
			e := lease.Envelope{To: 1, Token: token, Addr: local, Port: 4791}
			b.Commit(e.Put(b.Room(), inner), path)
		}
		if err := from.Send(b); err != nil {
			t.Fatal(err)
		}
	}
}
