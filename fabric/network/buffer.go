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

// admit finds room for a packet that came in by a port, or returns why there is
// none. NumDrops stands for room.
func (sw *swtch) admit(in uint16, class uint8, o *port, size int64) Drop {
	c, g := &sw.out[in].classes[class], &sw.out[in].in[class]
	more := c.shared(g.used+size) - c.shared(g.used)
	if !c.Lossless {
		e, queued := &o.classes[class], o.queues[class].bytes
		switch {
		case e.EgressMax != 0 && queued+size > e.EgressMax,
			queued+size > sw.threshold(e.EgressAlpha) && more > 0:
			return EgressFull
		case g.used+size > c.Reserve+sw.threshold(c.Alpha),
			sw.sharedUsed+more > sw.sharedTotal && more > 0:
			return IngressFull
		}
		g.used += size
		sw.sharedUsed += more
		return NumDrops
	}
	switch {
	case !g.xoff:
		g.used += size
		sw.sharedUsed += more
		if g.used >= c.Reserve+sw.threshold(c.Alpha) {
			g.xoff = true
			sw.tell(in, class)
		}
	case g.headroom+size <= g.limit:
		g.headroom += size
	case g.used+size <= c.Reserve+sw.threshold(c.Alpha) && sw.sharedUsed+more <= sw.sharedTotal:
		g.used += size
		sw.sharedUsed += more
	default:
		return HeadroomFull
	}
	return NumDrops
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
