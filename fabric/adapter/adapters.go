package adapter

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Config is what the adapters of a network have in common. The zero Config has
// the defaults of package engine.
type Config struct {
	Seed uint64 // of queue pair numbers, PSNs and keys

	// Window is what queue pairs have in flight, see engine.Config. Its
	// MaxBytes bounds all of a host's to one peer together, also those with
	// a Connection.Congestion.
	Window    qp.WindowConfig
	ReadChunk int           // see engine.Config
	Turn      int           // see engine.Config; 0: one packet, as in adapters
	MinProbe  time.Duration // see engine.Config

	NotifyInterval time.Duration  // see engine.Config, as all of these
	NotifyScope    qp.NotifyScope // what shares that time
	NotifyHold     bool           // marks within it are reported after it
	NotifyClass    int

	// Shares is how classes share a host's cable. Nil has the highest that
	// has a packet go first.
	Shares *Shares

	// Telemetry has hosts ask for what switches tell
	// (network.Telemetry) with each packet of data, and send it back
	// with acknowledgements, to congestion control that is a
	// cc.Telemetry. network.Config.Trail makes room for it.
	Telemetry bool

	// PerPacket has each packet of a host leave by another UDP source port
	// than the one before, one of 256 in turn, so that ECMP sends it by
	// another way. The receiver takes it for one of its connection. It is
	// not for Real.
	PerPacket bool

	// Trace, if it is not nil, gets what the queue pairs of the hosts
	// decide. In a network of several parts it is called by
	// several goroutines at once.
	Trace func(at event.Time, host int, e *qp.TraceEvent)

	// Real has packets carry their payloads, with an ICRC. Then a program
	// registers memory with Host.Register.
	Real bool
}

// Adapters are the adapters of a network. They are not safe for concurrent use.
type Adapters struct {
	cfg   Config
	net   *network.Network
	hosts []*Host
	rand  event.Rand
	parts []*part // as the network's
}

// New returns the adapters of a network of that many hosts. None is there
// before Host or Connect asks for it. It is an error if there are not 1 to
// 65535.
func New(n *network.Network, hosts int, c Config) (*Adapters, error) {
	if hosts < 1 || hosts > maxHosts {
		return nil, fmt.Errorf("adapter: %d hosts: there must be 1 to %d", hosts, maxHosts)
	}
	if c.PerPacket && c.Real {
		return nil, errors.New("adapter: Config.PerPacket changes the ports of packets, and Real has an ICRC that covers them: take one of them out")
	}
	a := &Adapters{cfg: c, net: n, hosts: make([]*Host, hosts)}
	for i := range n.Parts() {
		a.rand = event.NewRand(c.Seed, stream) // all parts have the same keys
		p, err := newPart(a, i)
		if err != nil {
			return nil, err
		}
		a.parts = append(a.parts, p)
	}
	return a, nil
}

const (
	maxHosts    = 1<<16 - 1
	stream      = 0xada97e5 // of randomness, among those of one seed
	phantomAddr = 1 << 32
	allAccess   = ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic
)

func (a *Adapters) random() uint32 { return uint32(a.rand.Uint64() >> 32) }

// Network returns the network that the adapters are on.
func (a *Adapters) Network() *network.Network { return a.net }

// Now returns the time.
func (a *Adapters) Now() event.Time { return a.net.Now() }

// epoch is the engines' time when the network's begins: to them 0 stands for no
// time at all.
const epoch clock.Time = 1

func toClock(t event.Time) clock.Time { return clock.Time(t/event.Nanosecond) + epoch }

// fromClock returns the first moment at which the engines' time is t, or Never
// where no network comes to it.
func fromClock(t clock.Time) event.Time { return event.Of(time.Duration(t - epoch)) }

// Host returns the adapter of a host, and makes it if it is not there. It is an
// error if the network has no such host, or no cable to it.
func (a *Adapters) Host(number int) (*Host, error) {
	if number < 0 || number >= len(a.hosts) {
		return nil, fmt.Errorf("adapter: host %d: there are 0 to %d", number, len(a.hosts)-1)
	}
	if h := a.hosts[number]; h != nil {
		return h, nil
	}
	if a.net.Ports(number) == 0 {
		return nil, fmt.Errorf("adapter: host %d has no cable: name it in one of network.Config.Cables", number)
	}
	p := a.parts[a.net.PartOf(number)]
	h := &Host{a: a, part: p, number: uint16(number), table: p.table, pd: p.pd}
	if a.cfg.Shares != nil {
		h.sharing = newSharing(a.cfg.Shares)
	}
	if a.cfg.Real {
		h.table = memreg.NewTable(a.random)
		h.pd = h.table.AllocPD()
	}
	h.e = engine.New(engine.Config{Addr: addrOf(h.number), Memory: h.table, Random: a.random,
		Window: a.cfg.Window, ReadChunk: a.cfg.ReadChunk, Turn: cmp.Or(a.cfg.Turn, 1), MinProbe: a.cfg.MinProbe,
		NotifyInterval: a.cfg.NotifyInterval, NotifyScope: a.cfg.NotifyScope, NotifyHold: a.cfg.NotifyHold,
		NotifyClass: a.cfg.NotifyClass, Phantom: !a.cfg.Real, Class: a.classOf,
		Trace: a.trace(number)})
	a.hosts[number] = h
	a.net.Attach(number, h)
	return h, nil
}

// trace returns what takes the events of a host, nil if nothing does.
func (a *Adapters) trace(host int) *qp.TraceHook {
	if a.cfg.Trace == nil {
		return nil
	}
	return qp.NewTraceHook(func(e *qp.TraceEvent) { a.cfg.Trace(a.net.TimeOf(host), host, e) })
}

func (a *Adapters) classOf(trafficClass uint8) uint8 { return a.net.ClassOf(trafficClass >> 2) }

// Stats returns the sum of the counters of all queue pairs.
func (a *Adapters) Stats() (sum qp.Stats) {
	for _, h := range a.hosts {
		if h != nil {
			s := h.e.QPStats()
			sum.Add(&s)
		}
	}
	return sum
}

// Received returns the payload that has arrived, the RxBytes of Stats. It takes
// a look at each host, and none at its queue pairs.
func (a *Adapters) Received() (sum uint64) {
	for _, h := range a.hosts {
		if h != nil {
			sum += h.e.Counters().Payload
		}
	}
	return sum
}

// Check says what is wrong, for tests: packets under way have a record, and no
// others; no adapter has dropped a packet that it could not read; and if idle,
// nothing is in flight.
func (a *Adapters) Check() error {
	idle := a.net.Idle()
	t := a.net.Totals()
	used := 0
	for _, p := range a.parts {
		used += p.records.used
	}
	if inside := t.Inside(); uint64(used) != inside {
		return fmt.Errorf("adapter: %d records of packets, and %d packets under way", used, inside)
	}
	if got, sum := a.Received(), a.Stats().RxBytes; got != sum {
		return fmt.Errorf("adapter: engines have got %d bytes, and their queue pairs %d", got, sum)
	}
	for _, h := range a.hosts {
		if h == nil {
			continue
		}
		var err error
		for why, n := range h.e.Counters().Device {
			if why := engine.DeviceDrop(why); n > 0 && why != engine.DropUnknownQP {
				err = errors.Join(err, fmt.Errorf("adapter: host %d has dropped %d packets: %v", h.number, n, why))
			}
		}
		if err != nil {
			return err
		}
		if u := h.e.Usage(); idle && u.InFlight != 0 {
			return fmt.Errorf("adapter: host %d has %d bytes in flight, and nothing is under way", h.number, u.InFlight)
		}
	}
	return nil
}
