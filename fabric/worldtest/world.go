package worldtest

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/world/frames"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// Config describes a world. The zero value of all but Network works.
type Config struct {
	// Network has the hosts, cables and switches. topology.Graph.Network
	// makes one of a shape and a profile. It runs in one part, whatever
	// Parts says.
	Network network.Config

	// Device is what Device opens devices with. Spin 0 means that they
	// never poll before they sleep, MinProbe 0 means 80 µs: no host is ever
	// busy, so one that is silent for long has lost something. Random is
	// that of Seed.
	Device verbs.Config

	// Seed is that of queue pair numbers, PSNs and keys.
	Seed uint64

	// SendBuffer is how many bytes on the wire of a host may wait for its
	// cable before a device that sends is held up; 0 means 64 KiB.
	SendBuffer int

	// RecvBuffer is how many bytes may wait for a device before packets are
	// dropped, some overhead included; 0 means 4 MiB.
	RecvBuffer int

	// Limit is how much virtual time the test may take, 0 means an hour.
	// Then the test fails, says what its goroutines wait for, and all
	// devices are closed.
	Limit time.Duration
}

// World is a network whose hosts run the goroutines of a test. Its methods may
// be called from any goroutine of the bubble.
type World struct {
	t       testing.TB
	cfg     Config
	start   time.Time
	linkMTU int
	limit   *time.Timer

	mu      sync.Mutex
	net     *network.Network
	hosts   []host
	packets frames.Store
	dirty   []*host       // those that have sent something
	turned  time.Duration // when the network has been played last
	timer   *time.Timer   // of the next turn
	due     time.Duration // of timer, if it is armed
	armed   bool
	closed  bool
}

// New makes a world, inside the function that synctest.Test gets. It ends with
// the test: devices are closed, and what goroutines of packages rdma, rdmanet
// and cm do after that comes to its end. What cannot be made fails the test.
func New(t testing.TB, c Config) *World {
	t.Helper()
	if bubble() == "" {
		t.Fatal("worldtest: New is for a test in virtual time: call it inside the function that synctest.Test gets")
	}
	c.Network.Parts, c.Network.Parallel = 1, nil
	n, err := network.New(c.Network)
	if err != nil {
		t.Fatal(err)
	}
	c.SendBuffer = cmp.Or(max(c.SendBuffer, 0), 64<<10)
	c.RecvBuffer = cmp.Or(max(c.RecvBuffer, 0), 4<<20)
	c.Limit = cmp.Or(max(c.Limit, 0), time.Hour)
	c.Device.Spin = cmp.Or(c.Device.Spin, -1)
	c.Device.MinProbe = cmp.Or(c.Device.MinProbe, minProbe)
	w := &World{t: t, cfg: c, net: n, start: time.Now(), hosts: make([]host, c.Network.Hosts), linkMTU: frames.LinkMTU(c.Network.MTU)}
	for i := range w.hosts {
		w.hosts[i] = host{w: w, number: i, cable: -1, random: numbers(c.Seed, stream+uint64(i))}
		n.Attach(i, &w.hosts[i])
	}
	for i, k := range c.Network.Cables {
		for _, end := range []int{k.A, k.B} {
			if end < len(w.hosts) && w.hosts[end].cable < 0 {
				w.hosts[end].cable = i
			}
		}
	}
	w.timer = time.AfterFunc(time.Hour, w.turn)
	w.timer.Stop()
	w.limit = time.AfterFunc(c.Limit, w.exceeded)
	t.Cleanup(w.end)
	return w
}

const (
	// minProbe is what fabric/lab has for its adapters, too.
	minProbe = 80 * time.Microsecond

	// stream is that of the numbers of host 0.
	stream = 0x7465737400000000
)

// Addr returns the address of a host: 10.0.0.0/8, and its number.
func Addr(host int) netip.Addr { return frames.Addr(host) }

// Now returns the time since the world began. It is that of package time.
func (w *World) Now() time.Duration { return w.now() }

func (w *World) now() time.Duration { return time.Since(w.start) }

// Device returns the device of a host. It opens one if there is none, or it was
// closed. It is called by the goroutine of the test, which fails if there is no
// such host.
func (w *World) Device(number int) *verbs.Device {
	w.t.Helper()
	if number >= 0 && number < len(w.hosts) {
		h := &w.hosts[number]
		w.mu.Lock()
		dev, open := h.dev, h.port != nil
		w.mu.Unlock()
		if dev != nil && open {
			return dev
		}
	}
	p, err := w.Port(number)
	if err != nil {
		w.t.Fatal(err)
	}
	c := w.cfg.Device
	c.Random = p.host.random
	dev, err := verbs.OpenLink(p, c)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p.host.dev = dev
	return dev
}

