package guard_test

import (
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/transport/guard"
)

// TestForgedOwnAddress: over IPv6 a stranger can send packets with the address
// of the port as their source. So those in clear are dropped, and those of the
// port itself are sealed; what owner and leaseholders say to each other passes.
func TestForgedOwnAddress(t *testing.T) {
	t.Parallel()
	six := netip.MustParseAddr("2001:db8::1")
	s := newSide(six, 0, 0, nil)
	own := secret(7, 1, 7)
	s.table.Set(&guard.Peer{Addr: six, Send: own, Receives: []guard.Secret{own}})
	raw := &side{cable: &cable{addr: six}}
	raw.Link = guard.New(raw.cable, guard.Config{Table: guard.NewTable(), Through: func([]byte) bool { return true }})
	if n := len(s.take(t, raw.sends(t, six, packet(7, 1, 40))...)); n != 0 {
		t.Errorf("%d forged packets were taken", n)
	}
	counter(t, s, "guard_clear", 1)
	sent := s.sends(t, six, packet(7, 1, 40))
	if len(sent) != 1 || sent[0].data[0] != 17 {
		t.Fatal("a packet to the own address is not sealed")
	}
	if n := len(s.take(t, sent...)); n != 1 {
		t.Error("a packet of the own address does not come back")
	}
	envelope := packet(7, 1, 40)
	envelope[0] = 0xd2
	if sent := s.sends(t, six, envelope); len(sent) != 1 || sent[0].data[0] != 0xd2 || len(s.take(t, sent...)) != 1 {
		t.Error("an envelope does not pass")
	}
	if n := s.ReadLinkMTU(six); n != 1460 {
		t.Errorf("MTU %d", n)
	}
}
