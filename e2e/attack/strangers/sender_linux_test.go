package strangers

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// The flood is no empty one: each packet is a REQ that a victim takes for one
// of a peer, and of another connection than all before.
func TestForgedRequests(t *testing.T) {
	t.Parallel()
	to := netip.MustParseAddrPort("127.199.0.1:7470")
	for _, many := range []bool{false, true} {
		s := &sender{flood: flood{to: to, private: hello, many: many}, rng: rand.New(rand.NewPCG(1, 1))}
		ids, sources := map[mad.CommID]bool{}, map[netip.Addr]bool{}
		b := make([]byte, 0, 512)
		const n = 100
		for range n {
			b = s.packet(b[:0])
			from, dst := netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
			port := binary.BigEndian.Uint16(b[20:])
			body := b[ipLen+udpLen : len(b)-rocev2.ICRCLen]
			flow := rocev2.NewFlow(from, dst, port, rocev2.UDPPort)
			if got := binary.LittleEndian.Uint32(b[len(b)-rocev2.ICRCLen:]); got != flow.ICRC(0, body) || dst != to.Addr() {
				t.Fatalf("ICRC %#x, to %v", got, dst)
			}
			var p rocev2.Packet
			var m mad.REQ
			if err := p.Parse(b[ipLen+udpLen:]); err != nil {
				t.Fatal(err)
			}
			if err := m.Parse(p.Payload); err != nil {
				t.Fatal(err)
			}
			var ip mad.IPHeader
			data, err := ip.Parse(m.Private)
			if err != nil || ip.Source != from || m.Primary.LocalGID != from || m.Primary.RemoteGID != dst || m.ServiceID != cm.TCP.Service(7470) ||
				string(data[:len(hello)]) != string(hello) {
				t.Fatalf("%+v, %+v, %v", m, ip, err)
			}
			ids[m.LocalID], sources[from] = true, true
		}
		if want := map[bool]int{false: 1, true: n}[many]; len(ids) != n || len(sources) != want {
			t.Errorf("%d IDs, %d sources", len(ids), len(sources))
		}
	}
}
