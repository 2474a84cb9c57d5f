package network

import "github.com/gosoftroce/rocev2/fabric/event"

// tell has a switch tell the far end of a port whether a class is paused.
func (sw *swtch) tell(in uint16, class uint8) {
	l := sw.ports[in]
	sw.part.links[l].tell |= 1 << class
	sw.part.wake(l)
}

// Pause has a host's port pause classes at its far end, as an adapter does
// whose receive buffer is full: those in the bit set, and no others.
func (n *Network) Pause(number, port int, classes uint8) {
	h := &n.hosts[number]
	l := h.ports[port]
	k := &n.links[l]
	k.tell |= k.off ^ classes
	k.off = classes
	if k.tell != 0 {
		h.part.arm(l)
	}
}

// sendPause sends a pause frame with the state that the classes have now.
func (a *part) sendPause(l uint32) {
	k := &a.links[l]
	off, more, digest := k.off, true, (*event.Digest)(nil)
	if number := int(k.node) - len(a.hosts); number < 0 {
		digest = &a.hosts[k.node].digest
	} else {
		sw := &a.switches[number]
		o := &sw.out[k.port]
		off, more, digest = o.off(), o.ready(k.stopped()), &sw.digest
	}
	i := a.slots.get()
	p := &a.slots.all[i].Packet
	p.kind, p.Size, p.DSCP, p.Hops = pause, pauseWire, k.tell, off&k.tell
	if p.Hops != 0 {
		a.totals.XOFFs++
		k.stats.XOFFs++
	} else {
		a.totals.XONs++
		k.stats.XONs++
	}
	digest.Add(uint64(a.q.Now()) ^ p.state())
	k.tell = 0
	a.send(l, i, more, digest)
}

// off returns the classes that a switch pauses at the far end of a port.
func (p *port) off() (set uint8) {
	set = p.asks
	for c := range p.in {
		if p.in[c].xoff {
			set |= 1 << c
		}
	}
	return set
}

// setPaused has a transmitter send nothing of a set of classes, and all else.
func (a *part) setPaused(l uint32, now uint8) {
	k := &a.links[l]
	before := k.paused
	k.paused = now
	switch {
	case before == 0 && now != 0:
		k.pausedSince = a.q.Now()
	case before != 0 && now == 0:
		k.stats.Paused += a.q.Now() - k.pausedSince
	}
	if int(k.node) >= len(a.hosts) {
		sw := a.switchAt(k.node)
		for c := range uint8(NumClasses) {
			if (before^now)>>c&1 != 0 {
				sw.observe(k.port, c)
			}
		}
	}
	if before != now {
		if v := a.net.views.of(int(k.node)); v != nil && v.hooks.Paused != nil {
			v.hooks.Paused(int(k.port), now)
		}
	}
	if before&^now != 0 {
		a.wake(l)
	}
}

// observe notes that a queue has just become paused or free, or that the first
// packet has come to it, and has the watchdog look in time.
func (sw *swtch) observe(out uint16, class uint8) {
	if sw.watchdog.Detect == 0 {
		return
	}
	a, k, q := sw.part, sw.link(int(out)), &sw.out[out].queues[class]
	at := a.q.Now()
	switch isPaused := k.paused>>class&1 != 0; {
	case isPaused && !q.storm:
		at += sw.watchdog.Detect
	case q.storm && !isPaused:
		at += sw.watchdog.Restore
	default:
		return
	}
	q.since = a.q.Now()
	if src := a.source.watch(sw.node - len(a.hosts)); at < a.q.Due(src) {
		a.q.Schedule(src, at)
	}
}

// watch is the event of a switch's watchdog: it looks at all queues.
func (sw *swtch) watch() {
	a := sw.part
	now := a.q.Now()
	next := event.Never
	for out := range sw.out {
		k := sw.link(out)
		for c := range uint8(NumClasses) {
			q := &sw.out[out].queues[c]
			isPaused := k.paused>>c&1 != 0
			switch {
			case q.storm && isPaused: // setPaused says when it ends
			case q.storm:
				if at := q.since + sw.watchdog.Restore; now < at {
					next = min(next, at)
				} else {
					q.storm = false
				}
			case isPaused && q.bytes > 0:
				if at := q.since + sw.watchdog.Detect; now < at {
					next = min(next, at)
				} else {
					sw.storm(out, c)
				}
			}
		}
	}
	if src := a.source.watch(sw.node - len(a.hosts)); next < a.q.Due(src) {
		a.q.Schedule(src, next)
	}
}

// storm drops what a queue has, and what will come for it.
func (sw *swtch) storm(out int, class uint8) {
	sw.out[out].queues[class].storm = true
	sw.part.totals.Storms++
	sw.flush(uint16(out), class, Watchdog)
}

// flush drops what a queue has.
func (sw *swtch) flush(out uint16, class uint8, why Drop) {
	o := &sw.out[out]
	for o.queues[class].bytes > 0 {
		sw.drop(sw.take(o, class), why, int(out))
	}
}
