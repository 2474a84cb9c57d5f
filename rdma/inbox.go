package rdma

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/verbs"
)

// inbox has the messages that have arrived and are not read, and knows how many
// more the peer may send.
type inbox struct {
	c *core

	ring       []arrival // a power of two
	head, tail uint32

	window int  // messages that the peer may have under way or unread here
	shrink int  // of them, those that it gets no credit for any more
	owed   int  // messages that have been read, and that the peer has no credit for yet
	held   int  // messages that have arrived, less the credits that the peer got
	ended  bool // the peer says that no more messages come

	requests []dirAsked // to the directory, that are not answered
}

// arrival is a message that has arrived, or several that are packed.
type arrival struct {
	buf    *buffer
	off, n int // what is not read yet
	kind   kind
}

func (in *inbox) len() int {
	if in.ended {
		return 1 // which tells that nothing comes
	}
	return int(in.tail - in.head)
}

func (in *inbox) front() *arrival { return &in.ring[in.head&uint32(len(in.ring)-1)] }

func (in *inbox) push(a arrival) {
	if int(in.tail-in.head) == len(in.ring) {
		ring := make([]arrival, max(2*len(in.ring), 2))
		for i := range in.tail - in.head {
			ring[i] = in.ring[(in.head+i)&uint32(len(in.ring)-1)]
		}
		in.ring, in.head, in.tail = ring, 0, in.tail-in.head
	}
	in.ring[in.tail&uint32(len(in.ring)-1)] = a
	in.tail++
}

func (in *inbox) pop() {
	*in.front() = arrival{}
	in.head++
}

// takeAll empties the inbox.
func (in *inbox) takeAll() (bufs []*buffer) {
	for in.head != in.tail {
		if b := in.front().buf; b.refs.Add(-1) == 0 {
			bufs = append(bufs, b)
		}
		in.pop()
	}
	for _, r := range in.requests {
		bufs = append(bufs, r.buf)
	}
	in.requests, in.ended = nil, false
	return bufs
}

// due reports whether the peer must be sent a message that only has credits.
// It is one that takes no credit itself, so there must be only one under way:
// before another one is due the peer has sent more than half of its window, and
// for that it has read this one.
func (in *inbox) due() bool { return 2*in.owed > in.window }

// pay takes the credits that the next message gives back.
func (in *inbox) pay() int {
	n := min(in.owed, 1<<16-1)
	in.owed -= n
	in.held -= n
	return n
}

// shrinkTo lets the peer have fewer credits from now on.
func (in *inbox) shrinkTo(n int) {
	if in.window > n {
		in.shrink += in.window - n
		in.window = n
	}
}

// firstReceives returns how many receives a connection has at first.
func (in *inbox) firstReceives() int {
	c := in.c
	if c.foreign {
		return foreignDepth
	}
	return baseWindow + spare
}

// listen posts n receives.
func (in *inbox) listen(n int) error {
	c := in.c
	for range n {
		b, err := c.hub.take()
		if err != nil {
			return err
		}
		if err := in.postRecv(b); err != nil {
			c.hub.put(b)
			return err
		}
	}
	return nil
}

// widen lets the peer have up to n messages more.
func (in *inbox) widen(n int) {
	h := in.c.hub
	for n = h.grant(n); n > 0; n-- {
		if in.listen(1) != nil {
			h.grant(-n)
			return
		}
		in.window++
		in.owed++
	}
}

func (in *inbox) postRecv(b *buffer) error {
	c := in.c
	s := scratches.Get().(*scratch)
	s.sge[0] = b.sge(c.hub.size)
	s.recv[0] = verbs.RecvWR{ID: uint64(b.index), SGList: s.sge[:1]}
	err := c.qp.PostRecv(s.recv[:]...)
	scratches.Put(s)
	return err
}

// arrived takes the completion of a receive.
func (in *inbox) arrived(wc *verbs.WC) {
	c := in.c
	b := c.hub.buffer(wc.ID)
	if wc.Status != verbs.StatusSuccess {
		c.hub.put(b)
		if c.err == nil && c.ending == nil {
			c.fail(c.causeOf(wc))
		}
		return
	}
	c.used = true
	n := int(wc.ByteLen)
	if wc.Opcode == verbs.WCRecvWriteImm {
		n = 0 // what was written lies elsewhere
	}
	if err := in.take(b, n, wc); err != nil {
		c.hub.put(b)
		c.quit(err)
	}
}

