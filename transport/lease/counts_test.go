package lease

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/gosoftroce/rocev2/transport"
)

// A device counts what its sockets have, and what goes through shared memory.
// The longest list of peers fits into a message.
func TestCountsOf(t *testing.T) {
	t.Parallel()
	udp := transport.LinkStats{TxPackets: 10, TxBytes: 1000, RxPackets: 4, RxBytes: 400}
	if c := countsOf(&udp, nil); c.TxPackets != 10 || c.RxBytes != 400 || c.TxShm != 0 {
		t.Errorf("without a device: %+v", c)
	}
	use := transport.Use{QPs: 2, Made: 7, Link: udp}
	if c := countsOf(&udp, func() transport.Use { return use }); c.TxBytes != 1000 || c.TxShm != 0 || c.RxShm != 0 || c.QPs != 2 || c.MadeQPs != 7 {
		t.Errorf("by UDP alone: %+v", c)
	}
	use.Link.TxPackets, use.Link.TxBytes, use.Link.TxShm = 15, 6000, 5
	for i := range transport.MostUsedPeers {
		use.Peers = append(use.Peers, transport.UsedPeer{Addr: netip.AddrFrom16([16]byte{0xfd, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, byte(i + 16)}), Native: true})
	}
	c := countsOf(&udp, func() transport.Use { return use })
	if c.TxPackets != 15 || c.TxBytes != 6000 || c.TxShm != 5000 || c.RxShm != 0 || c.RxBytes != 400 {
		t.Errorf("with shared memory: %+v", c)
	}
	m, err := Parse((&Message{Tell: c}).Append(nil))
	if err != nil || !reflect.DeepEqual(m.Tell, c) {
		t.Errorf("%+v, %v", m, err)
	}
}
