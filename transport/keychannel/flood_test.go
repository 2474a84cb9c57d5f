package keychannel_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/guard"
	"github.com/gosoftroce/rocev2/transport/keychannel"
)

// blackHole has connections to some addresses neither made nor refused.
func (n *network) blackHole(from netip.Addr, in netip.Prefix) func(*keychannel.Config) {
	return func(c *keychannel.Config) {
		c.Dial = func(ctx context.Context, peer netip.Addr) (net.Conn, error) {
			if in.Contains(peer) {
				<-ctx.Done()
				return nil, errors.New("no answer")
			}
			return n.dial(from, peer)
		}
	}
}

// TestCrowdedNetworkMakesRoom: a host with a whole network of addresses pushes
// out its own connections, not one of another network, whatever came first.
func TestCrowdedNetworkMakesRoom(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	for own, of := range map[string][2]string{
		"192.0.2.9":   {"192.0.2.200", "10.7.9.0"},
		"2001:db8::9": {"2001:db8:1:1::1", "2001:db8:1:2::"},
	} {
		own, honest, crowd := netip.MustParseAddr(own), netip.MustParseAddr(of[0]), netip.MustParseAddr(of[1])
		cfg := config(t, ca, testcert.Subject{Addr: own.String()})
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork()
			a := n.open(t, own, cfg, nil)
			first, err := n.dial(honest, own)
			if err != nil {
				t.Fatal(err)
			}
			defer first.Close()
			for range 100 {
				crowd = crowd.Next()
				k, err := n.dial(crowd, own)
				if err != nil {
					t.Fatal(err)
				}
				defer k.Close()
			}
			synctest.Wait()
			if err := first.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := first.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%v: the connection from %v: %v", own, honest, err)
			}
			if c := a.Counters(); c.Refused != 37 {
				t.Errorf("%v: %+v", own, c)
			}
			closeAll(t, a)
		})
	}
}

// TestCrowdAtTheAddressOfAPeer: a process of the peer's host takes all places
// that there are for its address. The two agree all the same, as the side that
// is full connects to the peer.
func TestCrowdAtTheAddressOfAPeer(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	one, two := config(t, ca, testcert.Subject{Addr: addrA.String()}), config(t, ca, testcert.Subject{Addr: addrB.String()})
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		a, b := n.open(t, addrA, one, nil), n.open(t, addrB, two, nil)
		defer closeAll(t, a, b)
		began := time.Now()
		for i := 0; a.state(addrB).Since.IsZero() && time.Since(began) < time.Minute; i++ {
			k, err := n.dial(addrA, addrB)
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
			if i > 100 { // the places are taken
				a.Want(addrB, guard.ToSend)
			}
			time.Sleep(10 * time.Millisecond)
		}
		agreed(t, a, b, addrA, addrB)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		if n := b.Counters().Hints; n > 10 {
			t.Errorf("the peer was asked %d times", n)
		}
	})
}

// TestFloodAtRestart: a side is started again while many strangers send packets
// with unknown keys, of addresses where no host answers. A peer that goes on
// sending as before is heard within two seconds.
func TestFloodAtRestart(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	one, two := config(t, ca, testcert.Subject{Addr: addrA.String()}), config(t, ca, testcert.Subject{Addr: addrB.String()})
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		dead := n.blackHole(addrB, netip.MustParsePrefix("10.9.0.0/16"))
		a, b := n.open(t, addrA, one, nil), n.open(t, addrB, two, dead)
		a.Want(addrB, guard.ToSend)
		synctest.Wait()
		wa, wb := &wire{addr: addrA}, &wire{addr: addrB}
		wa.peer, wb.peer = wb, wa
		la := guard.New(wa, guard.Config{Table: a.table, Want: a.Want})
		oneWay(t, la, guard.New(wb, guard.Config{Table: b.table, Want: b.Want}))
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		b = n.open(t, addrB, two, dead)
		lb := guard.New(wb, guard.Config{Table: b.table, Want: b.Want})
		heard, began := 0, time.Now()
		for i := 0; heard == 0 && time.Since(began) < time.Minute; i++ {
			for k := range 100 {
				wb.forged(netip.AddrFrom4([4]byte{10, 9, byte(k), byte(i)}))
			}
			sendTo(t, la, addrB)
			heard = receives(t, lb)
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
		closeAll(t, a, b)
	})
}