// take finds out what has arrived, and puts it where it belongs. After an error
// the buffer is the caller's.
func (in *inbox) take(b *buffer, n int, wc *verbs.WC) error {
	c := in.c
	if c.foreign {
		in.store(arrival{buf: b, n: n})
		return nil
	}
	if !wc.WithImm || wc.Opcode != verbs.WCRecv {
		return protocolError("%v without immediate data", wc.Opcode)
	}
	k, credits := parseImm(wc.Imm)
	if c.out.credits += credits; c.out.credits > 1<<20 {
		return protocolError("%d credits", c.out.credits)
	}
	if k == kindCredit {
		if n != 0 {
			return protocolError("%d bytes in a message of credits", n)
		}
		in.repost(b)
		return nil
	}
	if in.held++; in.held > baseWindow {
		return protocolError("a message without credit")
	}
	switch k {
	case kindMessage, kindPacked, kindEnd:
		in.store(arrival{buf: b, n: n, kind: k})
		return nil
	case kindRequest:
		if c.securing() {
			return protocolError("a request to the directory before the connection is secured")
		}
		return c.asked(b, n)
	case kindReply:
		return c.answered(b, n)
	}
	return protocolError("a message of the unknown kind %d", k)
}

func (in *inbox) store(a arrival) {
	a.buf.refs.Store(1)
	in.push(a)
}

// next returns the message that is read next, without taking it. An arrival
// that has no more messages is dropped before.
func (in *inbox) next() (a *arrival, m []byte, err error) {
	c := in.c
	for in.head != in.tail {
		a = in.front()
		switch {
		case a.kind == kindEnd:
			in.ended = true
			in.finish()
			continue
		case a.kind != kindPacked:
			return a, a.buf.part(a.off, a.n-a.off), nil
		}
		if a.n > a.off {
			m, _, err = nextPacked(a.buf.part(a.off, a.n-a.off))
			if err != nil {
				c.quit(err)
			}
			return a, m, err
		}
		in.finish()
	}
	return nil, nil, nil
}

// advance takes the message that next has returned.
func (in *inbox) advance(a *arrival, m []byte) {
	if a.kind == kindPacked {
		if a.off += packHeader + len(m); a.off < a.n {
			return
		}
	}
	in.finish()
}

// skip takes the first n bytes of the message that next has returned. The rest
// stays the next message; where it is packed it gets a header of its own, over
// what was taken.
func (in *inbox) skip(a *arrival, m []byte, n int) {
	if n == len(m) {
		in.advance(a, m)
		return
	}
	a.off += n
	if a.kind == kindPacked {
		binary.BigEndian.PutUint16(a.buf.part(a.off, packHeader), uint16(len(m)-n))
	}
}

// finish drops the first arrival, which is read to its end.
func (in *inbox) finish() {
	b := in.front().buf
	in.pop()
	if b.refs.Add(-1) == 0 {
		in.giveBack(b)
	}
}

// repost gives a buffer back to the receive queue.
func (in *inbox) repost(b *buffer) {
	c := in.c
	if c.err != nil || in.postRecv(b) != nil {
		c.hub.put(b)
	}
}

// giveBack takes the buffer of a message that has been read. The peer gets
// credit for another one: with the next message, or, when that takes too long,
// with one of its own. A peer that is held up by it gets more.
func (in *inbox) giveBack(b *buffer) {
	c := in.c
	switch {
	case c.foreign:
		in.repost(b)
		return
	case in.shrink > 0:
		in.shrink--
		in.held--
		c.hub.put(b)
		c.hub.grant(-1)
		return
	}
	in.repost(b)
	in.owed++
	if !in.due() || c.err != nil {
		return
	}
	if limit := c.hub.tune.windowMax(); in.window < limit && in.head == in.tail {
		in.widen(min(in.window, limit-in.window))
	}
	c.out.flush()
}
