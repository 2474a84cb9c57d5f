package devices

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

// machine is a host in the test's process: a switch, and addresses that another
// process has.
type machine struct {
	t     *testing.T
	sw    *fabric.Switch
	table *table

	mu     sync.Mutex
	taken  map[netip.Addr]bool // by another process
	opened []netip.Addr
	next   uint32
	source netip.Addr
}

func newMachine(t *testing.T, source string, taken ...string) *machine {
	m := &machine{t: t, sw: fabric.NewSwitch(fabric.Config{}), taken: map[netip.Addr]bool{}, source: netip.MustParseAddr(source)}
	for _, a := range taken {
		m.taken[netip.MustParseAddr(a)] = true
	}
	m.table = newTable(host{
		open:   m.open,
		source: func(netip.Addr) (netip.Addr, error) { return m.source, nil },
		own:    func(a netip.Addr) bool { return a == m.source || a.IsLoopback() },
		random: func() uint32 { m.next++; return m.next },
	})
	t.Cleanup(func() {
		if len(m.table.open) > 0 {
			t.Errorf("entries are left: %v", m.table.open)
		}
	})
	return m
}

func (m *machine) open(addr netip.Addr) (*verbs.Device, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.taken[addr] {
		return nil, fmt.Errorf("open: %w", &verbs.OpenError{Op: "bind", Err: syscall.EADDRINUSE})
	}
	m.opened = append(m.opened, addr)
	port, err := m.sw.Attach(addr)
	if err != nil {
		return nil, err
	}
	return verbs.OpenLink(port, verbs.Config{})
}

func (m *machine) get(r *Ref, err error) *Ref {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
	return r
}

func closed(d *verbs.Device) bool {
	pd, err := d.AllocPD()
	if err == nil {
		pd.Close()
	}
	return errors.Is(err, verbs.ErrClosed)
}

func TestLocalIsShared(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "192.0.2.1")
	addr := netip.MustParseAddr("192.0.2.1")
	a := m.get(m.table.local(addr))
	b := m.get(m.table.local(netip.MustParseAddr("::ffff:192.0.2.1")))
	c := m.get(m.table.towards(netip.MustParseAddr("192.0.2.9")))
	if a.Device() != b.Device() || a.Device() != c.Device() {
		t.Error("an address has several devices")
	}
	a.Release()
	a.Release() // counts once
	b.Release()
	if closed(c.Device()) {
		t.Error("the device was closed before the last Release")
	}
	c.Release()
	if !closed(c.Device()) {
		t.Error("the device is open after the last Release")
	}
	d := m.get(m.table.local(addr))
	if d.Device() == c.Device() || closed(d.Device()) {
		t.Error("a closed device was given out")
	}
	d.Release()
}

// Opening and closing beside each other never finds the address taken by the
// device that is being closed.
func TestOpenBesideClose(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "192.0.2.1")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				r, err := m.table.local(m.source)
				if err != nil {
					t.Error(err)
					return
				}
				if closed(r.Device()) {
					t.Error("a closed device was given out")
				}
				r.Release()
			}
		})
	}
	wg.Wait()
}

// Another process has the port of the address that packets to a local peer
// leave by: another loopback address serves.
func TestTowardsLocalPeer(t *testing.T) {
	t.Parallel()
	for _, remote := range []string{"127.0.0.1", "192.0.2.1"} {
		m := newMachine(t, remote, remote, "127.2.0.1")
		r := m.get(m.table.towards(netip.MustParseAddr(remote)))
		addr := r.Device().Addr()
		if !addr.IsLoopback() || addr == netip.MustParseAddr(remote) {
			t.Errorf("to %s from %v", remote, addr)
		}
		// The second dial shares it.
		again := m.get(m.table.towards(netip.MustParseAddr(remote)))
		if again.Device() != r.Device() {
			t.Errorf("a second device, on %v, beside %v", again.Device().Addr(), addr)
		}
		again.Release()
		r.Release()
	}
}

// A server of this host needs the address that a client names. It stays free
// while the client waits, unless it is this process that has it, or there is no
// other one.
func TestTowardsServerThatComesLater(t *testing.T) {
	t.Parallel()
	for _, remote := range addrs("127.0.0.1", "192.0.2.1", "::1") {
		m := newMachine(t, remote.String())
		r := m.get(m.table.towards(remote))
		if got := r.Device().Addr(); (got == remote) != remote.Is6() {
			t.Errorf("to %v from %v", remote, got)
		}
		r.Release()

		server := m.get(m.table.local(remote))
		r = m.get(m.table.towards(remote))
		if r.Device() != server.Device() {
			t.Errorf("to the own server from %v", r.Device().Addr())
		}
		r.Release()
		server.Release()

		open := m.table.host.open
		m.table.host.open = func(a netip.Addr) (*verbs.Device, error) {
			if a != remote {
				return nil, syscall.EADDRNOTAVAIL
			}
			return open(a)
		}
		r = m.get(m.table.towards(remote))
		if got := r.Device().Addr(); got != remote {
			t.Errorf("to %v from %v", remote, got)
		}
		r.Release()
	}
}

// A link-local address without its interface leads nowhere, and the error says
// what is missing.
func TestTowardsWithoutZone(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "fe80::2%eth0")
	if _, err := m.table.towards(netip.MustParseAddr("fe80::1")); err == nil || !strings.Contains(err.Error(), "needs a zone") {
		t.Error(err)
	}
	m.get(m.table.towards(netip.MustParseAddr("fe80::1%eth0"))).Release()
}

// To other hosts no loopback address leads, and IPv6 has no second one.
func TestTowardsTaken(t *testing.T) {
	t.Parallel()
	for source, remote := range map[string]string{"192.0.2.1": "192.0.2.7", "::1": "::1"} {
		m := newMachine(t, source, source)
		if r, err := m.table.towards(netip.MustParseAddr(remote)); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("to %s: %v, %v", remote, r, err)
		}
		if len(m.opened) > 0 {
			t.Errorf("to %s: opened %v", remote, m.opened)
		}
	}
}

func TestTowardsNobody(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "192.0.2.1")
	for _, a := range []netip.Addr{{}, netip.IPv4Unspecified(), netip.IPv6Unspecified(), netip.MustParseAddr("224.0.0.1")} {
		if r, err := m.table.towards(a); err == nil {
			t.Errorf("towards %v: %v", a, r.Device().Addr())
		}
	}
}

// A device that one of its users has closed, or that has failed, is replaced.
func TestClosedByOthers(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "192.0.2.1")
	a := m.get(m.table.local(m.source))
	a.Device().Close()
	b := m.get(m.table.local(m.source))
	if closed(b.Device()) {
		t.Error("a closed device was given out")
	}
	a.Release()
	if closed(b.Device()) {
		t.Error("the Ref of the old device has closed the new one")
	}
	b.Release()
}

func TestSystemRoutes(t *testing.T) {
	t.Parallel()
	for _, a := range []string{"127.0.0.1", "127.3.4.5"} {
		addr := netip.MustParseAddr(a)
		source, err := routeSource(addr)
		if err != nil || !source.IsLoopback() || !source.Is4() {
			t.Errorf("packets to %s leave from %v, %v", a, source, err)
		}
		if !ownAddress(addr) {
			t.Errorf("%s is not of this machine", a)
		}
	}
	if ownAddress(netip.MustParseAddr("192.0.2.77")) {
		t.Error("a documentation address is of this machine")
	}
}
