//go:build linux && !portable

package udp

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// Packets arrive at the link that their destination QPN says.
func TestGroupSteersByQPN(t *testing.T) {
	t.Parallel()
	const n = 4
	addr := loopback()
	group, err := OpenGroup(addr, Config{}, n)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range group {
		t.Cleanup(func() { l.Close() })
	}
	from := open(t, loopback(), Config{})
	tx := transport.NewTxBatch(1 << 20)
	path := transport.NewPath(from.Addr(), transport.Path{Dst: addr})
	for qpn := range rocev2.QPN(32) {
		p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCAcknowledge, PKey: rocev2.DefaultPKey, DestQPN: 0x123400 | qpn}}
		// A batch each, for packets of one batch travel as one buffer.
		tx.Reset()
		tx.Commit(len(p.AppendTo(tx.Room()[:0])), path)
		if err := from.Send(tx); err != nil {
			t.Fatal(err)
		}
	}
	for i, l := range group {
		for _, k := range receive(t, l, 32/n) {
			if qpn := int(k.Data[7]); qpn%n != i || k.ICRC != transport.ICRCVerified {
				t.Errorf("QPN %#x arrived at link %d, ICRC %v", qpn, i, k.ICRC)
			}
		}
	}
}

// A group shares its port among itself only.
func TestGroupFindsThePortTaken(t *testing.T) {
	t.Parallel()
	addr := loopback()
	group, err := OpenGroup(addr, Config{}, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range group {
		t.Cleanup(func() { l.Close() })
	}
	if _, err := OpenGroup(addr, Config{}, 2); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a second group on the same port: %v", err)
	}
	if _, err := OpenGroup(addr, Config{}, 3); err == nil {
		t.Error("a group of 3")
	}
}

// TestGroupsTakeTurns: a group does not wait until unicast pauses, nor the
// other way round.
func TestGroupsTakeTurns(t *testing.T) {
	t.Parallel()
	c := Config{Port: port()}
	l, from := open(t, loopback(), c), open(t, loopback(), c)
	group := mustAddr("239.255.47.95")
	join(t, group, l)
	b := transport.NewRxBatch(4)
	for _, flood := range []netip.Addr{l.Addr(), group} {
		single := l.Addr()
		if flood == single {
			single = group
		}
		for range 64 {
			send(t, from, transport.Path{Dst: flood}, 1)
		}
		send(t, from, transport.Path{Dst: single}, 1)
		found := lastTo(t, l, b, 65, func(dst netip.Addr) bool { return dst == single })
		if found == 0 || found > 10 {
			t.Errorf("the packet to %v was number %d", single, found)
		}
	}
}
