package worldtest

import (
	"net/netip"
	"sync"

	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/world/frames"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// Port is the port of a host, a transport.Link.
type Port struct {
	host  *host
	done  chan struct{} // closed by Close
	ready chan struct{} // holds a token while something may have come

	onRoom func() // of the device

	// The lock of the World guards the rest.
	closed   bool
	waits    bool // the device waits for onRoom
	in       queue[network.Packet]
	inSize   int      // bytes in in, with overhead
	taken    []uint32 // handles of the packets of the latest Recv
	watchers map[*watcher]struct{}

	stats transport.LinkCounters
}

// watcher is told of what changes at a port.
type watcher struct {
	mu      sync.Mutex // held while it is told
	changed func(transport.PortChange)
}

func (t *watcher) tell(c transport.PortChange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changed != nil {
		t.changed(c)
	}
}

var (
	_ transport.Link         = (*Port)(nil)
	_ transport.PacedLink    = (*Port)(nil)
	_ transport.PortReporter = (*Port)(nil)
	_ transport.PortWatcher  = (*Port)(nil)
)

// Addr implements transport.Link.
func (p *Port) Addr() netip.Addr { return frames.Addr(p.host.number) }

// Capabilities implements transport.Link.
func (p *Port) Capabilities() transport.Capabilities {
	w := p.host.w
	return transport.Capabilities{
		MTU: rocev2.LargestMTU(w.linkMTU), LinkMTU: w.linkMTU, Port: rocev2.UDPPort,
		FullICRC: true, ECN: true, SourcePorts: true,
		RecvBuffer: w.cfg.RecvBuffer, SendBuffer: w.cfg.SendBuffer,
		Virtual: true,
	}
}

// PortStatus implements transport.PortReporter.
func (p *Port) PortStatus() transport.PortStatus {
	w := p.host.w
	w.mu.Lock()
	defer w.mu.Unlock()
	s := transport.PortStatus{Speed: int(w.cfg.Network.Cables[p.host.cable].Rate / 1e6)}
	if !w.net.Up(p.host.cable) {
		s.State = transport.PortNoCarrier
	}
	return s
}

// WatchPort implements transport.PortWatcher. The caller of World.SetCable
// calls changed.
func (p *Port) WatchPort(changed func(transport.PortChange)) (stop func()) {
	w, t := p.host.w, &watcher{changed: changed}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.watchers == nil {
		p.watchers = map[*watcher]struct{}{}
	}
	p.watchers[t] = struct{}{}
	return func() {
		w.mu.Lock()
		delete(p.watchers, t)
		w.mu.Unlock()
		t.mu.Lock()
		defer t.mu.Unlock()
		t.changed = nil
	}
}

// Wait implements transport.Link.
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

// Wake implements transport.Link.
func (p *Port) Wake() { signal(p.ready) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// mostPackets is how many packets one Recv takes.
const mostPackets = 64

// Recv implements transport.Link.
func (p *Port) Recv(b *transport.RxBatch) (int, error) {
	b.Reset()
	w := p.host.w
	w.mu.Lock()
	defer w.mu.Unlock()
	p.release()
	if p.closed {
		return 0, transport.ErrClosed
	}
	for p.in.len() > 0 {
		if b.Len() == mostPackets {
			p.Wake()
			break
		}
		k := p.in.take()
		rx := w.packets.Received(&k)
		b.Append(rx)
		p.inSize -= len(rx.Data) + overhead
		p.taken = append(p.taken, k.Handle)
	}
	if b.Len() > 0 {
		p.stats.Received(b, b.Len(), 0)
	}
	return b.Len(), nil
}

// release gives back the packets of the latest Recv.
func (p *Port) release() {
	for _, h := range p.taken {
		p.host.w.packets.Release(h)
	}
	p.taken = p.taken[:0]
}

// Pacer implements transport.PacedLink: devices send while no more than
// SendBuffer waits for the cable.
func (p *Port) Pacer() transport.Pacer { return p }

// Room implements transport.Pacer.
func (p *Port) Room() bool {
	w := p.host.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.waits = p.host.outSize > w.cfg.SendBuffer; p.waits {
		p.stats.SendWaited()
	}
	return !p.waits
}

// OnRoom implements transport.Pacer.
func (p *Port) OnRoom(f func()) { p.onRoom = f }

// Send implements transport.Link. It never blocks, see Pacer.
func (p *Port) Send(b *transport.TxBatch) error {
	var fail transport.SendError
	h, w := p.host, p.host.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.closed {
		return transport.ErrClosed
	}
	packets, bytes := 0, 0
	for i := range b.Len() {
		n, err := h.put(b, i)
		if err != nil {
			fail.Add(i, 1, err)
			p.stats.SendFailed(1)
			continue
		}
		packets, bytes = packets+1, bytes+n
	}
	p.stats.Sent(packets, packets, bytes)
	return fail.Result()
}

// Close implements transport.Link. What was sent still leaves.
func (p *Port) Close() error {
	w := p.host.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.closed {
		return transport.ErrClosed
	}
	p.closed = true
	p.host.port = nil
	p.release()
	for p.in.len() > 0 {
		w.packets.Release(p.in.take().Handle)
	}
	close(p.done)
	return nil
}

// Stats implements transport.Link.
func (p *Port) Stats() transport.LinkStats { return p.stats.Load() }
