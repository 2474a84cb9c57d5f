package verbs

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// Config adjusts a device. The zero value works.
type Config struct {
	// Device adjusts the engine: spinning, window, READ requests, loopback.
	Device hca.Config
	// Link adjusts the UDP socket; it has no meaning for OpenLink.
	Link udp.Config
	// Shards is how many sockets the device has, each with its own lock and
	// receiver; queue pairs are spread over them by their number. A power of two;
	// 0 means 1. More pay off when several processors serve many queue pairs. It
	// has no meaning for OpenLink.
	Shards int
}

// Device is an RDMA device on one local address.
type Device struct {
	core  *hca.Device
	owner *hca.Context
}

// Open opens a device on a local address ("127.0.0.1", "::1", "fe80::1%eth0")
// or on the first address of a network interface ("eth0"), UDP port 4791.
func Open(name string) (*Device, error) {
	addr, err := udp.Resolve(name)
	if err != nil {
		return nil, fmt.Errorf("verbs: open device %q: %w", name, err)
	}
	return OpenAddr(addr, Config{})
}

// OpenAddr opens a device on a local address. The error says what has the port, or
// which setting cannot be.
func OpenAddr(addr netip.Addr, cfg Config) (*Device, error) {
	if cfg.Shards < 0 {
		return nil, fmt.Errorf("verbs: open device on %v: Config.Shards is %d; it must be a power of two, or 0 for 1", addr, cfg.Shards)
	}
	group, err := udp.OpenGroup(addr, cfg.Link, cfg.Shards)
	if err != nil {
		return nil, fmt.Errorf("verbs: open device on %v: %w", addr, err)
	}
	links := make([]Link, len(group))
	for i, l := range group {
		links[i] = l
	}
	return open(cfg, links...)
}

// Link carries the datagrams of a device; packages fabric and transport/... have
// them.
type Link = transport.Link

// OpenLink opens a device on a link of any kind: a port of an in-process
// network (package fabric), or a link wrapped to inject faults or to record.
// The device owns the link from now on.
func OpenLink(link Link, cfg Config) (*Device, error) { return open(cfg, link) }

func open(cfg Config, links ...Link) (*Device, error) {
	core := hca.New(cfg.Device, links...)
	owner, err := core.NewContext()
	if err != nil {
		return nil, fmt.Errorf("verbs: open device on %v: %w", core.Addr(), err)
	}
	return &Device{core: core, owner: owner}, nil
}

// Addr returns the local address.
func (d *Device) Addr() netip.Addr { return d.core.Addr() }

// QP returns the open queue pair with a number, such as WC.QPN, nil if there is
// none (any more).
func (d *Device) QP(n QPN) *QP {
	core := d.core.QP(n)
	if core == nil {
		return nil
	}
	q, _ := core.UserData().(*QP)
	return q
}

// Stats returns the device's counters since it was opened.
func (d *Device) Stats() Stats { return d.core.Stats() }

// QPStats returns the sum of the counters of all queue pairs since the device
// was opened, those that are closed included. With thousands of queue pairs it
// costs some milliseconds.
func (d *Device) QPStats() QPStats { return d.core.QPStats() }

// Close closes the device and everything made on it, and waits until its
// goroutines have ended.
func (d *Device) Close() error { return d.core.Close() }

// AsyncEvent tells of something that happened to an object and that no
// completion reports.
type AsyncEvent struct {
	Kind EventKind // what happened
	QP   *QP       // set for events of a queue pair
	CQ   *CQ       // set for events of a completion queue
}

// String names the event and the queue pair.
func (e AsyncEvent) String() string {
	if e.QP != nil {
		return fmt.Sprintf("%v on QP %v", e.Kind, e.QP.QPN())
	}
	return e.Kind.String()
}

// AsyncEvent waits for the next asynchronous event. Events are kept while
// nobody reads them, the latest 4096 of them (Stats.Events counts the others).
// Closing an object drops its events: what is read never tells of an object that
// was closed before, and unread events keep nothing in memory. A program that
// must not miss why a queue pair failed reads the events before it closes it.
//
// The error is ErrClosed when the device is closed, or that of ctx.
func (d *Device) AsyncEvent(ctx context.Context) (AsyncEvent, error) {
	e, err := d.core.AsyncEvent(ctx)
	if err != nil {
		return AsyncEvent{}, fmt.Errorf("verbs: wait for an event of device %v: %w", d.Addr(), err)
	}
	out := AsyncEvent{Kind: e.Kind}
	if e.QP != nil {
		out.QP, _ = e.QP.UserData().(*QP)
	}
	if e.CQ != nil {
		out.CQ, _ = e.CQ.UserData().(*CQ)
	}
	return out, nil
}
