package network

import "github.com/gosoftroce/rocev2/fabric/event"

// tell has a switch tell the far end of a port whether a class is paused.
func (sw *swtch) tell(in uint16, class uint8) {
	l := sw.ports[in]
	sw.net.links[l].tell |= 1 << class
	sw.net.wake(l)
}

// Pause has a host's port pause classes at its far end, as an adapter does
// whose receive buffer is full: those in the bit set, and no others.
func (n *Network) Pause(number, port int, classes uint8) {
	l := n.hosts[number].ports[port]
	k := &n.links[l]
	k.tell |= k.off ^ classes
	k.off = classes
	if k.tell != 0 {
		n.arm(l)
	}
}

// sendPause sends a pause frame with the state that the classes have now.
func (n *Network) sendPause(l uint32) {
	k := &n.links[l]
	off, more, digest := k.off, true, (*event.Digest)(nil)
	if number := int(k.node) - len(n.hosts); number < 0 {
		digest = &n.hosts[k.node].digest
	} else {
		sw := &n.switches[number]
		o := &sw.out[k.port]
		off, more, digest = o.off(), o.ready(k.paused), &sw.digest
	}
	i := n.slots.get()
	p := &n.slots.all[i].Packet
	p.kind, p.Size, p.DSCP, p.Hops = pause, pauseWire, k.tell, off&k.tell
	if p.Hops != 0 {
		n.totals.XOFFs++
		k.stats.XOFFs++
	} else {
		n.totals.XONs++
		k.stats.XONs++
	}
	digest.Add(uint64(n.q.Now()) ^ p.state())
	k.tell = 0
	n.send(l, i, more)
}

// off returns the classes that a switch pauses at the far end of a port.
func (p *port) off() (set uint8) {
	for c := range p.in {
		if p.in[c].xoff {
			set |= 1 << c
		}
	}
	return set
}

// setPaused has a transmitter send nothing of a set of classes, and all else.
func (n *Network) setPaused(l uint32, now uint8) {
	k := &n.links[l]
	before := k.paused
	k.paused = now
	switch {
	case before == 0 && now != 0:
		k.pausedSince = n.q.Now()
	case before != 0 && now == 0:
		k.stats.Paused += n.q.Now() - k.pausedSince
	}
	if int(k.node) >= len(n.hosts) {
		sw := &n.switches[int(k.node)-len(n.hosts)]
		for c := range uint8(NumClasses) {
			if (before^now)>>c&1 != 0 {
				sw.observe(k.port, c)
			}
		}
	}
	if before&^now != 0 {
		n.wake(l)
	}
}

// observe notes that a queue has just become paused or free, or that the first
// packet has come to it, and has the watchdog look in time.
func (sw *swtch) observe(out uint16, class uint8) {
	if sw.watchdog.Detect == 0 {
		return
	}
	n, k, q := sw.net, sw.link(int(out)), &sw.out[out].queues[class]
	at := n.q.Now()
	switch isPaused := k.paused>>class&1 != 0; {
	case isPaused && !q.storm:
		at += sw.watchdog.Detect
	case q.storm && !isPaused:
		at += sw.watchdog.Restore
	default:
		return
	}
	q.since = n.q.Now()
	if src := n.source.watch(sw.node - len(n.hosts)); at < n.q.Due(src) {
		n.q.Schedule(src, at)
	}
}

// watch is the event of a switch's watchdog: it looks at all queues.
func (sw *swtch) watch() {
	n := sw.net
	now := n.q.Now()
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
	if src := n.source.watch(sw.node - len(n.hosts)); next < n.q.Due(src) {
		n.q.Schedule(src, next)
	}
}

// storm drops what a queue has, and what will come for it.
func (sw *swtch) storm(out int, class uint8) {
	sw.out[out].queues[class].storm = true
	sw.net.totals.Storms++
	sw.flush(&sw.out[out], class, Watchdog)
}

// flush drops what a queue has.
func (sw *swtch) flush(o *port, class uint8, why Drop) {
	for o.queues[class].bytes > 0 {
		sw.net.drop(sw.take(o, class), why)
	}
}
