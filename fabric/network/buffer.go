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

// room is what the rules say of a packet: that it does not fit, and why, or
// (NumDrops) where it goes.
type room struct {
	why      Drop
	headroom bool
	more     int64 // of the shared buffer
	c        *Class
	g        *ingress
}

// room looks for room for a packet that is to leave by a port.
func (sw *swtch) room(p *Packet, o *port) room {
	class, size := p.Class&(NumClasses-1), int64(p.Size)
	from := &sw.out[p.in]
	c, g, q := &from.classes[class], &from.in[class], &o.queues[class]
	r := room{NumDrops, false, c.shared(g.used+size) - c.shared(g.used), c, g}
	if q.storm {
		r.why = Watchdog
		return r
	}
	if !c.Lossless {
		switch e := &o.classes[class]; {
		case e.EgressMax != 0 && q.bytes+size > e.EgressMax,
			r.more > 0 && q.bytes+size > sw.threshold(e.EgressAlpha):
			r.why = EgressFull
		case g.used+size > c.Reserve+sw.threshold(c.Alpha),
			r.more > 0 && sw.sharedUsed+r.more > sw.sharedTotal:
			r.why = IngressFull
		}
		return r
	}
	switch {
	case !g.xoff:
	case g.headroom+size <= g.limit:
		r.headroom = true
	case g.used+size <= c.Reserve+sw.threshold(c.Alpha) && sw.sharedUsed+r.more <= sw.sharedTotal:
	default:
		r.why = HeadroomFull
	}
	return r
}

// anyRoom finds room for a packet that a program wants to have stored although
// it is above a threshold, or says as r why there is none.
func (sw *swtch) anyRoom(r room) room {
	if r.why != Watchdog && sw.sharedUsed+r.more <= sw.sharedTotal {
		r.why = NumDrops
	}
	return r
}

// store gives a packet the room that was found for it.
func (sw *swtch) store(p *Packet, r room) {
	size := int64(p.Size)
	c, g := r.c, r.g
	if r.headroom {
		g.headroom += size
		return
	}
	g.used += size
	sw.sharedUsed += r.more
	if c.Lossless && !g.xoff && g.used >= c.Reserve+sw.threshold(c.Alpha) {
		g.xoff = true
		sw.tell(p.in, p.Class)
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
