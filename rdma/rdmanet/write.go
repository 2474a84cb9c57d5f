package rdmanet

import (
	"fmt"
	"net"

	"github.com/gosoftroce/rocev2/memreg/mapping"
	"github.com/gosoftroce/rocev2/rdma/rdmanet/rsocket"
	"github.com/gosoftroce/rocev2/verbs"
)

// What completes: the number of a DATA message, or one of these.
const (
	idControl   uint64 = 1<<63 + iota // a message of Stream.Control
	idLast                            // one after which no DATA comes
	idKeepAlive                       // an empty WRITE
)

// sendQueue knows what was posted and is not acknowledged. DATA messages are
// copied into a buffer of the connection, a ring; short ones go without.
type sendQueue struct {
	mr   *verbs.MR // the buffer, made when it is needed
	mem  []byte
	size uint64

	memory *mapping.Mapping // of mr

	head, tail uint64   // bytes of the buffer that were freed and used
	done, seq  uint64   // DATA messages that have completed, and all
	ends       []uint64 // tail after a message, by its number; nil before the first
	controls   int      // other messages on their way

	silent      int    // messages since the last that completes with an entry
	silentBytes uint64 // of the buffer
}

// idle reports whether everything is acknowledged.
func (q *sendQueue) idle() bool { return q.done == q.seq && q.controls == 0 }

// room returns how many bytes a message can have.
func (q *sendQueue) room() int {
	if q.seq-q.done == dataDepth {
		return 0
	}
	return int(q.size - (q.tail - q.head))
}

// chunk returns how many bytes the next message has where limit are to be sent
// and the peer takes them. The last packet of a message carries the immediate
// data: it must not be longer than the others for that, or it ends their
// segmentation run. So a message in the middle is a little shorter than a
// whole number of packets, whatever the path MTU, and what is missing in the
// end makes the last one a little longer.
func (q *sendQueue) chunk(limit int) int {
	most := int(min(maxChunk, q.size))
	if limit <= most+minBuffer/2 && limit <= int(q.size) {
		return limit
	}
	return most - immBytes
}

// reserve takes n bytes of the buffer, of room, for the next message. It
// returns where they are, the number of the message, and whether it must
// complete with an entry.
func (q *sendQueue) reserve(n int) (off int, seq uint64, signaled bool) {
	off = int(q.tail % q.size)
	if q.ends == nil {
		q.ends = make([]uint64, dataDepth)
	}
	q.tail += uint64(n)
	q.ends[q.seq%dataDepth] = q.tail
	seq = q.seq
	q.seq++
	q.silent++
	q.silentBytes += uint64(n)
	if signaled = q.silent >= dataDepth/4 || q.silentBytes >= q.size/8; signaled {
		q.silent, q.silentBytes = 0, 0
	}
	return off, seq, signaled
}

// completed records that message seq is acknowledged, and all before it.
func (q *sendQueue) completed(seq uint64) {
	if seq >= q.done && seq < q.seq {
		q.done, q.head = seq+1, q.ends[seq%dataDepth]
	}
}

// Write sends p. It returns when all of it is on its way. What it has not sent
// when it returns an error is not sent later.
func (c *Conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes.begin(&c.changed)
	defer c.writes.end(&c.changed)
	if len(p) == 0 {
		if _, err := c.writeReady(); err != nil {
			return 0, c.opError("write", err)
		}
		return 0, nil
	}
	defer c.unclaim()
	if len(p) > maxChunk {
		c.claim()
	}
	total := 0
	for total < len(p) {
		c.left = len(p) - total
		if err := c.await(writing); err != nil {
			return total, c.opError("write", err)
		}
		n, err := c.send(p[total:])
		total += n
		if err != nil {
			return total, c.opError("write", err)
		}
	}
	return total, nil
}

// send sends the first bytes of p as one message. c.mu is held; it is given up
// meanwhile.
func (c *Conn) send(p []byte) (int, error) {
	n := min(len(p), c.stream.Room())
	wr := verbs.SendWR{Opcode: verbs.OpWriteImm}
	var sge [2]verbs.SGE
	off := 0
	if n <= inline {
		_, wr.ID, wr.Signaled = c.out.reserve(0)
		wr.Inline = p[:n]
	} else {
		if err := c.sendBuffer(); err != nil {
			return 0, err
		}
		n = c.out.chunk(n)
		off, wr.ID, wr.Signaled = c.out.reserve(n)
	}
	w := c.stream.Data(n)
	wr.Imm, wr.Remote = w.Imm, verbs.RemoteAddr{Addr: w.Addr, RKey: verbs.Key(w.Key)}
	c.mu.Unlock()
	if wr.Inline == nil {
		first := copy(c.out.mem[off:], p[:n])
		wr.SGList = append(sge[:0], c.out.mr.Slice(off, first))
		if rest := copy(c.out.mem, p[first:n]); rest > 0 {
			wr.SGList = append(wr.SGList, c.out.mr.Slice(0, rest))
		}
	}
	err := c.ep.qp.PostSend(wr)
	c.mu.Lock()
	if err != nil {
		c.fail(err)
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case c.err != nil:
			return 0, c.err
		}
		return 0, err
	}
	return n, nil
}

// sendBuffer makes the buffer of what is sent.
func (c *Conn) sendBuffer() error {
	if c.out.mr != nil {
		return nil
	}
	mr, memory, err := c.ep.alloc(c.opts.SendBuffer, 0)
	if err != nil {
		return fmt.Errorf("buffer of %d bytes: %w", c.opts.SendBuffer, err)
	}
	c.out.mr, c.out.memory, c.out.mem = mr, memory, memory.Data()
	return nil
}

// sayAll posts what the peer is to be told. c.mu is held.
func (c *Conn) sayAll() {
	for c.err == nil {
		var buf [rsocket.SlotLen]byte
		c.widen()
		w, payload, ok := c.stream.Control(buf[:0])
		if !ok {
			return
		}
		id := idControl
		if op, _ := rsocket.SplitImm(w.Imm); op == rsocket.OpSGL {
			c.repost(1) // the credits stand for receives
		} else {
			id = idLast
		}
		wr := verbs.SendWR{
			ID: id, Opcode: verbs.OpWriteImm, Signaled: true, Imm: w.Imm,
			Remote: verbs.RemoteAddr{Addr: w.Addr, RKey: verbs.Key(w.Key)},
		}
		if len(payload) > 0 {
			wr.Inline = payload
		}
		c.out.controls++
		if err := c.ep.qp.PostSend(wr); err != nil {
			c.fail(err)
		}
	}
}

// CloseWrite says that no more bytes are written: the peer reads io.EOF after
// those that were. This side reads on.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("close", net.ErrClosed)
	}
	c.noWrites = true
	c.interrupt() // a Write that waits
	c.writes.begin(&c.changed)
	defer c.writes.end(&c.changed)
	c.stream.Shutdown()
	c.sayAll()
	c.await(saying)
	if c.err != nil && !c.closed && !c.stream.PeerDone() {
		return c.opError("close", c.err)
	}
	return nil
}
