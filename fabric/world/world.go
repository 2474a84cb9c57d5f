package world

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/world/frames"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// Config describes a world.
type Config struct {
	// Network has the hosts, cables and switches. topology.Graph.Network
	// makes one of a shape and a profile. It runs in one part, whatever
	// Parts says: programs run one at a time, on whichever host.
	Network network.Config

	// Device is what all devices are opened with. MinProbe 0 means 80 µs:
	// no host of a world is ever busy, so one that is silent for long has
	// lost something.
	Device verbs.Config

	// Seed is that of queue pair numbers, PSNs and keys.
	Seed uint64
}

// World is a network whose hosts run programs.
type World struct {
	cfg     Config
	net     *network.Network
	hosts   []host
	rand    event.Rand
	linkMTU int

	tx      *transport.TxBatch // of the packet that is being sent
	rx      [1]transport.RxPacket
	packets frames.Store

	ctx      context.Context
	cancel   context.CancelCauseFunc
	tasks    scheduler
	errs     []error // of programs
	closed   bool
	programs int  // that have not returned
	playing  bool // a call of Run or RunFor is under way

	listeners map[netip.AddrPort]*listener
	dialed    int
}

// ErrStuck is why programs are ended that wait for each other, or for what does
// not come.
var ErrStuck = errors.New("world: programs wait, and nothing happens any more")

// ErrInside is returned to a program, or a script, that has the world run or
// close, which it is inside of.
var ErrInside = errors.New("world: a program or a script of the world cannot have it run or close")

// ErrEnded is returned to programs that wait when the world is closed.
var ErrEnded = errors.New("world: the world was closed")

// New makes a world at time 0, in which no program runs.
func New(c Config) (*World, error) {
	c.Network.Parts, c.Network.Parallel = 1, nil
	n, err := network.New(c.Network)
	if err != nil {
		return nil, err
	}
	w := &World{
		cfg: c, net: n, hosts: make([]host, c.Network.Hosts), rand: event.NewRand(c.Seed, stream),
		linkMTU: frames.LinkMTU(c.Network.MTU),
		tx:      transport.NewTxBatch(rocev2.MaxPacketLen),
	}
	for i := range w.hosts {
		w.hosts[i] = host{w: w, number: uint16(i), due: event.Never, armed: event.Never}
		w.net.Attach(i, &w.hosts[i])
	}
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	w.tasks.w = w
	if w.cfg.Device.MinProbe == 0 {
		w.cfg.Device.MinProbe = minProbe
	}
	return w, nil
}

// minProbe is what fabric/lab has for its adapters, too.
const minProbe = 80 * time.Microsecond

// stream is that of the numbers that devices draw.
const stream = 0x776f726c64

// epoch is the devices' time when the network's begins: to engines 0 stands for
// no time at all.
const epoch clock.Time = 1

func toClock(t event.Time) clock.Time { return clock.Time(t/event.Nanosecond) + epoch }

// fromClock returns the first moment at which the devices' time is t, or Never
// where no network comes to it.
func fromClock(t clock.Time) event.Time { return event.Of(time.Duration(t - epoch)) }

// Addr returns the address of a host: 10.0.0.0/8, and its number.
func Addr(host int) netip.Addr { return frames.Addr(host) }

// after returns the time in a while, or Never where that is more than a network
// can count.
func (w *World) after(d time.Duration) event.Time {
	now := w.net.Now()
	if max(d, 0) >= (event.Never - now).Duration() {
		return event.Never
	}
	return now + event.Time(max(d, 0))*event.Nanosecond
}

// Network returns the network, for its counters, and to change its cables.
func (w *World) Network() *network.Network { return w.net }

// Now returns the time since the world began.
func (w *World) Now() time.Duration { return w.net.Now().Duration() }

// Digest returns what stands for all that has happened in the network: equal
// digests are equal runs.
func (w *World) Digest() uint64 { return w.net.Digest() }

