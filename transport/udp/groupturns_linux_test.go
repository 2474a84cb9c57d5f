package udp

import (
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/transport"
)

// TestManyGroupsTakeTurns: a group to which much is sent does not have
// another one wait until it pauses.
func TestManyGroupsTakeTurns(t *testing.T) {
	t.Parallel()
	c := Config{Port: port()}
	l, from := open(t, loopback(), c), open(t, loopback(), c)
	groups := []netip.Addr{mustAddr("239.255.47.91"), mustAddr("239.255.47.92"), mustAddr("239.255.47.93")}
	for _, g := range groups {
		join(t, g, l)
	}
	for _, flood := range groups {
		for range 64 {
			send(t, from, transport.Path{Dst: flood}, 1)
		}
		for _, g := range groups {
			if g != flood {
				send(t, from, transport.Path{Dst: g}, 1)
			}
		}
		last := lastTo(t, l, transport.NewRxBatch(4), 66, func(dst netip.Addr) bool { return dst != flood })
		if last == 0 || last > 20 {
			t.Errorf("beside a flood to %v the other groups' packets came by number %d", flood, last)
		}
	}
}

// lastTo receives that many packets, and returns by which number the last one
// to an address that is wanted has come, 0 if none has.
func lastTo(t *testing.T, l *Link, b *transport.RxBatch, packets int, wanted func(dst netip.Addr) bool) (last int) {
	t.Helper()
	for total := 0; total < packets; {
		if err := l.Wait(); err != nil {
			t.Fatal(err)
		}
		n, err := l.Recv(b)
		if err != nil {
			t.Fatal(err)
		}
		total += n
		for _, p := range b.Packets() {
			if wanted(p.Dst) {
				last = total
			}
		}
	}
	return last
}
