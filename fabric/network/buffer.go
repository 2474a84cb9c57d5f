package network

// threshold returns what the ingress of a class may use of the shared buffer.
func (sw *swtch) threshold(alpha int8) int64 {
	free := max(sw.sharedTotal-sw.sharedUsed, 0)
	if alpha >= 0 {
		return free << alpha
	}
	return free >> -alpha
}

// shared returns how much of a number of bytes is beyond the reserve.
func (c *Class) shared(used int64) int64 { return max(used-c.Reserve, 0) }

// intoHeadroom stands beside NumDrops for room, in the headroom.
const intoHeadroom = NumDrops + 1

// room looks for room for a packet that is to leave by a port. It returns why
// there is none; or NumDrops and how much of the shared buffer it takes, or
// intoHeadroom.
func (sw *swtch) room(p *Packet, o *port) (why Drop, more int64) {
	class, size := p.Class&(NumClasses-1), int64(p.Size)
	from := &sw.out[p.in]
	c, g, q := &from.classes[class], &from.in[class], &o.queues[class]
	if q.storm {
		return Watchdog, 0
	}
	more = c.shared(g.used+size) - c.shared(g.used)
	if !c.Lossless {
		switch e := &o.classes[class]; {
		case e.EgressMax != 0 && q.bytes+size > e.EgressMax,
			q.bytes+size > sw.threshold(e.EgressAlpha) && more > 0:
			return EgressFull, more
		case g.used+size > c.Reserve+sw.threshold(c.Alpha),
			sw.sharedUsed+more > sw.sharedTotal && more > 0:
			return IngressFull, more
		}
		return NumDrops, more
	}
	switch {
	case !g.xoff:
	case g.headroom+size <= g.limit:
		return intoHeadroom, 0
	case g.used+size <= c.Reserve+sw.threshold(c.Alpha) && sw.sharedUsed+more <= sw.sharedTotal:
	default:
		return HeadroomFull, more
	}
	return NumDrops, more
}

// anyRoom finds room for a packet that a program wants to have stored although
// it is above a threshold, or says as before why there is none.
func (sw *swtch) anyRoom(why Drop, more int64) Drop {
	if why < NumDrops && why != Watchdog && sw.sharedUsed+more <= sw.sharedTotal {
		return NumDrops
	}
	return why
}

// store gives a packet the room that was found for it.
func (sw *swtch) store(p *Packet, where Drop, more int64) {
	class, size := p.Class&(NumClasses-1), int64(p.Size)
	from := &sw.out[p.in]
	c, g := &from.classes[class], &from.in[class]
	if where == intoHeadroom {
		g.headroom += size
		return
	}
	g.used += size
	sw.sharedUsed += more
	if c.Lossless && !g.xoff && g.used >= c.Reserve+sw.threshold(c.Alpha) {
		g.xoff = true
		sw.tell(p.in, class)
	}
}

// release gives the buffer of a packet back. Headroom becomes free first.
func (sw *swtch) release(in uint16, class uint8, size int64) {
	c, g := &sw.out[in].classes[class], &sw.out[in].in[class]
	fromHeadroom := min(size, g.headroom)
	g.headroom -= fromHeadroom
	size -= fromHeadroom
	sw.sharedUsed -= c.shared(g.used) - c.shared(g.used-size)
	g.used -= size
	if !g.xoff || g.headroom > 0 {
		return
	}
	if g.used <= c.Reserve || g.used+c.XONOffset <= c.Reserve+sw.threshold(c.Alpha) {
		g.xoff = false
		sw.tell(in, class)
	}
}