// Check says what is wrong, for tests: with the network (Network.Check), or
// with what is kept of packets under way.
func (w *World) Check() error {
	if err := w.net.Check(); err != nil {
		return err
	}
	t := w.net.Totals()
	if kept, inside := uint64(w.packets.Len()), t.Inside(); kept != inside {
		return fmt.Errorf("world: %d packets are kept, and %d are under way", kept, inside)
	}
	return nil
}

// Device returns the device of a host, and opens it if it is not there, or was
// closed.
func (w *World) Device(number int) (*verbs.Device, error) {
	if err := w.checkHost(number); err != nil {
		return nil, err
	}
	if w.net.Ports(number) == 0 {
		return nil, fmt.Errorf("world: host %d has no cable: name it in one of network.Config.Cables", number)
	}
	h := &w.hosts[number]
	if h.dev != nil && !h.closed {
		return h.dev, nil
	}
	h.closed = false
	dev, err := verbs.OpenLink(h, w.cfg.Device)
	if err != nil {
		return nil, err
	}
	h.dev = dev
	return dev, nil
}

func (w *World) checkHost(number int) error {
	switch {
	case w.closed:
		return ErrEnded
	case number < 0 || number >= len(w.hosts):
		return fmt.Errorf("world: host %d: there are 0 to %d", number, len(w.hosts)-1)
	}
	return nil
}

// Go starts a program on a host: it runs as soon as Run does, or when the
// program that calls waits. What it returns is part of the error of Run. The
// device stays open when it returns, because peers may still use its memory,
// unless the program closes it. ctx ends when the program is to end: its cause
// then says why.
func (w *World) Go(number int, program func(ctx context.Context, dev *verbs.Device) error) error {
	dev, err := w.Device(number)
	if err != nil {
		return err
	}
	w.programs++
	w.tasks.start(&w.hosts[number], func() {
		defer func() { w.programs-- }()
		if err := program(w.ctx, dev); err != nil {
			w.errs = append(w.errs, fmt.Errorf("host %d: %w", number, err))
		}
	})
	return nil
}

// At has f called at a time since the world began. f must not wait. 106 days
// are the longest time that comes.
func (w *World) At(t time.Duration, f func()) {
	at := w.after(t - w.Now())
	if at == event.Never {
		return
	}
	w.net.At(at, func() {
		f()
		w.tasks.run()
	})
}

// Run plays until nothing happens any more. Where programs are left that wait,
// their context ends, with ErrStuck as its cause. The error joins those of the
// programs that have returned, in that order. A program that polls for ever, or
// a peer that is asked for ever because it posts no receive, goes on for ever:
// RunFor has an end.
func (w *World) Run() error {
	if w.playing {
		return ErrInside
	}
	w.run(event.Never)
	if len(w.tasks.all) == 0 {
		return w.takeErrors()
	}
	stuck := fmt.Errorf("%w: %d of them%s", ErrStuck, len(w.tasks.all), w.tasks.waiting(mostNamed))
	w.cancel(ErrStuck)
	w.tasks.wakeAll()
	w.run(event.Never)
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	w.errs = append([]error{stuck}, w.errs...)
	return w.takeErrors()
}

// RunFor plays for so long. The error is as that of Run; programs that wait are
// left waiting.
func (w *World) RunFor(d time.Duration) error {
	if w.playing {
		return ErrInside
	}
	w.run(w.after(d))
	return w.takeErrors()
}

func (w *World) run(until event.Time) {
	w.playing = true
	defer func() { w.playing = false }()
	w.tasks.run()
	w.net.Run(until)
}

// Running returns how many programs that Go has started have not returned yet.
func (w *World) Running() int { return w.programs }

func (w *World) takeErrors() error {
	err := errors.Join(w.errs...)
	w.errs = nil
	return err
}

// Close ends what runs, and closes all devices. Programs that wait get
// ErrEnded. The error joins those of the programs.
func (w *World) Close() error {
	switch {
	case w.playing:
		return ErrInside
	case w.closed:
		return nil
	}
	w.closed = true
	w.cancel(ErrEnded)
	w.tasks.stop()
	for i := range w.hosts {
		if h := &w.hosts[i]; h.dev != nil && !h.closed {
			w.errs = append(w.errs, h.dev.Close())
		}
	}
	return w.takeErrors()
}
