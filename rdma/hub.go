package rdma

import (
	"context"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/memreg/mapping"
	"github.com/gosoftroce/rocev2/verbs"
)

// hub is what connections of one listener, or those that were dialled with one
// device, share: memory, receives, and two goroutines. So an idle connection
// costs its queue pair and little more.
type hub struct {
	dev     *verbs.Device
	pd      *verbs.PD
	channel *verbs.CompChannel // tells of errors, of requests to the directory, and of what no call waits for
	size    int                // bytes of a buffer: of the largest message
	tune    tuning
	exports *directory // nil: none
	cache   regCache
	waiters sync.Pool // of the hub, so that tests in virtual time share none

	stop    context.CancelFunc
	stopped sync.WaitGroup

	table atomic.Pointer[[]*buffer] // by index, which is the ID of a receive

	holds atomic.Int64 // see hold
	ended atomic.Bool  // the device has nothing of the hub any more

	mu      sync.Mutex
	slabs   []slab
	free    *buffer
	buffers int // that there are
	extra   int // receives that busy connections may still have
	conns   map[uint32]*core
	closed  bool

	used chan struct{} // has a value when there is a connection, for sweep
}

// tuning holds what a program may choose; see ListenConfig.
type tuning struct {
	size      int
	depth     int // requests outstanding
	keepAlive time.Duration
}

const (
	defaultMessage   = 64 << 10
	maxMessage       = 1 << 30
	defaultDepth     = 64
	defaultKeepAlive = 30 * time.Second

	// baseWindow is how many messages a peer may send at first. A peer that
	// is busy gets more, from what busyBytes is enough for.
	baseWindow = 2
	maxWindow  = 64
	busyBytes  = 256 << 20
	// spare is the receive of a connection for a message that takes no
	// credit. At most one such message is under way: see inbox.due.
	spare = 1
	// foreignDepth is how many receives a peer has that knows no credits.
	foreignDepth = 128

	maxInline = 256
)

// slab is the memory of many buffers. It is not the device's: a program may
// have a message after the device is closed.
type slab struct {
	memory *mapping.Mapping
	mr     *verbs.MR
}

// buffer is registered memory for one message.
type buffer struct {
	hub   *hub
	mr    *verbs.MR
	off   int // in mr
	index uint32
	refs  atomic.Int32 // of a received message: its readers
	conn  *core        // of a received message
	next  *buffer
}

func (b *buffer) bytes() []byte         { return b.mr.Bytes()[b.off : b.off+b.hub.size : b.off+b.hub.size] }
func (b *buffer) sge(n int) verbs.SGE   { return b.mr.Slice(b.off, n) }
func (b *buffer) part(i, n int) []byte  { return b.mr.Bytes()[b.off+i : b.off+i+n : b.off+i+n] }
func (t *tuning) windowMax() int        { return min(max(4<<20/t.size, 4), maxWindow) }
func (t *tuning) receives() int         { return max(t.windowMax(), foreignDepth) + spare }
func (t *tuning) completions() int      { return t.depth + t.receives() + 8 }
func (h *hub) buffer(id uint64) *buffer { return (*h.table.Load())[id] }

func newHub(dev *verbs.Device, t tuning, exports *directory) (*hub, error) {
	h := &hub{dev: dev, size: t.size, tune: t, exports: exports, conns: map[uint32]*core{}, used: make(chan struct{}, 1)}
	h.extra = min(max(busyBytes/t.size, 16), 4096)
	h.table.Store(new([]*buffer))
	h.waiters.New = newWaiter
	var err error
	if h.pd, err = dev.AllocPD(); err != nil {
		return nil, err
	}
	if h.channel, err = dev.CreateCompChannel(verbs.Aside()); err != nil {
		h.pd.Close()
		return nil, err
	}
	h.cache.pd = h.pd
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	h.stopped.Go(func() {
		defer stop() // a device that is closed ends sweep, too
		h.serve(ctx)
	})
	h.stopped.Go(func() { h.sweep(ctx) })
	return h, nil
}

// close frees everything; its memory goes when nothing holds it. The
// connections are closed before.
func (h *hub) close() {
	h.mu.Lock()
	closed := h.closed
	h.closed = true
	h.mu.Unlock()
	if closed {
		return
	}
	h.stop()
	h.stopped.Wait()
	h.channel.Close()
	h.cache.close()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.slabs {
		s.mr.Close()
	}
	h.pd.Close()
	h.ended.Store(true)
	h.unmapLocked()
}

// hold keeps the memory mapped until unhold, also when the hub is closed. Each
// connection holds it until it is released, the program each message and each
// Buffer until it gives that back, and a call the buffer that it copies from.
func (h *hub) hold() { h.holds.Add(1) }

// unhold ends a hold. The last one of a hub that is closed gives the memory
// back.
func (h *hub) unhold() {
	if h.holds.Add(-1) == 0 && h.ended.Load() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.unmapLocked()
	}
}

// unmapLocked gives the memory back, unless something holds it.
func (h *hub) unmapLocked() {
	if h.holds.Load() > 0 {
		return
	}
	for _, s := range h.slabs {
		s.memory.Close()
	}
	h.slabs = nil
}

