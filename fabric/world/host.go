package world

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/world/frames"
	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// host is one of the network, with its device. To the network it is a
// network.Host, to the device its link and driver.
type host struct {
	w      *World
	dev    *verbs.Device
	driven *hca.Driven
	due    event.Time // when the device is to be called
	armed  event.Time // when the network is to call Timer
	asleep sleepers   // programs that sleep until a time
	stats  transport.LinkStats
	number uint16
	closed bool
}

var (
	_ network.Host = (*host)(nil)
	_ hca.Driver   = (*host)(nil)
)

// Pull implements network.Host.
func (h *host) Pull(now event.Time, port int, paused uint8, p *network.Packet) bool {
	if port != 0 || h.driven == nil {
		return false
	}
	w := h.w
	w.tx.Reset()
	h.driven.Pull(w.tx, ^engine.Classes(paused))
	if w.tx.Len() == 0 {
		return false
	}
	data, path := w.tx.Packet(0)
	dst, ok := frames.Number(path.Dst, len(w.hosts))
	if !ok { // it is lost; there may be more
		h.stats.TxErrors++
		return h.Pull(now, port, paused, p)
	}
	n := w.packets.Put(p, dst, data, path)
	h.stats.TxPackets++
	h.stats.TxBuffers++
	h.stats.TxBytes += uint64(n)
	return true
}

// Receive implements network.Host.
func (h *host) Receive(_ event.Time, _ int, p *network.Packet) {
	w := h.w
	if h.driven == nil { // no program has opened it
		w.packets.Release(p.Handle)
		return
	}
	w.rx[0] = w.packets.Received(p)
	h.stats.RxPackets++
	h.stats.RxBuffers++
	h.stats.RxBytes += uint64(len(w.rx[0].Data))
	w.tasks.inside = true
	h.driven.Receive(w.rx[:])
	w.tasks.inside = false
	w.packets.Release(p.Handle)
	w.tasks.run()
}

// Timer implements network.Host.
func (h *host) Timer(now event.Time) {
	h.armed = event.Never
	tasks := &h.w.tasks
	tasks.inside = true
	for len(h.asleep) > 0 && h.asleep[0].until <= now {
		h.asleep[0].Wake() // which takes it out
	}
	if h.due <= now {
		h.due = event.Never
		h.driven.Advance()
	}
	tasks.inside = false
	h.arm()
	tasks.run()
}

// arm sets the network's timer to what is due first.
func (h *host) arm() {
	at := h.due
	if len(h.asleep) > 0 {
		at = min(at, h.asleep[0].until)
	}
	if at != h.armed {
		h.armed = at
		h.w.net.SetTimer(int(h.number), at)
	}
}

// Dropped implements network.Host.
func (h *host) Dropped(p *network.Packet, _ network.Drop) { h.w.packets.Release(p.Handle) }

// Configure implements hca.Driver.
func (h *host) Configure(c *engine.Config) {
	w := h.w
	c.Random = func() uint32 { return uint32(w.rand.Uint64()) }
	c.Class = func(trafficClass uint8) uint8 { return w.net.ClassOf(trafficClass >> 2) }
}

// Drive implements hca.Driver.
func (h *host) Drive(d *hca.Driven) { h.driven = d }

// Now implements task.Scheduler.
func (h *host) Now() clock.Time { return toClock(h.w.net.Now()) }

// Task implements task.Scheduler.
func (h *host) Task() task.Task { return h.w.tasks.task() }

// Go implements task.Scheduler.
func (h *host) Go(f func()) { h.w.tasks.start(h, f) }

// Changed implements hca.Driver.
func (h *host) Changed(ready bool, at clock.Time) {
	if ready {
		h.w.net.Kick(int(h.number), 0)
	}
	h.due = event.Never
	if at != 0 {
		h.due = fromClock(at)
	}
	h.arm()
}

// Addr implements transport.Link.
func (h *host) Addr() netip.Addr { return Addr(int(h.number)) }

// Capabilities implements transport.Link.
func (h *host) Capabilities() transport.Capabilities {
	return transport.Capabilities{
		MTU: rocev2.LargestMTU(h.w.linkMTU), LinkMTU: h.w.linkMTU, Port: rocev2.UDPPort,
		FullICRC: true, ECN: true, SourcePorts: true,
	}
}

// Close implements transport.Link.
func (h *host) Close() error {
	if h.closed {
		return transport.ErrClosed
	}
	h.closed = true
	return nil
}

// Stats implements transport.Link.
func (h *host) Stats() transport.LinkStats { return h.stats }

// Wait implements transport.Link. It is never called, nor are Wake, Recv and
// Send.
func (h *host) Wait() error                          { return transport.ErrClosed }
func (h *host) Wake()                                {}
func (h *host) Recv(*transport.RxBatch) (int, error) { return 0, transport.ErrClosed }
func (h *host) Send(*transport.TxBatch) error        { return transport.ErrClosed }
