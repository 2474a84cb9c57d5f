package rdma

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/gosoftroce/rocev2/verbs"
)

const (
	// stageMax is the longest transfer that goes through memory of the
	// connection. Beyond that the caller's memory is registered.
	stageMax = 16 << 10

	// A long transfer consists of pieces, several under way: when the
	// context ends only these are waited for.
	pieceBytes  = 1 << 20
	piecesAhead = 8

	// grace is how long a transfer from or to the caller's memory may go on
	// when its context has ended.
	grace = 200 * time.Millisecond
)

// settle waits for the end of a transfer from or to the caller's memory. When
// the context ends before, and the transfer soon after does not, the connection
// ends: nothing else keeps the device from that memory.
func (o *outbox) settle(ctx context.Context, ref *pending) error {
	c := o.c
	ref.limit = 0
	err := c.wait(ctx, wantDone, ref)
	if ref.left > 0 {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		c.wait(late, wantDone, ref)
		cancel()
	}
	if ref.left > 0 {
		c.quit(fmt.Errorf("%w: %w", ErrTransfer, err))
		c.wait(context.Background(), wantDone, ref)
	}
	return o.verdict(ref)
}

// verdict returns the error of a transfer that is over.
func (o *outbox) verdict(ref *pending) error {
	c := o.c
	if ref.err != nil && c.err != nil {
		return c.err // which says more than that the request was flushed
	}
	return ref.err
}

// sendRegistered sends a message from the caller's memory.
func (o *outbox) sendRegistered(ctx context.Context, k kind, p []byte) error {
	c := o.c
	mem, err := c.hub.cache.get(p)
	if err != nil {
		return err
	}
	defer c.hub.cache.put(mem)
	ref := pendings.Get().(*pending)
	ref.left = 1
	s := scratches.Get().(*scratch)
	s.sge[0] = mem.sge(p)
	err = o.postMessage(k, &verbs.SendWR{SGList: s.sge[:1]}, slot{ref: ref})
	scratches.Put(s)
	if err == nil {
		err = o.settle(ctx, ref)
	}
	c.drop(ref)
	return err
}

// transfer does a READ or WRITE of any length between p and the peer's memory.
func (c *core) transfer(ctx context.Context, op verbs.Opcode, at verbs.RemoteAddr, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(p) <= stageMax && len(p) <= c.hub.size {
		return c.staged(ctx, &verbs.SendWR{Opcode: op, Remote: at}, p)
	}
	mem, err := c.hub.cache.get(p)
	if err != nil {
		return err
	}
	defer c.hub.cache.put(mem)
	ref := pendings.Get().(*pending)
	defer c.drop(ref)
	for len(p) > 0 {
		if err = ctx.Err(); err != nil {
			break
		}
		if err = c.out.turn(ctx, wantSlot); err != nil {
			break
		}
		n := min(len(p), pieceBytes)
		s := scratches.Get().(*scratch)
		s.sge[0] = mem.sge(p[:n])
		err = c.out.post(&verbs.SendWR{Opcode: op, Remote: at, SGList: s.sge[:1], Signaled: true}, slot{ref: ref})
		scratches.Put(s)
		if err != nil {
			break
		}
		p, at.Addr = p[n:], at.Addr+uint64(n)
		ref.left++
		ref.limit = piecesAhead - 1
		if err = c.wait(ctx, wantDone, ref); err != nil {
			break
		}
	}
	if late := c.out.settle(ctx, ref); late != nil {
		return late
	}
	return err
}

// staged does a short transfer through memory of the connection. So it can be
// left when the context ends: the peer's memory may still be read or written.
// wr says all but the local memory.
func (c *core) staged(ctx context.Context, wr *verbs.SendWR, p []byte) error {
	if err := c.out.turn(ctx, wantSlot); err != nil {
		return err
	}
	ref := pendings.Get().(*pending)
	ref.left = 1
	writes := wr.Opcode == verbs.OpWrite
	s := scratches.Get().(*scratch)
	wr.Signaled = true
	if writes && len(p) <= maxInline {
		wr.Inline = p
	} else {
		b, err := c.hub.take()
		if err != nil {
			c.drop(ref)
			return err
		}
		ref.buf = b
		c.hub.hold() // the connection may be released before p has the data
		if writes {
			copy(b.bytes(), p)
		}
		s.sge[0] = b.sge(len(p))
		wr.SGList = s.sge[:1]
	}
	err := c.out.post(wr, slot{ref: ref})
	scratches.Put(s)
	if err != nil {
		c.drop(ref)
		return err
	}
	if err = c.wait(ctx, wantDone, ref); ref.left > 0 {
		ref.orphan = true
		return err
	}
	if err = c.out.verdict(ref); err == nil && !writes {
		copy(p, ref.buf.bytes())
	}
	c.drop(ref)
	return err
}

// atomic does an operation on 8 bytes of the peer, and returns what they were.
func (c *core) atomic(ctx context.Context, wr *verbs.SendWR) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.word = [8]byte{}
	err := c.staged(ctx, wr, s.word[:])
	return binary.NativeEndian.Uint64(s.word[:]), err // atomics have the byte order of memory
}

// regCache keeps memory of the program registered, because programs use the
// same buffers again and again. Only this side's own requests reach it.
type regCache struct {
	pd      *verbs.PD
	mu      sync.Mutex
	entries []*registered // few: a look at all costs less than a registration
	closed  bool
}

// registered is memory of the program with its region.
type registered struct {
	mr    *verbs.MR
	start uintptr
	n     int
	users int
	idle  bool // not used since the last sweep
}

const maxRegistered = 16

func (l *registered) sge(p []byte) verbs.SGE {
	return l.mr.Slice(int(uintptr(unsafe.Pointer(unsafe.SliceData(p)))-l.start), len(p))
}

// get returns a registration that has p, for put.
func (r *regCache) get(p []byte) (*registered, error) {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.entries {
		if start >= l.start && start+uintptr(len(p)) <= l.start+uintptr(l.n) {
			l.users++
			l.idle = false
			return l, nil
		}
	}
	if r.closed {
		return nil, errClosed
	}
	mr, err := r.pd.RegisterMemory(p, verbs.LocalWrite)
	if err != nil {
		return nil, err
	}
	l := &registered{mr: mr, start: start, n: len(p), users: 1}
	r.entries = append(r.entries, l)
	return l, nil
}

func (r *regCache) put(l *registered) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.users--
	for i := 0; len(r.entries) > maxRegistered && i < len(r.entries); i++ {
		if r.entries[i].users == 0 { // the oldest that is not in use
			r.drop(i)
			return
		}
	}
}

func (r *regCache) drop(i int) {
	r.entries[i].mr.Close()
	r.entries = append(r.entries[:i], r.entries[i+1:]...)
}

// sweep ends the registrations that were not used since the last sweep, so that
// the program's memory can go. It reports whether any is left.
func (r *regCache) sweep() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.entries) - 1; i >= 0; i-- {
		if l := r.entries[i]; l.users == 0 && l.idle {
			r.drop(i)
		} else {
			l.idle = true
		}
	}
	return len(r.entries) > 0
}

func (r *regCache) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for len(r.entries) > 0 {
		r.drop(0)
	}
}
