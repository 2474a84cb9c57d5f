package hca

import (
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/hca/strict"
	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/hca/wake"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// Config adjusts a device. The zero value works.
type Config struct {
	// Spin is how many times a waiting program polls before it parks, at
	// most 2^20. 0 means a default that fits the number of processors; a
	// negative number means never.
	Spin int

	// Window bounds what a queue pair keeps in flight. Zero fields take the
	// defaults of engine.Config.Window, for the receive buffer that the
	// link was granted.
	Window qp.WindowConfig

	// ReadChunk is the largest RDMA READ request in bytes; longer READs go
	// out as several. 0 means 256 KiB, or half of Window.MaxBytes if that
	// is less; a negative number means one request for each message.
	ReadChunk int

	// Congestion makes the congestion control of queue pairs that bring
	// none of their own (qp.Config.Congestion). nil means a cc.Window.
	Congestion func(qp.WindowConfig) qp.Controller

	// NotifyInterval is the least time between two congestion notifications
	// of a queue pair. 0 means 50 µs; see qp.Config.
	NotifyInterval time.Duration

	// NotifyScope and NotifyHold say which queue pairs share that time, and
	// what becomes of marks within it, see engine.Config.
	NotifyScope qp.NotifyScope
	NotifyHold  bool

	// NotifyClass is their traffic class, see engine.Config. 0 means DSCP
	// 48.
	NotifyClass int

	// MinProbe is how long a native peer must be silent at least,
	// before the oldest packet in flight is sent again without waiting for
	// the local ACK timeout. To other peers nothing is. It is longer where
	// round trips are, and where the peer's host was seen to pause. 0 means
	// 1 ms, a negative number never.
	MinProbe time.Duration

	// Trace, if it is not nil, gets what the queue pairs decide, and the
	// time since the device was made. The event is its own until it
	// returns. It is called under the lock of the queue pair's shard, by
	// one goroutine for each, and must not call the device.
	Trace func(at time.Duration, e *qp.TraceEvent)

	// Loopback has packets between queue pairs of this device, those whose
	// peer address is the device's own, pass inside it, as adapters do:
	// copied from memory to memory on the way, without socket and ICRC. All
	// else is as between two hosts: rights, RNR, errors, order, timers. It
	// is off by default, because the link does not see such packets:
	// nothing of them is captured, lost by injected faults, or counted in
	// Stats.Link.
	Loopback bool

	// Random gives the numbers of queue pairs, the PSNs that they begin
	// with, and keys. Several goroutines may call it at once. nil means
	// numbers that no peer can guess.
	Random func() uint32

	// Strict, if it is not nil, has the device refuse what adapters refuse,
	// and record what they punish. Its limits are the device's.
	Strict *strict.Checker
}

// Device is a software host channel adapter on one address.
type Device struct {
	*shared
	shards []*shard
	own    ownAddr
	mem    *memreg.Table
	driven *Driven // nil without a driver

	groups     groups
	srqNumbers srqNumbers
	slotPorts  slotPorts
	stock      stock
	use        use
	program    Program
	limits     ib.Limits
	checks     *Checks // nil but in strict mode

	mu       sync.Mutex // guards what follows and serialises changes of mem
	contexts map[*Context]struct{}
	closed   bool

	unwatch   func() // ends the watching of the port
	closeOnce task.Once
	closeErr  error
}

// New makes a device on links of one address and starts it. Of several links,
// whose number is a power of two, link i is where packets for QPNs that are i
// modulo that number should arrive; each becomes a shard that works beside the
// others. A link that is a Driver runs the device itself. The device closes the
// links when it is closed.
func New(cfg Config, links ...transport.Link) *Device {
	if n := len(links); n == 0 || n&(n-1) != 0 {
		panic("hca: the number of links must be a power of two")
	}
	d := &Device{
		shared:   &shared{base: time.Now(), tasks: tasksOn(links), spin: wake.SpinCount(cfg.Spin, runtime.GOMAXPROCS(0)), events: newEventHub(), pager: newPager(), broken: make(chan struct{})},
		own:      ownAddr{links[0].Addr(), links[0]},
		contexts: map[*Context]struct{}{},
	}
	d.groups.dev, d.events.later = d, d.handlers.run
	caps := links[0].Capabilities()
	ec := engine.Config{
		Addr: d.own.Addr, Port: caps.Port, Random: cfg.random(),
		Window: cfg.Window, RecvBuffer: caps.RecvBuffer, ReadChunk: cfg.ReadChunk, MinProbe: cfg.MinProbe,
		Congestion: cfg.Congestion, NotifyInterval: cfg.NotifyInterval, NotifyClass: cfg.NotifyClass,
		NotifyScope: cfg.NotifyScope, NotifyHold: cfg.NotifyHold,
		LeadAcks: caps.SegmentOffload, Loopback: cfg.Loopback,
	}
	d.stock.limits = d.shared.takePart(links, &ec)
	driver := driverOf(links)
	if driver != nil {
		driver.Configure(&ec)
		d.driver, d.spin = driver, 0
	}
	d.random = ec.Random
	d.mem = memreg.NewTable(d.random)
	d.limits = ib.OwnLimits.Within(cfg.Strict.Limits())
	d.stock.limits.within(&d.limits)
	d.limits.QP = d.stock.limits[kindQP]
	d.checks = newChecks(d, cfg.Strict)
	ec.Memory = d.mem
	for i, l := range links {
		ec.Shard = d.slot + i
		if cfg.Trace != nil {
			ec.Trace = qp.NewTraceHook(func(e *qp.TraceEvent) { cfg.Trace(time.Duration(d.now()), e) })
		}
		d.shards = append(d.shards, newShard(d.shared, l, ec))
	}
	d.program = Program{dev: d, first: d.shards[0]}
	d.yield.init()
	d.moderator.now = d.now
	if driver != nil {
		d.driven = newDriven(driver, d)
	} else {
		d.moderator.alarm.init(d.moderator.onAlarm)
		for _, s := range d.shards {
			s.start()
		}
	}
	d.unwatch = transport.WatchPort(links[0], d.events.portChanged)
	transport.TellUse(links[0], func() transport.Use { return d.use.report(d.stock.has(kindQP), d.parts) })
	return d
}

// takePart sets which queue pair numbers a device on these links has: all, or
// those of its lease. It returns what the device offers then.
func (s *shared) takePart(links []transport.Link, c *engine.Config) objects {
	limits := deviceLimits
	s.slots = len(links)
	if l, ok := transport.LeaseOf(links[0]); ok {
		s.slot, s.slots = l.Slot, l.Slots
		// Half of the numbers: one that is free is found by chance.
		limits[kindQP] = min(limits[kindQP], (1<<24)/l.Slots*len(links)/2)
		if l.MaxQPs > 0 {
			limits[kindQP] = min(limits[kindQP], l.MaxQPs)
		}
	}
	c.Shards, c.FirstShard, c.OwnShards = s.slots, s.slot, len(links)
	return limits
}

// driverOf returns the driver of a device with these links, nil if it has none.
func driverOf(links []transport.Link) Driver {
	for _, l := range links {
		if driver, ok := l.(Driver); ok {
			if len(links) > 1 {
				panic("hca: a device that a Driver runs has one link")
			}
			return driver
		}
	}
	return nil
}

// random returns what gives random numbers.
func (c *Config) random() func() uint32 {
	if c.Random != nil {
		return c.Random
	}
	return random32
}

// random32 gives keys, QPNs and starting PSNs: a peer must not be able to
// guess them.
func random32() uint32 {
	var b [4]byte
	crand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint32(b[:])
}

// RandomPSN returns a starting PSN.
func (d *Device) RandomPSN() rocev2.PSN { return rocev2.PSN(d.random() & uint32(rocev2.PSNMask)) }

// Addr returns the local address.
func (d *Device) Addr() netip.Addr { return d.own.Addr }

// PortStatus returns how the port is now.
func (d *Device) PortStatus() transport.PortStatus { return transport.StatusOf(d.shards[0].link) }

// SharedPeers returns the peers that are reached through shared memory at the
// moment, in order.
func (d *Device) SharedPeers() (list []netip.Addr) {
	for _, s := range d.shards {
		list = append(list, transport.SharedPeers(s.link)...)
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}

// Memory returns the table of regions.
func (d *Device) Memory() *memreg.Table { return d.mem }

// Progress handles what the link has received, on the caller's goroutine, and
// reports whether there was anything. It never waits: when another goroutine is
// at it, it returns at once. Answers may stay unsent until Settle, the next
// Progress or the next post.
func (d *Device) Progress() bool {
	any := false
	for _, s := range d.shards {
		any = s.in.progress() || any
	}
	d.yield.polled(any)
	return any
}

// Settle sends the answers that Progress has left.
func (d *Device) Settle() {
	for _, s := range d.shards {
		s.out.transmitDelayed()
	}
}

// Close ends the device: every object made on it is closed, then the link. It
// waits for its goroutines, also when another call does the work.
func (d *Device) Close() error {
	d.closeOnce.Do(d.Tasks(), func() {
		d.unwatch()
		d.stock.close()
		d.mu.Lock()
		d.closed = true
		contexts := slices.Collect(maps.Keys(d.contexts))
		d.mu.Unlock()
		var errs []error
		for _, c := range contexts {
			errs = append(errs, c.Close())
		}
		d.pager.wg.Wait()
		d.moderator.alarm.stop()
		for _, s := range d.shards {
			errs = append(errs, s.close())
		}
		d.closeErr = errors.Join(errs...)
	})
	return d.closeErr
}

// shardOf returns the shard of a queue pair with a number, nil if that is of
// another device with the same address.
func (d *Device) shardOf(n rocev2.QPN) *shard {
	if i := d.partOf(n); i >= 0 {
		return d.shards[i]
	}
	return nil
}

// Failed reports whether the device has lost its port.
func (d *Device) Failed() bool { return d.failed.Load() }
