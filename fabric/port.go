package fabric

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// Port is a port of a Switch, a transport.Link.
type Port struct {
	sw    *Switch
	addr  netip.Addr
	local netip.AddrPort

	ready    chan struct{}         // holds a token while something may be queued
	done     chan struct{}         // closed by Close
	verifier *transport.Verifier   // of packets to the port's address
	checks   []*transport.Verifier // scratch of Recv: for its packets

	// The rest belongs to sw.mu.
	cfg      PortConfig
	cut      bool
	cuts     uint64 // how often the cable was cut: what was on it is lost
	rng      *rand.Rand
	upFree   time.Duration // when the uplink has sent all that waits for it
	downFree time.Duration // when the egress queue is empty
	queue    frameRing
	queued   int // bytes in queue, overhead included
	underWay int // bytes on the way from the egress queue
	closed   bool
	groups   map[netip.Addr]*transport.Verifier // that the port has joined
	counters Counters

	sent, sentBytes int // not yet in stats
	stats           transport.LinkCounters
}

// Counters tell what happened to packets on their way to a port.
type Counters struct {
	Lost       uint64 // by Loss
	Duplicated uint64 // by Duplicate
	Corrupted  uint64 // by Corrupt
	Reordered  uint64 // by Reorder
	TailDrops  uint64 // egress queue full
	Marked     uint64 // ECN
	Cut        uint64 // on the port's cable, in either direction, when it was cut, or sent into one
}

var _ transport.Link = (*Port)(nil)

// Addr returns the port's address.
func (p *Port) Addr() netip.Addr { return p.addr }

// Capabilities returns what the link can do.
func (p *Port) Capabilities() transport.Capabilities {
	p.sw.mu.Lock()
	defer p.sw.mu.Unlock()
	return transport.Capabilities{
		MTU:         rocev2.LargestMTU(p.linkMTU()),
		LinkMTU:     p.linkMTU(),
		Port:        rocev2.UDPPort,
		FullICRC:    true,
		ECN:         true,
		SourcePorts: true,
		RecvBuffer:  p.cfg.RecvBuffer,
		SendBuffer:  p.cfg.SendBuffer,
	}
}

// linkMTU is how many bytes an IP packet may have that the port sends. The
// caller holds sw.mu.
func (p *Port) linkMTU() int {
	if p.cfg.LinkMTU > 0 {
		return min(p.cfg.LinkMTU, p.sw.cfg.LinkMTU)
	}
	return p.sw.cfg.LinkMTU
}

// Wait blocks until a packet is queued.
func (p *Port) Wait() error {
	select {
	case <-p.done:
		return transport.ErrClosed
	default:
	}
	select {
	case <-p.ready:
		return nil
	case <-p.done:
		return transport.ErrClosed
	}
}

// Wake makes a Wait return.
func (p *Port) Wake() { p.signal() }

// Recv takes what is queued, as much as fits.
func (p *Port) Recv(b *transport.RxBatch) (int, error) {
	b.Reset()
	p.sw.mu.Lock()
	if p.closed {
		p.sw.mu.Unlock()
		return 0, transport.ErrClosed
	}
	p.checks = p.checks[:0]
	for p.queue.len() > 0 {
		f := p.queue.peek()
		v := p.verifier
		if f.dst != p.local.Addr() {
			v = p.groups[f.dst] // nil if the port has left it meanwhile
		}
		if v != nil && !b.AppendCopy(transport.RxPacket{
			Data: f.data(), Src: f.src, Dst: f.dst, SrcPort: f.srcPort,
			TrafficClass: f.class, HopLimit: f.hops, FlowLabel: f.label,
		}) {
			p.signal()
			break
		}
		if v != nil {
			p.checks = append(p.checks, v)
		}
		p.queue.pop()
		p.queued -= f.n + frameOverhead
		p.sw.release(f)
	}
	p.sw.mu.Unlock()

	for i := range b.Packets() {
		k := &b.Packets()[i]
		k.ICRC, k.IPID = p.checks[i].Peer(netip.AddrPortFrom(k.Src, k.SrcPort)).Check(0, k.Data)
	}
	if b.Len() > 0 {
		p.stats.Received(b, b.Len(), 0)
	}
	return b.Len(), nil
}

var (
	errTooLong = fmt.Errorf("fabric: %w", transport.ErrTooLong)
	errFamily  = errors.New("path of another address family")
)

