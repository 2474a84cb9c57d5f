package lease

import (
	"math"
	"net/netip"
	"reflect"
	"testing"

	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/guard"
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
		use.Peers = append(use.Peers, transport.UsedPeer{Addr: netip.AddrFrom16([16]byte{0xfd, 0xff, 0xf2, 3, 0xf4, 5, 0xf6, 7, 0xf8, 9, 0xfa, 11, 0xfc, 13, 0xfe, byte(i + 16)}), Native: true})
	}
	const most = math.MaxUint64
	for i := range transport.MostUsedConnections {
		use.Work.Connections = append(use.Work.Connections, transport.UsedConnection{Type: "XRC_SEND", QPN: 1<<24 - 1, Peer: use.Peers[i].Addr, PeerQPN: 1<<24 - 1})
	}
	for range transport.MostUsedTypes {
		use.Work.Types = append(use.Work.Types, transport.UsedType{Type: "XRC_SEND", Made: most})
	}
	for range transport.MostUsedOperations {
		use.Work.Requests = append(use.Work.Requests, transport.UsedOperation{Operation: "ATOMIC_WRITE", Requests: most, Bytes: most})
	}
	c := countsOf(&udp, func() transport.Use { return use })
	if c.TxPackets != 15 || c.TxBytes != 6000 || c.TxShm != 5000 || c.RxShm != 0 || c.RxBytes != 400 {
		t.Errorf("with shared memory: %+v", c)
	}
	c.MadeQPs, c.RxPackets, c.LoopPackets, c.LoopBytes = most, most, most, most
	c.Guard = new(guard.Counters)
	for v, i := reflect.ValueOf(c.Guard).Elem(), 0; i < v.NumField(); i++ {
		v.Field(i).SetUint(most)
	}
	b := (&Message{Tell: c}).Append(nil)
	m, err := Parse(b)
	if err != nil || !reflect.DeepEqual(m.Tell, c) {
		t.Errorf("%+v, %v", m, err)
	}
	if c.Bound(1); c.Guard.Sealed != 1 || c.Guard.Forged != 1 {
		t.Errorf("bounded they are %+v", c.Guard)
	}
}