// forged has a packet arrive that is sealed with an unknown key.
func (w *wire) forged(from netip.Addr) {
	head := psp.Header{Next: psp.UDP, SPI: psp.SecondMaster | 77<<16, IV: 1}
	w.arrived = append(w.arrived, arrival{append(head.AppendTo(nil), make([]byte, 64)...), from})
}

// TestDeadPeersKeepNobodyOut: many peers that do not answer have a side that
// sends to them agree with others all the same.
func TestDeadPeersKeepNobodyOut(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	one, two := config(t, ca, testcert.Subject{Addr: addrA.String()}), config(t, ca, testcert.Subject{Addr: addrB.String()})
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		a := n.open(t, addrA, one, n.blackHole(addrA, netip.MustParsePrefix("10.9.0.0/16")))
		b := n.open(t, addrB, two, nil)
		for i := range 300 { // 30 seconds
			for k := range 40 {
				a.Want(netip.AddrFrom4([4]byte{10, 9, 0, byte(k)}), guard.ToSend)
			}
			if i >= 250 {
				a.Want(addrB, guard.ToSend)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if st := a.state(addrB); st.Since.IsZero() || time.Since(st.Since) < 4*time.Second {
			t.Errorf("%+v", st)
		}
		closeAll(t, a, b)
	})
}

// TestHintsOfMany: packets with unknown keys that are forged as those of all
// peers, or of many strangers, have this side connect a bounded number of times
// in all.
func TestHintsOfMany(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	any := config(t, ca, testcert.Subject{CN: "all"})
	for _, c := range []struct {
		known bool
		hosts int
		most  int // connections in a second, and at once
	}{{true, 150, 50}, {false, 250, 100}} {
		synctest.Test(t, func(t *testing.T) {
			const seconds = 5
			n := newNetwork()
			anywhere := func(c *keychannel.Config) { c.AnyAddress = true }
			sides := []*side{n.open(t, addrA, any, anywhere)}
			a := sides[0]
			defer func() { closeAll(t, sides...) }()
			var all []netip.Addr
			for i := range c.hosts {
				all = append(all, netip.AddrFrom4([4]byte{10, 3, 0, byte(i)}))
				if c.known {
					sides = append(sides, n.open(t, all[i], any, anywhere))
					a.Want(all[i], guard.ToSend)
					synctest.Wait()
				}
			}
			time.Sleep(2 * time.Second)
			before := n.dialled()
			for range seconds * 100 {
				for _, p := range all {
					a.Want(p, guard.Unknown)
				}
				time.Sleep(10 * time.Millisecond)
			}
			if n := n.dialled() - before; n < c.most || n > c.most*(seconds+1) {
				t.Errorf("%d connections in %d s with %d hosts", n, seconds, c.hosts)
			}
		})
	}
}

// sendTo sends a packet.
func sendTo(t *testing.T, from *guard.Link, to netip.Addr) {
	t.Helper()
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCWriteMiddle, PKey: rocev2.DefaultPKey, DestQPN: 256}, Payload: []byte("data")}
	tx := transport.NewTxBatch(1 << 14)
	tx.Commit(copy(tx.Room(), p.AppendTo(nil)), transport.NewPath(from.Addr(), transport.Path{Dst: to}))
	if err := from.Send(tx); err != nil {
		t.Fatal(err)
	}
}

// receives returns how many packets open of those that have come.
func receives(t *testing.T, l *guard.Link) int {
	t.Helper()
	n, err := l.Recv(transport.NewRxBatch(256))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
