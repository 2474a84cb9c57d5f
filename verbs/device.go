package verbs

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/guard"
	"github.com/gosoftroce/rocev2/transport/shm"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// UDPPort is the UDP port of RoCEv2 (IBTA A17.3.1): devices receive there.
const UDPPort = rocev2.UDPPort

// Device is an RDMA device on one local address.
type Device struct {
	core    *hca.Device
	context *hca.Context

	has       holding
	closePort task.Once
	hooks     hooks
	window    qp.WindowConfig // of Config, for queue pairs with a congestion control of their own
	trace     *tracer         // of Config, or nil
	seals     seals
	guards    []*guard.Link // those that seal all packets; nil: packets go in clear

	cqs  atomic.Uint32 // completion queues made so far
	srqs atomic.Uint32 // shared receive queues made so far
}

// Open opens a device on a local address ("127.0.0.1", "::1", "fe80::1%eth0")
// or on the first address of a network interface ("eth0"), UDP port 4791. Where
// that port has an owner the device shares it: see OpenAddr.
func Open(name string) (*Device, error) {
	addr, err := ResolveAddr(name)
	if err != nil {
		return nil, fmt.Errorf("verbs: open device %q: %w", name, err)
	}
	return OpenAddr(addr, Config{})
}

// ResolveAddr returns the local address that Open takes for a name. Of the
// addresses of an interface it prefers IPv4, then global IPv6, then link-local
// IPv6. Whether an address is of this host only OpenAddr finds out.
func ResolveAddr(name string) (netip.Addr, error) { return udp.Resolve(name) }

// OpenAddr opens a device on a local address. The error wraps an *OpenError,
// which says what has the port, or says which setting is not possible.
//
// If a process owns the port and leases it (rocev2d, rocev2 run, Config.Owner),
// the device has a part of it: all else is as if it were the only one on the
// address. OpenAddr looks for the owner's socket in $ROCEV2_PROGRAMS/port, in
// the user's own directory, and in /run/rocev2/port. What $ROCEV2_PROGRAMS
// names may be the directory of a container's host: the address is the host's
// then. If there is no owner, the device has the port for itself, and no
// other can have it; an owner that was killed has half a second to be started
// again. If the owner ends, the device fails: EventDeviceFatal is raised, and
// all that was posted completes with an error.
func OpenAddr(addr netip.Addr, cfg Config) (*Device, error) {
	if cfg.Shards < 0 {
		return nil, fmt.Errorf("verbs: open device on %v: Config.Shards is %d; it must be a power of two, or 0 for 1", addr, cfg.Shards)
	}
	if _, err := cfg.hcaConfig(); err != nil { // before the port is taken
		return nil, fmt.Errorf("verbs: open device on %v: %w", addr, err)
	}
	links, has, err := cfg.openLinks(addr)
	if err != nil {
		return nil, fmt.Errorf("verbs: open device on %v: %w", addr, err)
	}
	d, err := openLinks(cfg, links)
	if err != nil {
		_ = has.close()
		return nil, err
	}
	d.has = has
	return d, nil
}

// openLinks opens a device on sockets, below what cfg wraps them with.
func openLinks(cfg Config, links []Link) (*Device, error) {
	guards := guardsOf(links)
	if cfg.SharedMemory && guards != nil {
		addr := links[0].Addr()
		closeLinks(links)
		return nil, fmt.Errorf("verbs: open device on %v: %w", addr, errSharedSecured)
	}
	if cfg.SharedMemory {
		links = shm.Wrap(links...)
	}
	cfg.wrap(links)
	d, err := open(cfg, links...)
	if err == nil {
		d.guards = guards
	}
	return d, err
}

// Link carries the datagrams of a device. It is an interface: packages fabric
// and transport/... have the kinds, among them wrappers that inject faults or
// record.
type Link = transport.Link

// OpenLink opens a device on a link of any kind: a port of an in-process
// network (package fabric), or a link wrapped to inject faults or to record.
// The device owns the link from now on.
func OpenLink(link Link, cfg Config) (*Device, error) { return open(cfg, link) }

func open(cfg Config, links ...Link) (*Device, error) {
	config, err := cfg.hcaConfig()
	if _, driven := links[0].(hca.Driver); err == nil && cfg.Sealing && driven {
		err = errors.New("field Sealing: packets of a network that drives its devices (package fabric/world) are not sealed, as they pass no link; take it out, or use package fabric")
	}
	if err != nil {
		addr := links[0].Addr()
		for _, l := range links {
			l.Close()
		}
		return nil, fmt.Errorf("verbs: open device on %v: %w", addr, err)
	}
	trace := newTracer(cfg.Trace, links[0].Addr())
	if trace != nil {
		config.Trace = trace.write
	}
	d := &Device{window: config.Window, trace: trace}
	if cfg.Sealing {
		links = d.seals.wrap(links, &cfg)
	}
	core := hca.New(config, links...)
	ctx, err := core.NewContext()
	if err != nil {
		return nil, fmt.Errorf("verbs: open device on %v: %w", core.Addr(), err)
	}
	d.core, d.context, d.seals.tasks = core, ctx, core.Tasks()
	return d, nil
}

// HCA returns the adapter below a device, for a face of the engine beside this
// one that makes objects of its own in a context of its own. What is made
// through it this package does not know: [Device.QP] does not find its queue
// pairs. Closing the device closes it all.
func HCA(d *Device) *hca.Device { return d.core }

// Addr returns the local address.
func (d *Device) Addr() netip.Addr { return d.core.Addr() }

// QP returns the open queue pair with a number, such as [WC.QPN]. It is nil if
// there is none, or none any more.
func (d *Device) QP(n QPN) *QP {
	core := d.core.QP(n)
	if core == nil {
		return nil
	}
	q, _ := core.UserData().(*QP)
	return q
}

// Close closes the device and everything made on it, and waits until its
// goroutines have ended.
func (d *Device) Close() error {
	d.hooks.run(d.core.Tasks())
	err := errors.Join(d.core.Close(), d.trace.close())
	d.seals.close()
	d.closePort.Do(d.core.Tasks(), func() { err = errors.Join(err, d.has.close()) })
	return err
}

// BeforeClose has f called by Close, before anything is closed: f may still
// send a farewell. A service that lives beside the program's own use of the
// device, such as a connection manager, ends with it so. The functions are
// called one after the other, the one that was added last first. forget takes f
// back. On a device that is being closed f is not called.
func (d *Device) BeforeClose(f func()) (forget func()) { return d.hooks.add(f) }

// hooks are functions to be called once, the last one first.
type hooks struct {
	once task.Once
	mu   sync.Mutex
	list []*func()
}

func (h *hooks) add(f func()) (forget func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, &f)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.list = slices.DeleteFunc(h.list, func(g *func()) bool { return g == &f })
	}
}

func (h *hooks) run(tasks task.Runner) {
	h.once.Do(tasks, func() {
		h.mu.Lock()
		list := slices.Clone(h.list)
		h.mu.Unlock()
		for _, f := range slices.Backward(list) {
			(*f)()
		}
	})
}
