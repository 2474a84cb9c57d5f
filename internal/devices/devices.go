// Package devices says which device of this process serves which address.
// Packages that dial and listen share their devices through it: an address has
// one UDP port 4791, so one device.
package devices

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/gosoftroce/rocev2/verbs"
)

// Ref is a hold on an open device. The device is closed with the last one.
type Ref struct {
	table *table
	entry *entry
	once  sync.Once
}

// Device returns the device. It is open until Release.
func (r *Ref) Device() *verbs.Device { return r.entry.dev }

// Release gives the device up. More calls than one count as one.
func (r *Ref) Release() { r.once.Do(func() { r.table.release(r.entry) }) }

// Local returns the device on a local address, which this process opens if it
// has none there yet. The error wraps a *verbs.OpenError, which says among
// others which process has the port.
func Local(addr netip.Addr) (*Ref, error) { return process.local(addr) }

// Towards returns a device that packets to remote can leave by. It is the one
// on the address that the routes name. If that is remote itself, or another
// process has the port there and remote is of this host, a device on another
// loopback address serves: one that this process has, or a new one on
// 127.a.b.c. So a client never has the address that its server needs, also if
// the server starts later. There is no such address in IPv6.
//
// The error says that there is no route, or wraps a *verbs.OpenError.
func Towards(remote netip.Addr) (*Ref, error) { return process.towards(remote) }

// host is what a table knows of the machine.
type host struct {
	open   func(netip.Addr) (*verbs.Device, error)
	source func(remote netip.Addr) (netip.Addr, error) // where packets to remote leave
	own    func(netip.Addr) bool                       // whether it is an address of this machine
	addrs  func() []netip.Addr                         // of this machine
	random func() uint32
}

// table has the devices of a process.
type table struct {
	host host

	mu   sync.Mutex
	open map[netip.Addr]*entry
}

// entry is a device that is being opened, is open, or is being closed.
type entry struct {
	addr netip.Addr
	refs int // guarded by the table's mu

	ready chan struct{} // closed when dev and err are set
	dev   *verbs.Device
	err   error
	gone  chan struct{} // closed when the address is free again
}

var process = newTable(system)

func newTable(h host) *table { return &table{host: h, open: map[netip.Addr]*entry{}} }

func (t *table) local(addr netip.Addr) (*Ref, error) {
	addr = addr.Unmap()
	for {
		t.mu.Lock()
		e := t.open[addr]
		switch {
		case e == nil:
			return t.openLocked(addr)
		case e.refs > 0:
			e.refs++
			t.mu.Unlock()
			<-e.ready
			if e.err != nil {
				return nil, e.err
			}
			if t.usable(e) {
				return &Ref{table: t, entry: e}, nil
			}
			t.discard(e)
		default:
			t.mu.Unlock()
			<-e.gone
		}
	}
}

// openLocked opens a device. The caller holds mu, which openLocked gives up.
func (t *table) openLocked(addr netip.Addr) (*Ref, error) {
	e := &entry{addr: addr, refs: 1, ready: make(chan struct{}), gone: make(chan struct{})}
	t.open[addr] = e
	t.mu.Unlock()
	if e.dev, e.err = t.host.open(addr); e.err != nil {
		t.forget(e)
		close(e.gone)
		close(e.ready)
		return nil, e.err
	}
	close(e.ready)
	return &Ref{table: t, entry: e}, nil
}

// usable reports whether the device of an entry is still open.
func (t *table) usable(e *entry) bool {
	pd, err := e.dev.AllocPD()
	if err != nil {
		return !errors.Is(err, verbs.ErrClosed)
	}
	pd.Close()
	return true
}

// discard takes a device that one of its users has closed out of the table. The
// others find it closed.
func (t *table) discard(e *entry) {
	e.dev.Close() // returns when its goroutines have ended
	t.forget(e)
	t.release(e)
}

func (t *table) forget(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[e.addr] == e {
		delete(t.open, e.addr)
	}
}

func (t *table) release(e *entry) {
	t.mu.Lock()
	e.refs--
	last := e.refs == 0
	t.mu.Unlock()
	if last {
		e.dev.Close()
		t.forget(e)
		close(e.gone)
	}
}

// tries is how many loopback addresses are tried: each is one of 16 million, so
// that more than one is hardly ever needed.
const tries = 8

func (t *table) towards(remote netip.Addr) (*Ref, error) {
	remote = remote.Unmap()
	if !remote.IsValid() || remote.IsUnspecified() || remote.IsMulticast() {
		return nil, fmt.Errorf("%v is not the address of a host", remote)
	}
	if remote.Is6() && remote.IsLinkLocalUnicast() && remote.Zone() == "" {
		return nil, fmt.Errorf("%v is link-local, and so needs a zone: write it with the interface that leads there, such as %v%%eth0",
			remote, remote)
	}
	source, err := t.host.source(remote)
	if err != nil {
		return nil, fmt.Errorf("no way to %v: %w", remote, err)
	}
	here := remote.Is4() && t.host.own(remote)
	if here && source == remote && !t.has(source) {
		if ref := t.beside(); ref != nil {
			return ref, nil
		}
	}
	ref, err := t.local(source)
	if here && errors.Is(err, syscall.EADDRINUSE) {
		if ref := t.beside(); ref != nil {
			return ref, nil
		}
	}
	return ref, err // it names the process that has the port
}

// has reports whether this process has a device on an address.
func (t *table) has(addr netip.Addr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.open[addr]
	return e != nil && e.refs > 0
}

// beside returns a device on a loopback address that no server asks for, nil if
// there is none: other systems than Linux have only those that are configured.
func (t *table) beside() *Ref {
	for _, addr := range t.loopbacks() {
		if ref, err := t.local(addr); err == nil {
			return ref
		}
	}
	for range tries {
		r := t.host.random()
		// 127.0.0.0/16 has the addresses that people choose themselves.
		other := netip.AddrFrom4([4]byte{127, byte(1 + r%255), byte(r >> 8), byte(1 + r>>16%254)})
		if ref, err := t.local(other); err == nil {
			return ref
		}
	}
	return nil
}

// loopbacks returns the loopback addresses that this process has devices on.
func (t *table) loopbacks() []netip.Addr {
	t.mu.Lock()
	defer t.mu.Unlock()
	var addrs []netip.Addr
	for addr, e := range t.open {
		if addr.Is4() && addr.IsLoopback() && e.refs > 0 {
			addrs = append(addrs, addr)
		}
	}
	slices.SortFunc(addrs, func(a, b netip.Addr) int { return cmp.Compare(a.String(), b.String()) })
	return addrs
}