// Send puts b on the port's uplink. It blocks while more than SendBuffer waits
// there.
func (p *Port) Send(b *transport.TxBatch) error {
	b.SealAll(p.local, false)
	var fail transport.SendError
	s := p.sw
	s.mu.Lock()
	defer s.mu.Unlock()
	defer p.countSent()
	now := s.now()
	s.runDue(now)
	for i := range b.Len() {
		for !p.closed && p.backlog(now) > p.cfg.SendBuffer {
			s.arm(now)
			now = p.awaitRoom(now)
			s.runDue(now)
		}
		if p.closed {
			return transport.ErrClosed
		}
		if err := p.transmit(now, b, i); err != nil {
			fail.Add(i, 1, err)
			p.stats.SendFailed(1)
		}
	}
	s.arm(now)
	return fail.Result()
}

// backlog returns the bytes that wait for the uplink.
func (p *Port) backlog(now time.Duration) int {
	return queuedBytes(p.cfg.Rate, p.upFree-now)
}

// queuedBytes is what a cable of rate sends in d.
func queuedBytes(rate int64, d time.Duration) int {
	if rate <= 0 || d <= 0 {
		return 0
	}
	return int(float64(rate) * d.Seconds() / 8)
}

// countSent counts what was sent since the last call, before others can receive
// it.
func (p *Port) countSent() {
	p.stats.Sent(p.sent, p.sent, p.sentBytes)
	p.sent, p.sentBytes = 0, 0
}

// awaitRoom gives up the lock until the uplink has room again.
func (p *Port) awaitRoom(now time.Duration) time.Duration {
	p.stats.SendWaited()
	p.countSent()
	// Down to half, so that the sender does not wake for every packet.
	d := p.upFree - now - p.cfg.serialization(p.cfg.SendBuffer/2)
	p.sw.mu.Unlock()
	t := time.NewTimer(max(d, 1))
	select {
	case <-t.C:
	case <-p.done:
		t.Stop()
	}
	p.sw.mu.Lock()
	return p.sw.now()
}

// transmit puts packet i of b on the uplink.
func (p *Port) transmit(now time.Duration, b *transport.TxBatch, i int) error {
	data, _ := b.Sealed(i)
	_, path := b.Packet(i)
	headers := headersIPv6
	if p.local.Addr().Is4() {
		headers = headersIPv4
	}
	switch {
	case path.Dst.Is4() != p.local.Addr().Is4():
		return errFamily
	case len(data)+headers > p.linkMTU():
		return errTooLong
	}
	f := p.sw.newFrame(len(data))
	f.n = copy(f.buf, data)
	f.size = f.n + headers
	f.src, f.dst = p.local.Addr(), path.Dst
	f.srcPort, f.dstPort = cmp.Or(path.SrcPort, rocev2.UDPPort), path.Port(rocev2.UDPPort)
	f.class, f.label = path.TrafficClass, path.FlowLabel
	f.hops = cmp.Or(path.HopLimit, defaultHops)
	p.sent++
	p.sentBytes += f.n
	at := now
	if p.cfg.Rate > 0 {
		p.upFree = max(now, p.upFree) + p.cfg.serialization(f.size)
		at = p.upFree
	}
	f.cable, f.cuts = p, p.cuts
	if f.severed() {
		return nil
	}
	p.sw.schedule(now, at, event{frame: f})
	return nil
}

// severed reports whether the cable was cut while f was on it, and then
// releases f.
func (f *frame) severed() bool {
	p := f.cable
	if !p.cut && f.cuts == p.cuts {
		return false
	}
	p.counters.Cut++
	p.sw.release(f)
	return true
}

// chance decides with probability q. Without a probability the sequence of
// random numbers does not advance.
func (p *Port) chance(q float64) bool { return q > 0 && p.rng.Float64() < q }

// egress is the switch's side of the port: impairments, then the queue.
func (p *Port) egress(now time.Duration, f *frame) {
	f.cable, f.cuts = p, p.cuts
	if f.severed() {
		return
	}
	if p.chance(p.cfg.Loss) {
		p.counters.Lost++
		p.sw.release(f)
		return
	}
	if p.chance(p.cfg.Corrupt) {
		p.counters.Corrupted++
		p.corrupt(f)
	}
	if p.chance(p.cfg.Duplicate) {
		p.counters.Duplicated++
		p.enqueue(now, p.sw.copyFrame(f))
	}
	p.enqueue(now, f)
}