// Port returns the port of a host for a device of its own configuration, by
// verbs.OpenLink, or for a wrapper that injects faults or records. The test
// closes it, or the device. It is an error if a device has the port already.
func (w *World) Port(number int) (*Port, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if number < 0 || number >= len(w.hosts) {
		return nil, fmt.Errorf("worldtest: host %d: there are 0 to %d", number, len(w.hosts)-1)
	}
	h := &w.hosts[number]
	switch {
	case w.closed:
		return nil, fmt.Errorf("worldtest: host %d: the world has ended: %w", number, transport.ErrClosed)
	case h.cable < 0:
		return nil, fmt.Errorf("worldtest: host %d has no cable: name it in one of network.Config.Cables", number)
	case h.port != nil:
		return nil, fmt.Errorf("worldtest: host %d has a device already, which has its port", number)
	}
	h.port, h.dev = &Port{host: h, done: make(chan struct{}), ready: make(chan struct{}, 1)}, nil
	return h.port, nil
}

// SetCable takes a cable down or brings it up, as network.Network.SetCable.
// Cables are numbered in the order of network.Config.Cables: in the shapes of
// package topology with switches cable i is that of host i, and the others
// follow. A device on its end learns of it, as by the carrier of its
// interface. A number that no cable has is an error of the test.
func (w *World) SetCable(i int, up bool) {
	if i < 0 || i >= len(w.cfg.Network.Cables) {
		w.t.Errorf("worldtest: cable %d: there are 0 to %d", i, len(w.cfg.Network.Cables)-1)
		return
	}
	w.mu.Lock()
	w.play()
	w.net.SetCable(i, up)
	w.armNext()
	change := transport.PortWentDown
	if up {
		change = transport.PortCameUp
	}
	var tell []*watcher
	for n := range w.hosts {
		if h := &w.hosts[n]; h.cable == i && h.port != nil {
			for t := range h.port.watchers {
				tell = append(tell, t)
			}
		}
	}
	w.mu.Unlock()
	for _, t := range tell {
		t.tell(change)
	}
}

// Up reports whether a cable is up. One that is not there is not.
func (w *World) Up(i int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return i >= 0 && i < len(w.cfg.Network.Cables) && w.net.Up(i)
}

// Totals returns the counters of the network up to now.
func (w *World) Totals() network.Totals {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.play()
	w.armNext()
	return w.net.Totals()
}

// Digest returns what stands for all that has happened in the network up to
// now: see the documentation of the package for when it is that of another run.
func (w *World) Digest() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.play()
	w.armNext()
	return w.net.Digest()
}

// turn plays the network up to now. The timer calls it.
func (w *World) turn() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = false
	w.play()
	w.armNext()
}

// play has the network do what is due, and then take what hosts have sent
// before this nanosecond, in the order of their numbers.
func (w *World) play() {
	now := w.now()
	w.turned = now
	w.net.Run(event.Of(now))
	if len(w.dirty) == 0 {
		return
	}
	slices.SortFunc(w.dirty, func(a, b *host) int { return a.number - b.number })
	left := w.dirty[:0]
	for _, h := range w.dirty {
		w.net.Kick(h.number, 0)
		if h.dirty = h.latest >= now; h.dirty {
			left = append(left, h)
		}
	}
	w.dirty = left
	w.net.Run(event.Of(now))
}

// armNext has the next turn come when something is due in the network, or was
// sent.
func (w *World) armNext() {
	if len(w.dirty) > 0 {
		w.arm(w.turned + 1)
	}
	if at := w.net.Next(); at != event.Never {
		w.arm((at + event.Nanosecond - 1).Duration())
	}
}

// arm has a turn come at a time at the latest.
func (w *World) arm(at time.Duration) {
	if w.closed || w.armed && w.due <= at {
		return
	}
	w.armed, w.due = true, at
	w.timer.Reset(at - w.now())
}

// lingers is how long what others do after the end of a device may take.
const lingers = 5 * time.Minute

// end ends the world, with the test.
func (w *World) end() {
	w.limit.Stop()
	w.closeDevices()
	time.Sleep(lingers) // of virtual time: it takes none if nothing is left
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.timer.Stop()
}

// closeDevices closes the devices that Device has opened, and the ports of all
// others.
func (w *World) closeDevices() {
	for i := range w.hosts {
		h := &w.hosts[i]
		w.mu.Lock()
		dev, port := h.dev, h.port
		w.mu.Unlock()
		switch {
		case dev != nil:
			if err := dev.Close(); err != nil {
				w.t.Errorf("close the device of host %d: %v", i, err)
			}
		case port != nil:
			port.Close() // then its device has failed
		}
	}
}
