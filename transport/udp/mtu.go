package udp

import (
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// minLinkMTU stands for an interface that is not found (an address that only a
// local route makes ours).
const minLinkMTU = 1500

// ownMTU is the MTU of the interface that holds the link's address, as last
// read.
type ownMTU struct {
	addr   netip.Addr
	iface  int // index; 0: it must be searched for
	holder int // the interface that holds the address; 0: none does
	bytes  atomic.Int64
}

func (m *ownMTU) init(addr netip.Addr) {
	m.addr = addr
	l, _ := find(addr)
	bytes, iface := linkMTU(addr, &l)
	m.iface, m.holder = iface, l.iface.Index
	m.bytes.Store(int64(bytes))
}

// fix sets the MTU of an interface that is not visible here.
func (m *ownMTU) fix(bytes int) { m.bytes.Store(int64(bytes)) }

// read asks the system; byIndex returns the MTU of an interface.
func (m *ownMTU) read(byIndex func(int) (int, bool)) int {
	var bytes int
	if m.iface == 0 {
		l, _ := find(m.addr)
		bytes, _ = linkMTU(m.addr, &l)
	} else if mtu, ok := byIndex(m.iface); ok {
		bytes = mtu
	} else {
		return int(m.bytes.Load()) // it is gone, and nothing is sent
	}
	m.bytes.Store(int64(bytes))
	return bytes
}

// fill sets the MTUs of c.
func (m *ownMTU) fill(c *transport.Capabilities) {
	c.LinkMTU = int(m.bytes.Load())
	c.MTU = rocev2.LargestMTU(c.LinkMTU)
}

// linkMTU returns the MTU of the interface that holds addr, which find has
// found, and its index. An address on lo that is not a loopback address leaves
// by other interfaces: then the smallest of their MTUs counts, and the index is
// 0.
func linkMTU(addr netip.Addr, l *local) (mtu, index int) {
	switch {
	case l.iface.Index == 0:
		return minLinkMTU, 0
	case l.iface.Flags&net.FlagLoopback != 0 && !addr.IsLoopback():
		return leastMTU(l.iface.MTU), 0
	}
	return l.iface.MTU, l.iface.Index
}

// leastMTU returns the smallest MTU of the interfaces that lead out and are up,
// else that of lo.
func leastMTU(lo int) int {
	least := lo
	ifaces, err := net.Interfaces()
	if err != nil {
		return min(least, minLinkMTU)
	}
	for _, i := range ifaces {
		if i.Flags&net.FlagUp != 0 && i.Flags&net.FlagLoopback == 0 && i.MTU > 0 {
			least = min(least, i.MTU)
		}
	}
	return least
}