// corrupt flips a bit of f, but none of the byte that the ICRC does not cover.
func (p *Port) corrupt(f *frame) {
	const uncovered = 4 // FECN, BECN and reserved bits
	i := p.rng.IntN(f.n - 1)
	if i >= uncovered {
		i++
	}
	f.buf[i] ^= 1 << p.rng.IntN(8)
}

func (p *Port) enqueue(now time.Duration, f *frame) {
	if p.underWay+f.n > maxUnderWay {
		p.counters.TailDrops++
		p.sw.release(f)
		return
	}
	at := now
	if p.cfg.Rate > 0 {
		backlog := queuedBytes(p.cfg.Rate, p.downFree-now)
		if backlog+f.size > p.cfg.QueueBytes {
			p.counters.TailDrops++
			p.sw.release(f)
			return
		}
		if p.cfg.ECNThreshold > 0 && backlog >= p.cfg.ECNThreshold {
			p.mark(f)
		}
		p.downFree = max(now, p.downFree) + p.cfg.serialization(f.size)
		at = p.downFree
	}
	at += p.cfg.Delay
	if p.chance(p.cfg.Reorder) {
		p.counters.Reordered++
		at += p.cfg.ReorderDelay
	}
	p.underWay += f.n
	p.sw.schedule(now, at, event{frame: f, port: p})
}

// mark sets Congestion Experienced on an ECN-capable packet (RFC 3168).
func (p *Port) mark(f *frame) {
	const ecn = 3 // also the code point of Congestion Experienced
	if f.class&ecn != 0 && f.class&ecn != ecn {
		f.class |= ecn
		p.counters.Marked++
	}
}

// deliver puts f into the port's receive buffer.
func (p *Port) deliver(f *frame) {
	p.underWay -= f.n
	switch {
	case p.closed:
		p.sw.release(f)
		return
	case f.severed():
		return
	}
	if p.queued+f.n+frameOverhead > p.cfg.RecvBuffer {
		p.stats.Overflowed()
		p.sw.release(f)
		return
	}
	p.queue.push(f)
	p.queued += f.n + frameOverhead
	p.signal()
}

func (p *Port) signal() {
	select {
	case p.ready <- struct{}{}:
	default:
	}
}

// Close removes the port from the network and wakes Wait and Send.
func (p *Port) Close() error {
	p.sw.mu.Lock()
	defer p.sw.mu.Unlock()
	if p.closed {
		return transport.ErrClosed
	}
	p.closeLocked()
	return nil
}

func (p *Port) closeLocked() {
	p.closed = true
	delete(p.sw.ports, p.local.Addr())
	for group := range p.groups {
		p.leave(group)
	}
	for p.queue.len() > 0 {
		p.sw.release(p.queue.pop())
	}
	close(p.done)
	if len(p.sw.ports) == 0 && p.sw.timer != nil {
		p.sw.timer.Stop()
		p.sw.idle = true
		p.sw.events.Clear()
	}
}

// Stats returns the counters of the link.
func (p *Port) Stats() transport.LinkStats { return p.stats.Load() }

// Counters returns what the network did to packets on their way to the port.
func (p *Port) Counters() Counters {
	p.sw.mu.Lock()
	defer p.sw.mu.Unlock()
	return p.counters
}

// frameRing is a queue that grows by doubling; the receive buffer bounds it.
type frameRing struct {
	frames []*frame
	head   int
	count  int
}

func (r *frameRing) len() int { return r.count }

func (r *frameRing) push(f *frame) {
	if r.count == len(r.frames) {
		grown := make([]*frame, max(64, 2*len(r.frames)))
		for i := range r.count {
			grown[i] = r.frames[(r.head+i)%len(r.frames)]
		}
		r.frames, r.head = grown, 0
	}
	r.frames[(r.head+r.count)%len(r.frames)] = f
	r.count++
}

func (r *frameRing) peek() *frame { return r.frames[r.head] }

func (r *frameRing) pop() *frame {
	f := r.frames[r.head]
	r.frames[r.head] = nil
	r.head = (r.head + 1) % len(r.frames)
	r.count--
	return f
}
