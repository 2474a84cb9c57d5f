package dissect

import (
	"cmp"
	"slices"
)

func sortByID(list []*Connection) {
	slices.SortFunc(list, func(a, b *Connection) int { return cmp.Compare(a.ID, b.ID) })
}

// newConnection makes a connection that a packet begins; the sender is A. If
// there are too many, the one that has been silent for longest is forgotten.
func (f *Flows) newConnection(p *Packet) *Connection {
	for f.live >= f.limit {
		f.forget(f.oldest)
	}
	f.count++
	c := &Connection{ID: f.count, Service: p.info.Service, First: p.Offset, Last: p.Offset}
	c.A.Addr, c.B.Addr = p.IP.Src, p.IP.Dst
	c.ports[0] = p.SrcPort
	f.live++
	f.link(c)
	return c
}

// forget gives up what is kept of a connection.
func (f *Flows) forget(c *Connection) {
	f.forgot.Connections++
	sum := c.Totals()
	f.forgot.Counters.Add(&sum)
	f.drop(c)
}

// drop takes a connection out of the tables.
func (f *Flows) drop(c *Connection) {
	f.unmap(c)
	f.notLonely(c)
	f.unlink(c)
	f.live--
	f.budget += c.Sealed[0].held() + c.Sealed[1].held()
	c.Sealed[0].ivs, c.Sealed[1].ivs = [2]*ivs{}, [2]*ivs{}
	c.gone = true
	for i := range c.Requests {
		s := &c.Requests[i]
		f.budget += s.sent.held() + s.messages.held()
		s.sent, s.messages = ring{}, messages{}
	}
}

// unmap makes packets not lead to a connection any more.
func (f *Flows) unmap(c *Connection) {
	for _, k := range c.streams {
		if f.streams[k].conn == c {
			delete(f.streams, k)
		}
	}
	for _, k := range c.ids {
		if f.cm[k].conn == c {
			delete(f.cm, k)
		}
	}
	c.streams, c.ids = nil, nil
}

// maxKeys is how many streams or communication IDs lead to a connection.
const maxKeys = 16

// lead makes packets lead to a connection. Another connection may have had the
// queue pair before.
func (f *Flows) lead(k streamKey, e end) {
	if len(e.conn.streams) >= maxKeys {
		return
	}
	f.streams[k] = e
	e.conn.streams = append(e.conn.streams, k)
}

// identify makes messages of connection management lead to a connection.
func (f *Flows) identify(k cmKey, e end) {
	if len(e.conn.ids) >= maxKeys {
		return
	}
	f.cm[k] = e
	e.conn.ids = append(e.conn.ids, k)
}

// merge makes the packets of c, a connection of which only one direction is
// known, those of the other direction of another.
func (f *Flows) merge(c *Connection, to end) {
	o := to.conn
	s := &o.Requests[to.from]
	if !s.started {
		count := s.Counters
		*s = c.Requests[0]
		s.Add(&count)
		c.Requests[0].sent, c.Requests[0].messages = ring{}, messages{}
	} else {
		s.Add(&c.Requests[0].Counters)
	}
	back := &o.Requests[1-to.from]
	back.Add(&c.Requests[1].Counters)
	o.CNPs += c.CNPs
	o.Marked += c.Marked
	o.BadICRC += c.BadICRC
	o.Malformed += c.Malformed
	for i := range c.Sealed { // A of c sends as the side of o that to is
		o.Sealed[i^to.from].merge(&c.Sealed[i], &f.budget)
	}
	o.counted = o.counted || c.counted
	o.MTU = max(o.MTU, c.MTU)
	o.First = min(o.First, c.First)
	f.drop(c)
}

// lonely notes a connection of which one QPN is not known.
func (f *Flows) lonely(c *Connection) {
	k := hosts{c.A.Addr, c.B.Addr}
	f.alone[k] = append(f.alone[k], c)
}

func (f *Flows) notLonely(c *Connection) {
	k := hosts{c.A.Addr, c.B.Addr}
	list := f.alone[k]
	if i := slices.Index(list, c); i >= 0 {
		if list = slices.Delete(list, i, i+1); len(list) == 0 {
			delete(f.alone, k)
		} else {
			f.alone[k] = list
		}
	}
}

// The connections form a list in the order of their last packets.

func (f *Flows) touch(c *Connection) {
	if f.newest != c {
		f.unlink(c)
		f.link(c)
	}
}

func (f *Flows) link(c *Connection) {
	c.older, c.newer = f.newest, nil
	if f.newest != nil {
		f.newest.newer = c
	} else {
		f.oldest = c
	}
	f.newest = c
}

func (f *Flows) unlink(c *Connection) {
	if c.older != nil {
		c.older.newer = c.newer
	} else {
		f.oldest = c.newer
	}
	if c.newer != nil {
		c.newer.older = c.older
	} else {
		f.newest = c.older
	}
	c.older, c.newer = nil, nil
}
