package rdma

import (
	"context"
	"encoding/binary"

	"github.com/gosoftroce/rocev2/verbs"
)

// outbox knows what is outstanding on the send queue, and holds small messages
// back for a moment while others are under way, so that one SEND carries many.
type outbox struct {
	c *core

	ring       []slot // a power of two, of what is outstanding, in order
	head, tail uint32
	depth      int
	credits    int // messages that the peer has room for

	pack    *buffer // small messages that are held back, or nil
	packed  int     // bytes in it
	watched int     // operations whose channel was asked for
}

// slot is what belongs to a request on the send queue.
type slot struct {
	kind slotKind
	buf  *buffer  // goes back when the request has completed
	ref  *pending // the transfer that it is part of
}

type slotKind uint8

const (
	slotOther slotKind = iota
	slotProbe          // a keepalive
)

const (
	// reserved is how much room messages leave: for credits, answers of the
	// directory, keepalives and the end.
	reserved = 4

	// direct is how many requests may be under way when a small message is
	// sent at once. Beyond that small messages are packed.
	direct = 4
	// packMessage is the longest message that is packed, and packBytes how
	// many bytes a SEND has with packed messages.
	packMessage = 2048
	packBytes   = 16 << 10

	// copyMax is the longest message that is copied, so that Send need not
	// wait until the peer has it.
	copyMax = 32 << 10
)

func (o *outbox) room() int           { return o.depth - int(o.tail-o.head) }
func (o *outbox) slot(i uint32) *slot { return &o.ring[i&uint32(len(o.ring)-1)] }
func (o *outbox) outstanding() int    { return int(o.tail - o.head) }
func (o *outbox) packLimit() int      { return min(packBytes, o.c.hub.size, o.c.maxSend) }
func (o *outbox) packable(p []byte) bool {
	return len(p) <= packMessage && len(p)+packHeader <= o.packLimit()
}

// add records a request and returns its ID.
func (o *outbox) add(s slot) uint64 {
	if int(o.tail-o.head) == len(o.ring) {
		n := 1 // enough for the keepalives of an idle connection
		if len(o.ring) > 0 {
			n = max(2*len(o.ring), 4)
		}
		ring := make([]slot, n)
		for i := o.head; i != o.tail; i++ {
			ring[i&uint32(len(ring)-1)] = *o.slot(i)
		}
		o.ring = ring
	}
	*o.slot(o.tail) = s
	o.tail++
	return sendFlag | uint64(o.tail-1)
}

// post posts a request. What it names must be the device's own or belong to it
// until the completion. If it is refused the connection is as before.
func (o *outbox) post(wr *verbs.SendWR, s slot) error {
	c := o.c
	wr.ID = o.add(s)
	sc := scratches.Get().(*scratch)
	sc.send[0] = *wr
	err := c.qp.PostSend(sc.send[:]...)
	sc.send[0] = verbs.SendWR{}
	scratches.Put(sc)
	if err != nil {
		o.tail--
		*o.slot(o.tail) = slot{}
	}
	return err
}

// postMessage posts a SEND with what wr has, and credits for the peer.
func (o *outbox) postMessage(k kind, wr *verbs.SendWR, s slot) error {
	c := o.c
	wr.Opcode, wr.Signaled = verbs.OpSend, true
	if !c.foreign {
		wr.Opcode = verbs.OpSendImm
		wr.Imm = immOf(k, c.in.pay())
		// What is for the directory, the peer's program may not wait
		// for.
		wr.Solicited = k == kindRequest || k == kindReply
		if k != kindCredit {
			o.credits--
		}
	}
	err := o.post(wr, s)
	if err != nil {
		if s.buf != nil {
			c.hub.put(s.buf)
		}
		c.quit(err)
	}
	return err
}

// send sends a message: p is the caller's again when it returns.
func (o *outbox) send(ctx context.Context, k kind, p []byte) error {
	c := o.c
	if c.err != nil {
		return c.err
	}
	if k == kindMessage && !c.foreign && o.packable(p) {
		if o.pack == nil && !o.atOnce() {
			c.poll()
		}
		if o.pack != nil || !o.atOnce() {
			return o.packIn(ctx, p)
		}
	}
	if err := o.turn(ctx, wantRoom); err != nil {
		return err
	}
	var wr verbs.SendWR
	switch {
	case len(p) == 0:
		return o.postMessage(k, &wr, slot{})
	case len(p) <= maxInline:
		wr.Inline = p
		return o.postMessage(k, &wr, slot{})
	case len(p) <= min(copyMax, c.hub.size):
		b, err := c.hub.take()
		if err != nil {
			return err
		}
		return o.sendBuffer(k, b, copy(b.bytes(), p))
	}
	return o.sendRegistered(ctx, k, p)
}

// atOnce reports whether a small message is sent at once.
func (o *outbox) atOnce() bool { return o.outstanding() < direct && o.mayPost() }

func (o *outbox) sendBuffer(k kind, b *buffer, n int) error {
	s := scratches.Get().(*scratch)
	s.sge[0] = b.sge(n)
	err := o.postMessage(k, &verbs.SendWR{SGList: s.sge[:1]}, slot{buf: b})
	scratches.Put(s)
	return err
}

// turn waits until a request can be posted, after what is held back.
func (o *outbox) turn(ctx context.Context, what want) error {
	c := o.c
	for {
		if o.pack != nil {
			if err := c.wait(ctx, wantRoom, nil); err != nil {
				return err
			}
			o.flush()
		}
		if err := c.wait(ctx, what, nil); err != nil {
			return err
		}
		if c.err != nil {
			return c.err
		}
		if o.pack == nil && c.ready(what, nil) {
			return nil
		}
	}
}

// packIn adds a small message to those that are held back.
func (o *outbox) packIn(ctx context.Context, p []byte) error {
	c := o.c
	for o.pack != nil && o.packed+packHeader+len(p) > o.packLimit() {
		c.poll() // frees what has completed
		if err := c.wait(ctx, wantRoom, nil); err != nil {
			return err
		}
		o.flush()
	}
	if c.err != nil {
		return c.err
	}
	if o.pack == nil {
		b, err := c.hub.take()
		if err != nil {
			return err
		}
		o.pack, o.packed = b, 0
	}
	m := o.pack.part(o.packed, packHeader+len(p))
	binary.BigEndian.PutUint16(m, uint16(len(p)))
	copy(m[packHeader:], p)
	o.packed += len(m)
	if !c.callers.Leads() && c.notice != ofAny {
		c.arm()
	}
	return nil
}

// flush sends what is held back: answers of the directory, small messages, and
// credits. What there is no room or no credit for stays.
func (o *outbox) flush() {
	c := o.c
	if c.err != nil {
		return
	}
	for len(c.in.requests) > 0 && o.mayPost() {
		c.answer()
	}
	if b := o.pack; b != nil && o.mayPost() {
		o.pack = nil
		o.sendBuffer(kindPacked, b, o.packed)
	}
	if !c.foreign && c.in.due() && o.room() > 1 {
		o.postMessage(kindCredit, &verbs.SendWR{}, slot{})
	}
}
