package fabric

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/internal/heap"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// Switch is a network in the shape of a star. Its methods are safe for
// concurrent use.
type Switch struct {
	cfg   Config
	start time.Time

	mu       sync.Mutex
	ports    map[netip.Addr]*Port
	groups   map[netip.Addr][]*Port // that have joined, in this order
	attached uint64
	closed   bool
	events   heap.Heap[time.Duration, event] // by the time they happen
	timer    *time.Timer                     // made with the first event that lies ahead
	armed    time.Duration                   // what timer is set to, if not idle
	idle     bool
	free     [len(frameSizes)][]*frame
	stats    SwitchStats
}

// SwitchStats counts what belongs to no port.
type SwitchStats struct {
	Forwarded   uint64 // packets that found their port, or a port in their group
	UnknownAddr uint64 // packets dropped: no port has the address, or is in the group
	UnknownPort uint64 // packets dropped: not to the RoCEv2 UDP port
}

// frame is a packet under way.
type frame struct {
	buf     []byte
	n       int
	size    int // with IP and UDP headers
	src     netip.Addr
	dst     netip.Addr
	srcPort uint16
	dstPort uint16
	class   uint8
	hops    uint8
	label   uint32 // IPv6 flow label

	cable *Port  // whose cable the frame is on
	cuts  uint64 // of that cable when it came there
}

func (f *frame) data() []byte { return f.buf[:f.n] }

// NewSwitch makes a network without ports. Inside a testing/synctest bubble it
// runs in virtual time.
func NewSwitch(c Config) *Switch {
	c.fill()
	return &Switch{cfg: c, start: time.Now(), ports: make(map[netip.Addr]*Port), groups: make(map[netip.Addr][]*Port), idle: true}
}

// Pair makes a network of two ports and returns them; the first Config given,
// if any, describes it. Both links are a *Port, and are to be closed. It panics
// if a and b are not two unicast addresses.
func Pair(a, b netip.Addr, c ...Config) (transport.Link, transport.Link) {
	var cfg Config
	if len(c) > 0 {
		cfg = c[0]
	}
	sw := NewSwitch(cfg)
	var ports [2]*Port
	for i, addr := range []netip.Addr{a, b} {
		p, err := sw.Attach(addr)
		if err != nil {
			panic(err)
		}
		ports[i] = p
	}
	return ports[0], ports[1]
}

var (
	errAddr  = errors.New("not a unicast address")
	errTaken = errors.New("a port has the address already")
)

// SetLinkMTU changes the bytes of an IP packet that the network carries.
func (s *Switch) SetLinkMTU(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.LinkMTU = bytes
	s.cfg.fill()
}

// Attach adds a port with the network's default PortConfig. The link is closed
// by its own Close or the network's.
func (s *Switch) Attach(addr netip.Addr) (*Port, error) {
	return s.AttachPort(addr, s.cfg.Port)
}

// AttachPort adds a port with a PortConfig of its own.
func (s *Switch) AttachPort(addr netip.Addr, c PortConfig) (*Port, error) {
	addr = addr.Unmap()
	key := addr.WithZone("")
	fail := func(err error) (*Port, error) {
		return nil, fmt.Errorf("fabric: attach %v: %w", addr, err)
	}
	if !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() {
		return fail(errAddr)
	}
	c.fill()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fail(transport.ErrClosed)
	}
	if s.ports[key] != nil {
		return fail(errTaken)
	}
	s.attached++
	p := &Port{
		sw: s, addr: addr, local: netip.AddrPortFrom(key, rocev2.UDPPort), cfg: c,
		rng:   rand.New(rand.NewPCG(s.cfg.Seed, s.attached)),
		ready: make(chan struct{}, 1), done: make(chan struct{}),
		verifier: transport.NewVerifier(netip.AddrPortFrom(key, rocev2.UDPPort)),
	}
	s.ports[key] = p
	return p, nil
}

// Close closes all ports. What is under way is lost.
func (s *Switch) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return transport.ErrClosed
	}
	s.closed = true
	for _, p := range s.ports {
		p.closeLocked()
	}
	return nil
}

// Stats returns the counters of the switch itself.
func (s *Switch) Stats() SwitchStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// now is the time on the network's clock.
func (s *Switch) now() time.Duration { return time.Since(s.start) }

// frameSizes are the sizes of frames, so that a queue of acknowledgements does
// not take the memory of one of data.
var frameSizes = [...]int{256, 1280, transport.MaxSealedLen}

// maxFree bounds the frames of one size kept for reuse.
const maxFree = 2048

func frameClass(n int) int {
	c := 0
	for frameSizes[c] < n {
		c++
	}
	return c
}

// newFrame returns a frame with room for n bytes.
func (s *Switch) newFrame(n int) *frame {
	c := frameClass(n)
	if k := len(s.free[c]); k > 0 {
		f := s.free[c][k-1]
		s.free[c] = s.free[c][:k-1]
		return f
	}
	return &frame{buf: make([]byte, frameSizes[c])}
}

func (s *Switch) release(f *frame) {
	f.cable = nil
	c := frameClass(len(f.buf))
	if len(s.free[c]) < maxFree {
		s.free[c] = append(s.free[c], f)
	}
}

// event is the arrival of a frame: at the port, or, without one, at the switch.
type event struct {
	frame *frame
	port  *Port
}

// schedule runs e at its time, at once if that has come. The events due before
// must have run.
func (s *Switch) schedule(now, at time.Duration, e event) {
	if at <= now {
		s.run(now, e)
		return
	}
	s.events.Push(at, e)
}

// runDue runs what is due. Callers that schedule call it first, so that events
// happen in order.
func (s *Switch) runDue(now time.Duration) {
	for {
		if next, ok := s.events.Min(); !ok || next > now {
			return
		}
		at, e := s.events.Pop()
		s.run(at, e)
	}
}

func (s *Switch) run(now time.Duration, e event) {
	if e.port != nil {
		e.port.deliver(e.frame)
		return
	}
	s.forward(now, e.frame)
}

// arm sets the timer to the next event. Callers that schedule call it last.
func (s *Switch) arm(now time.Duration) {
	next, ok := s.events.Min()
	if !ok || !s.idle && s.armed <= next {
		return
	}
	s.armed, s.idle = next, false
	if s.timer == nil {
		s.timer = time.AfterFunc(s.armed-now, s.tick)
		return
	}
	s.timer.Reset(s.armed - now)
}

func (s *Switch) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = true
	now := s.now()
	s.runDue(now)
	s.arm(now)
}

// forward is the switch: f has come in from its sender.
func (s *Switch) forward(now time.Duration, f *frame) {
	if f.severed() {
		return
	}
	p := s.ports[f.dst]
	switch {
	case p == nil && len(s.groups[f.dst]) == 0:
		s.stats.UnknownAddr++
	case f.dstPort != rocev2.UDPPort:
		s.stats.UnknownPort++
	case p == nil:
		s.stats.Forwarded++
		for _, p := range s.groups[f.dst] {
			p.egress(now, s.copyFrame(f))
		}
	default:
		s.stats.Forwarded++
		p.egress(now, f)
		return
	}
	s.release(f)
}

// copyFrame returns a copy of f.
func (s *Switch) copyFrame(f *frame) *frame {
	twin := s.newFrame(f.n)
	buf := twin.buf
	copy(buf, f.data())
	*twin = *f
	twin.buf = buf
	return twin
}
