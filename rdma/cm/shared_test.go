package cm_test

import (
	"errors"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// portOwner gives services to the links of several devices, as the owner of an
// address does to processes.
type portOwner struct {
	mu    sync.Mutex
	taken map[uint64]string
	asked int
}

// partLink is a link that has a part of a port.
type partLink struct {
	transport.Wrapper
	owner *portOwner
	name  string
	slot  int
}

func (l *partLink) Lease() (transport.Lease, bool) {
	return transport.Lease{Slot: l.slot, Slots: 8}, true
}

func (l *partLink) ReserveService(id, mask uint64) error {
	l.owner.mu.Lock()
	defer l.owner.mu.Unlock()
	l.owner.asked++
	if holder, taken := l.owner.taken[id]; taken {
		return errors.New("process " + holder + " has it")
	}
	l.owner.taken[id] = l.name
	return nil
}

func (l *partLink) ReleaseService(id, mask uint64) {
	l.owner.mu.Lock()
	defer l.owner.mu.Unlock()
	if l.owner.taken[id] == l.name {
		delete(l.owner.taken, id)
	}
}

// shares makes devices that share services, each with an address of its own.
func shares(t *testing.T, addrs ...string) (*portOwner, []*host) {
	sw := fabric.NewSwitch(fabric.Config{})
	o := &portOwner{taken: map[uint64]string{}}
	var hosts []*host
	for i, a := range addrs {
		port, err := sw.Attach(netip.MustParseAddr(a))
		must(t, err)
		dev, err := verbs.OpenLink(&partLink{transport.Wrapper{Link: port}, o, a, i + 2}, verbs.Config{})
		must(t, err)
		hosts = append(hosts, newHostOn(t, dev))
	}
	return o, hosts
}

// TestPortsOfOtherProcesses takes ports that another process has at the owner
// of the address.
func TestPortsOfOtherProcesses(t *testing.T) {
	t.Parallel()
	o, h := shares(t, "192.0.2.1", "192.0.2.2")
	at := netip.AddrPortFrom(netip.Addr{}, 7000)
	l, err := cm.Listen(h[0].dev, at, cm.ListenConfig{})
	must(t, err)
	taken := func(what string, err error) {
		t.Helper()
		var port *cm.PortError
		if !errors.As(err, &port) || !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "process 192.0.2.1") {
			t.Errorf("%s: %v; want an error that names the process", what, err)
		}
	}
	_, err = cm.Listen(h[1].dev, at, cm.ListenConfig{})
	taken("Listen", err)
	ch := cm.NewEventChannel(cm.WithDevices(h[1].dev))
	defer ch.Close()
	id, err := ch.CreateID(cm.TCP, nil)
	must(t, err)
	taken("BindAddr", id.BindAddr(netip.AddrPortFrom(netip.MustParseAddr("192.0.2.2"), 7000)))
	_, err = cm.ListenAll([]*verbs.Device{h[1].dev}, at, cm.ListenConfig{})
	taken("ListenAll", err)
	l.Close()
	l, err = cm.Listen(h[1].dev, at, cm.ListenConfig{})
	must(t, err)
	l.Close()
	if len(o.taken) != 0 {
		t.Errorf("%d services are reserved after Close", len(o.taken))
	}
}

// TestEphemeralPortsOfOtherProcesses has the owner refuse most ports: others
// are tried.
func TestEphemeralPortsOfOtherProcesses(t *testing.T) {
	t.Parallel()
	o, h := shares(t, "192.0.2.1", "192.0.2.2")
	for port := 32768; port < 1<<16; port += 2 {
		o.taken[uint64(mad.PortSpaceTCP.Service(uint16(port)))] = "another"
	}
	before := len(o.taken)
	for range 32 {
		l, err := cm.Listen(h[0].dev, netip.AddrPort{}, cm.ListenConfig{})
		must(t, err)
		defer l.Close()
		if p := l.Addr().(*cm.Addr).Port(); p%2 == 0 {
			t.Errorf("port %d is another's", p)
		}
	}
	if n := len(o.taken) - before; n != 32 {
		t.Errorf("%d services are reserved; want 32", n)
	}
}

// TestSharedPortIsReservedOnce has two IDs share a port, which is one service.
func TestSharedPortIsReservedOnce(t *testing.T) {
	t.Parallel()
	o, h := shares(t, "192.0.2.1")
	ch := cm.NewEventChannel(cm.WithDevices(h[0].dev))
	at := netip.MustParseAddrPort("192.0.2.1:7000")
	for range 2 {
		id, err := ch.CreateID(cm.TCP, nil)
		must(t, err)
		must(t, id.SetOption(cm.WithReuseAddr(true)))
		must(t, id.BindAddr(at))
	}
	if o.asked != 1 || len(o.taken) != 1 {
		t.Errorf("asked %d times, %d services are reserved; want one of each", o.asked, len(o.taken))
	}
	ch.Close()
	if len(o.taken) != 0 {
		t.Errorf("%d services are reserved after Close", len(o.taken))
	}
}
