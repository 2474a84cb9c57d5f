//go:build linux

package ucma_test

import (
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/programs/ucma/abi"
	uabi "github.com/gosoftroce/rocev2/programs/uverbs/abi"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// Addresses that cannot be had, as Linux says it; libfabric binds to every
// address of the host, and librdmacm to one of the family IB.
func TestBindErrors(t *testing.T) {
	t.Parallel()
	h := network(t, "192.0.2.1")
	p := start(t, h[0])
	id := p.create(cm.TCP, clientUID)
	bind := func(a string) []byte { return p.bindCmd(id, netip.MustParseAddrPort(a)) }
	p.fails("an address of the host without a device", uabi.ENODEV, abi.BindIP, 0, bind("127.250.250.250:0"))
	p.fails("an address of another host", uabi.EADDRNOTAVAIL, abi.BindIP, 0, bind("198.51.100.7:0"))
	p.fails("IB, by BIND_IP", uabi.EINVAL, abi.BindIP, 0, response, pad(u16(abi.AFIB), 28), u32(id))
	p.fails("IB, by BIND", uabi.EAFNOSUPPORT, abi.Bind, 0, u32(id), u16(48), u16(0), pad(u16(abi.AFIB), 128))
	p.fails("no family", uabi.EINVAL, abi.BindIP, 0, response, make([]byte, 28), u32(id))
	p.fails("a size that is wrong", uabi.EINVAL, abi.Bind, 0, u32(id), u16(15), u16(0), pad(sockaddr(at(h[0], 0)), 128))
	p.fails("IB, by RESOLVE_ADDR", uabi.EAFNOSUPPORT, abi.ResolveAddr, 0, u32(id), u32(0), u16(0), u16(48), u32(0), make([]byte, 128), pad(u16(abi.AFIB), 128))
	p.do(abi.Bind, 0, u32(id), u16(16), u16(0), pad(sockaddr(at(h[0], 7000)), 128))
	p.fails("bound twice", uabi.EINVAL, abi.BindIP, 0, p.bindCmd(id, at(h[0], 0)))
	p.wantBound(id, at(h[0], 7000))
	second := p.create(cm.TCP, clientUID)
	p.fails("a port in use", uabi.EADDRINUSE, abi.BindIP, 0, p.bindCmd(second, at(h[0], 7000)))

	none := start(t)
	n := none.create(cm.TCP, 1)
	none.fails("no device on the address", uabi.ENODEV, abi.BindIP, 0, none.bindCmd(n, netip.MustParseAddrPort("127.0.0.1:0")))
	none.do(abi.ResolveIP, 0, make([]byte, 28), in6(at(h[0], 1)), u32(n), u32(0))
	if e := none.want(cm.EventAddrError, 1); e.status() != -int32(uabi.ENODEV) {
		t.Errorf("no device leads there: status %d", e.status())
	}
	none.fails("a source that has no device", uabi.ENODEV, abi.ResolveIP, 0, in6(netip.MustParseAddrPort("127.0.0.1:0")), in6(at(h[0], 1)), u32(n), u32(0))
}

func (p *program) wantBound(id uint32, a netip.AddrPort) {
	p.t.Helper()
	r := p.do(abi.QueryRoute, 208, response, u32(id), u32(0))
	if got := netip.AddrPortFrom(netip.AddrFrom4([4]byte(r[140:144])), be.Uint16(r[138:])); got != a || r[196] != 1 || be.Uint64(r) == 0 {
		p.t.Errorf("bound to %v, port %d, GUID %x; want %v", got, r[196], r[:8], a)
	}
}

// Commands that do not fit the state of an ID, or are no commands.
func TestCommandErrors(t *testing.T) {
	t.Parallel()
	h := network(t, "192.0.2.1")
	p := start(t, h[0])
	for why, c := range map[string]struct {
		b    []byte
		want uabi.Errno
	}{
		"shorter than the header":   {make([]byte, 7), uabi.EINVAL},
		"no such command":           {join(u32(23), u32(0)), uabi.EINVAL},
		"longer than what is there": {join(u32(0), u16(24), u16(4)), uabi.EINVAL},
		"GET_OPTION":                {join(u32(uint32(abi.GetOption)), u32(0)), uabi.ENOSYS},
		"a command cut off":         {join(u32(uint32(abi.Listen)), u16(4), u16(0), u32(0)), uabi.EINVAL},
	} {
		if r := p.c.Command(c.b); r.Errno != c.want {
			t.Errorf("%s: %v; want %v", why, r.Errno, c.want)
		}
	}
	p.fails("no such port space", uabi.EINVAL, abi.CreateID, 4, u64(1), response, u16(1), make([]byte, 6))
	p.fails("no such type of queue pair", uabi.EINVAL, abi.CreateID, 4, u64(1), response, u16(uint16(cm.IB)), []byte{9}, make([]byte, 5))
	p.fails("no room for the answer", uabi.ENOSPC, abi.CreateID, 3, u64(1), response, u16(uint16(cm.TCP)), make([]byte, 6))
	p.fails("no room for an event", uabi.ENOSPC, abi.GetEvent, 323, response)
	id := p.create(cm.TCP, clientUID)
	p.fails("no such ID", uabi.ENOENT, abi.Listen, 0, u32(1<<30), u32(0))
	other := start(t, h[0])
	p.fails("the ID of another", uabi.EINVAL, abi.Listen, 0, u32(other.create(cm.TCP, 1)), u32(0))
	for why, c := range map[string]struct {
		n    abi.Number
		out  int
		body []byte
	}{
		"a route of nothing":          {abi.ResolveRoute, 0, join(u32(id), u32(0))},
		"a connection to nobody":      {abi.Connect, 0, join(param(5, ""), u32(id), u32(0), u64(0))},
		"a connection without terms":  {abi.Connect, 0, join(make([]byte, 272), u32(id), u32(0), u64(0))},
		"an answer to nobody":         {abi.Accept, 0, join(u64(1), param(5, ""), u32(id), u32(0), u64(0))},
		"ready for nobody":            {abi.Accept, 0, join(u64(1), make([]byte, 272), u32(id), u32(0), u64(0))},
		"a rejection of nobody":       {abi.Reject, 0, join(u32(id), u32(0), make([]byte, 256))},
		"a disconnect from nobody":    {abi.Disconnect, 0, u32(id)},
		"attributes without a device": {abi.InitQPAttr, 144, join(response, u32(id), u32(1))},
		"an event of a queue pair":    {abi.Notify, 0, join(u32(id), u32(4))},
		"an event that means nothing": {abi.Notify, 0, join(u32(id), u32(5))},
	} {
		p.fails(why, uabi.EINVAL, c.n, c.out, c.body)
	}
	p.fails("no such question", uabi.ENOSYS, abi.Query, 280, response, u32(id), u32(3))
	p.fails("no room for a route", uabi.ENOSPC, abi.QueryRoute, 199, response, u32(id), u32(0))
	if r := p.do(abi.QueryRoute, 200, response, u32(id), u32(0)); len(r) != 200 {
		t.Errorf("an older program gets %d bytes of a route", len(r))
	}
	p.do(abi.BindIP, 0, p.bindCmd(id, at(h[0], 0)))
	p.do(abi.InitQPAttr, 144, response, u32(id), u32(uint32(verbs.StateInit)))
	p.fails("no such state", uabi.EINVAL, abi.InitQPAttr, 144, response, u32(id), u32(256))
	p.do(abi.Listen, 0, u32(id), u32(0))
	p.fails("listening twice", uabi.EINVAL, abi.Listen, 0, u32(id), u32(0))
	p.destroy(id)
	p.fails("destroyed twice", uabi.ENOENT, abi.DestroyID, 4, response, u32(id), u32(0))
	p.idle()
}

// Private data that is too long for its message is refused.
func TestPrivateDataTooLong(t *testing.T) {
	t.Parallel()
	l := requested(t)
	long := string(make([]byte, 200))
	id := l.client.resolved(cm.TCP, 5, at(l.b, 1))
	l.client.fails("a request", uabi.EINVAL, abi.Connect, 0, param(5, long[:57]), u32(id), u32(0), u64(0))
	l.server.fails("an answer", uabi.EINVAL, abi.Accept, 0, u64(serverUID), param(5, long[:197]), u32(l.sid), u32(0), u64(0))
	l.server.fails("a rejection", uabi.EINVAL, abi.Reject, 0, u32(l.sid), []byte{149, 0, 0, 0}, make([]byte, 256))
	l.server.idle() // its uid is not known yet, so nothing comes
}

// Options have the sizes that Linux wants, and their effect.
func TestOptions(t *testing.T) {
	t.Parallel()
	h := network(t, "192.0.2.1", "192.0.2.2")
	p := start(t, h[0])
	id := p.create(cm.TCP, clientUID)
	set := func(want uabi.Errno, level, name uint32, value []byte) {
		t.Helper()
		p.value = value
		p.fails("option", want, abi.SetOption, 0, response, u32(id), u32(level), u32(name), u32(uint32(len(value))))
	}
	set(0, abi.LevelID, abi.OptionTOS, []byte{0x60})
	set(uabi.EINVAL, abi.LevelID, abi.OptionTOS, u32(0x60))
	set(0, abi.LevelID, abi.OptionReuseAddr, u32(1))
	set(uabi.EINVAL, abi.LevelID, abi.OptionReuseAddr, []byte{1})
	set(0, abi.LevelID, abi.OptionAFOnly, u32(1))
	set(0, abi.LevelID, abi.OptionAckTimeout, []byte{15})
	set(uabi.ENOSYS, abi.LevelID, 4, u32(1))
	set(uabi.ENOSYS, abi.LevelIB, 2, u32(1))
	set(uabi.ENOSYS, 2, 0, u32(1))
	set(uabi.EINVAL, abi.LevelIB, abi.OptionIBPath, make([]byte, 71))
	set(uabi.EINVAL, abi.LevelIB, abi.OptionIBPath, make([]byte, 72))
	set(uabi.EINVAL, abi.LevelID, abi.OptionTOS, make([]byte, 5000))

	p.do(abi.BindIP, 0, p.bindCmd(id, at(h[0], 6000)))
	second := p.create(cm.TCP, 2)
	p.value = u32(1)
	p.do(abi.SetOption, 0, response, u32(second), u32(abi.LevelID), u32(abi.OptionReuseAddr), u32(4))
	p.do(abi.BindIP, 0, p.bindCmd(second, at(h[0], 6000)))
	p.do(abi.Listen, 0, u32(second), u32(0))
	set(uabi.EINVAL, abi.LevelID, abi.OptionAFOnly, u32(1))

	p.do(abi.ResolveIP, 0, make([]byte, 28), in6(at(h[1], 9)), u32(id), u32(0))
	p.want(cm.EventAddrResolved, clientUID)
	set(0, abi.LevelIB, abi.OptionIBPath, pad(u32(abi.PathFlags), 72))
	p.want(cm.EventRouteResolved, clientUID)
	if r := p.do(abi.QueryRoute, 208, response, u32(id), u32(0)); r[63] != 0x60 {
		t.Errorf("traffic class %#x; want 0x60", r[63])
	}
}
