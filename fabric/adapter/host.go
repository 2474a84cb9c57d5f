package adapter

import (
	"cmp"
	"net/netip"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/internal/heap"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

// Host is the adapter of a host. It implements network.Host, for the network
// alone.
type Host struct {
	a      *Adapters
	part   *part
	e      *engine.Engine
	timer  clock.Time // what the network was told; 0: nothing
	table  *memreg.Table
	pd     *memreg.PD
	number uint16

	scripts map[receiverOf]*Script

	done       []completed
	delivering bool
	returns    []header // of packets that were trimmed, to go back

	echoes map[echoKey]*echo             // with Config.Telemetry; only looked up
	sent   uint8                         // packets, of Config.PerPacket
	tasks  heap.Heap[event.Time, func()] // see At
	beside *beside                       // nil: only the adapter

	sharing *sharing // nil: the highest class goes first

	_ [64]byte // nothing of a host of another part is in the same cache line
}

// Number returns the number of the host in its network.
func (h *Host) Number() int { return int(h.number) }

// Engine returns the adapter itself, for its counters. Whatever changes it goes
// through this package.
func (h *Host) Engine() *engine.Engine { return h.e }

// Addresses are 10.0.0.0/8, with the host's number.
func addrOf(number uint16) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, byte(number >> 8), byte(number)})
}

func numberOf(a netip.Addr) uint16 {
	b := a.As4()
	return uint16(b[2])<<8 | uint16(b[3])
}

// ipHeaders is what an IP packet has before the BTH: IPv4 and UDP.
const ipHeaders = 20 + 8

// Pull implements network.Host.
func (h *Host) Pull(now event.Time, port int, paused uint8, p *network.Packet) bool {
	switch {
	case port != 0:
		return false
	case h.beside != nil:
		return h.pullInTurn(now, paused, p)
	}
	return h.pull(now, paused, p)
}

// pull writes the next packet of the adapter.
func (h *Host) pull(now event.Time, paused uint8, p *network.Packet) bool {
	if h.pullReturn(paused, p) {
		return true
	}
	a := h.part
	a.tx.Reset()
	if !h.a.cfg.Real {
		clear(a.tx.Room()[:recordLen]) // what was there is no payload
	}
	h.fill(now, paused)
	h.arm()
	if len(h.done) > 0 && !h.delivering {
		h.soon()
	}
	if a.tx.Len() == 0 {
		return false
	}
	data, path := a.tx.Packet(0)
	handle, k := a.take()
	k.set(data, path)
	if h.a.cfg.Real {
		a.keepSealed(h, k)
	} else if len(data) > recordLen && rocev2.Opcode(data[0]) == rocev2.SelectiveAck {
		a.records.keep(k, data)
	}
	p.Handle, p.Dst = handle, numberOf(path.Dst)
	p.Size = uint16(network.WireSize(ipHeaders + len(data) + rocev2.ICRCLen))
	p.SrcPort = cmp.Or(path.SrcPort, rocev2.UDPPort)
	p.DSCP, p.ECN, p.Hops = path.TrafficClass>>2, path.TrafficClass&3, path.HopLimit
	if h.scripts != nil {
		h.follow(data, p)
	}
	if h.a.cfg.Telemetry {
		h.ask(k, p)
	}
	if h.a.cfg.PerPacket {
		h.sent++
		k.entropy = h.sent
		p.SrcPort ^= uint16(k.entropy)
	}
	return true
}

// Receive implements network.Host.
func (h *Host) Receive(now event.Time, _ int, p *network.Packet) {
	a := h.part
	of := &a.records
	if part := p.Handle >> handleBits; part != of.part {
		of = &h.a.parts[part].records
	}
	k := of.at(p.Handle)
	if p.Flags&foreign != 0 {
		h.receiveForeign(now, k, p)
		a.release(p.Handle)
		h.after()
		return
	}
	if p.Flags&network.Trimmed != 0 {
		h.trimmed(toClock(now), k, p)
		a.release(p.Handle)
		h.after()
		return
	}
	rx := &a.rx[0]
	n := int(k.n) + rocev2.ICRCLen
	if whole := of.whole(k); whole != nil {
		rx.Data = whole
	} else {
		copy(a.scratch[:], k.data[:])
		rx.Data = a.scratch[:n:n]
	}
	rx.Src, rx.Dst = addrOf(p.Src), addrOf(p.Dst)
	rx.SrcPort, rx.TrafficClass, rx.HopLimit = p.SrcPort^uint16(k.entropy), k.trafficClass&^3|p.ECN, p.Hops
	rx.ICRC = transport.ICRCAbsent
	if h.a.cfg.Real {
		h.check(rx)
	}
	if h.a.cfg.Telemetry {
		h.tell(toClock(now), of, k, p)
	}
	h.e.Receive(toClock(now), a.rx[:])
	a.release(p.Handle)
	h.after()
}

// Timer implements network.Host.
func (h *Host) Timer(now event.Time) {
	h.timer = 0
	h.runTasks(now)
	h.e.Advance(toClock(now))
	h.after()
}

// Dropped implements network.Host.
func (h *Host) Dropped(p *network.Packet, _ network.Drop) { h.part.release(p.Handle) }

// after does what follows when something has happened to the engine.
func (h *Host) after() {
	h.deliver()
	h.a.net.Kick(int(h.number), 0)
	h.arm()
}

// arm has the network call Timer when the engine wants it, or a task is due.
func (h *Host) arm() {
	at, ok := h.e.Deadline()
	if task, any := h.tasks.Min(); any && (!ok || toClock(task) < at) {
		at, ok = toClock(task), true
	}
	if ok && at != h.timer {
		h.timer = at
		h.a.net.SetTimer(int(h.number), fromClock(at))
	}
}

// soon has the network call Timer now, but not from inside of what happens.
func (h *Host) soon() {
	now := h.Now()
	h.timer = toClock(now)
	h.a.net.SetTimer(int(h.number), now)
}

// Now returns the time. What is called at this host may ask for it.
func (h *Host) Now() event.Time { return h.a.net.TimeOf(int(h.number)) }