// open makes the queue pair and the queue of a connection, which holds the
// memory from now on. The number is one that the peer was told, or 0.
func (h *hub) open(number verbs.QPN) (*verbs.QP, *verbs.CQ, error) {
	cq, err := h.dev.CreateCQ(h.tune.completions(), verbs.WithChannel(h.channel))
	if err != nil {
		return nil, nil, err
	}
	qp, err := h.pd.CreateQP(verbs.QPConfig{
		SendCQ: cq, RecvCQ: cq, MaxRecvWR: h.tune.receives(), MaxRecvSGE: 1,
		MaxSendWR: h.tune.depth, MaxSendSGE: 4, MaxInline: maxInline, Number: number,
	})
	if err != nil {
		cq.Close()
		return nil, nil, err
	}
	h.hold()
	return qp, cq, nil
}

// add enters a connection.
func (h *hub) add(c *core) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return errClosed
	}
	h.conns[c.cq.Handle()] = c
	select {
	case h.used <- struct{}{}:
	default:
	}
	return nil
}

// remove takes a connection out, which had extra receives beyond the first.
func (h *hub) remove(c *core, extra int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, c.cq.Handle())
	h.extra += extra
}

// grant takes up to n of the receives that busy connections may have beyond
// the first, and returns how many it took. A negative n gives them back.
func (h *hub) grant(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n = min(n, h.extra)
	h.extra -= n
	return n
}

// take returns a buffer for a message to be sent.
func (h *hub) take() (*buffer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.takeLocked()
}

func (h *hub) takeLocked() (*buffer, error) {
	if h.free == nil {
		if err := h.more(); err != nil {
			return nil, err
		}
	}
	b := h.free
	h.free, b.next = b.next, nil
	return b, nil
}

func (h *hub) put(b *buffer) {
	h.mu.Lock()
	h.putLocked(b)
	h.mu.Unlock()
}

// putLocked puts a buffer back. The one that was used last is used first, so
// that those that a burst needed stay untouched.
func (h *hub) putLocked(b *buffer) { b.next, h.free = h.free, b }

// more makes buffers: as many as there are, so that there are few regions.
// Untouched memory costs only addresses.
func (h *hub) more() error {
	if h.closed {
		return errClosed
	}
	n := min(max(h.buffers, 16), 4096, max(busyBytes/h.size, 4))
	s, err := h.newSlab(n * h.size)
	if err != nil {
		return fmt.Errorf("memory for %d messages of %d bytes: %w", n, h.size, err)
	}
	h.slabs = append(h.slabs, s)
	mr := s.mr
	old := *h.table.Load()
	table := make([]*buffer, len(old), max(len(old)+n, 1<<bits.Len(uint(len(old)+n-1))))
	copy(table, old)
	bufs := make([]buffer, n)
	for i := range bufs {
		b := &bufs[i]
		*b = buffer{hub: h, mr: mr, off: i * h.size, index: uint32(len(table))}
		table = append(table, b)
	}
	for i := range bufs {
		h.putLocked(&bufs[n-1-i])
	}
	h.buffers += n
	h.table.Store(&table)
	return nil
}

func (h *hub) newSlab(size int) (s slab, err error) {
	if s.memory, err = mapping.Anonymous(size, mapping.Options{Reserve: true}); err != nil {
		return s, err
	}
	if s.mr, err = h.pd.RegisterMemory(s.memory.Data(), verbs.LocalWrite); err != nil {
		s.memory.Close()
	}
	return s, err
}

// close gives the memory back. Nothing uses it any more.
func (s *slab) close() {
	s.mr.Close()
	s.memory.Close()
}

// serve handles what no program waits for: errors, requests to the directory,
// and what is to be sent when something has completed.
func (h *hub) serve(ctx context.Context) {
	for {
		cq, err := h.channel.Get(ctx)
		if err != nil {
			return
		}
		h.mu.Lock()
		c := h.conns[cq.Handle()]
		h.mu.Unlock()
		if c != nil {
			c.notified()
		}
	}
}

// sweeps is in how many parts the connections are looked at in half the time of
// a keepalive: so they do not come all at once. A look that finds no sign of
// the peer since the one before asks for one. That is at most the whole time
// after the last sign.
const sweeps = 8

// sweep sends the keepalives of idle connections, and takes back what busy
// ones do not need any more.
func (h *hub) sweep(ctx context.Context) {
	if h.tune.keepAlive <= 0 {
		return
	}
	tick := time.NewTicker(h.tune.keepAlive / 2 / sweeps)
	defer tick.Stop()
	var part []*core
	for turn := uint32(0); ; turn++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		h.mu.Lock()
		for handle, c := range h.conns {
			if handle%sweeps == turn%sweeps {
				part = append(part, c)
			}
		}
		h.mu.Unlock()
		for _, c := range part {
			c.look()
		}
		clear(part)
		part = part[:0]
		if !h.cache.sweep() && !h.awaitUse(ctx, tick) {
			return
		}
	}
}

// awaitUse waits while there is no connection, without the tick: a process with
// nothing to do sleeps. It reports false when the hub is closed.
func (h *hub) awaitUse(ctx context.Context, tick *time.Ticker) bool {
	h.mu.Lock()
	n := len(h.conns)
	if n > 0 {
		h.mu.Unlock()
		return true
	}
	select {
	case <-h.used: // of one that has gone
	default:
	}
	h.mu.Unlock()
	tick.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-h.used:
	}
	tick.Reset(h.tune.keepAlive / 2 / sweeps)
	return true
}

// scratch is what a call needs for a moment, so that connections need no memory
// for it.
type scratch struct {
	send [1]verbs.SendWR
	recv [1]verbs.RecvWR
	sge  [4]verbs.SGE
	wc   [64]verbs.WC
	word [8]byte
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}
