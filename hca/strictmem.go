package hca

import (
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"sync"

	"github.com/gosoftroce/rocev2/hca/strict"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
)

// What the optional rules of strict mode do to memory. All of it happens with
// the shard of the queue pair locked.

// buffers has the memory of requests that have not completed.
type buffers struct {
	table *memreg.Table
	pd    *memreg.PD

	mu    sync.Mutex
	sends []sendBuffer // in order
	recvs []recvBuffer
}

// sendBuffer is the memory of a send request.
type sendBuffer struct {
	id       uint64
	signaled bool
	list     []ib.SGE // nil: it is not compared
	sum      uint32
}

// recvBuffer is the memory of a receive, and what was there.
type recvBuffer struct {
	list  []ib.SGE
	saved []byte
}

const (
	// mostSummed is how much of the beginning of a message is compared, and
	// of the memory that a READ fills is poisoned.
	mostSummed = 1 << 20
	// mostPoisoned is how much of the beginning of a receive is poisoned.
	mostPoisoned = 64 << 10
	// poison is what memory has that belongs to the adapter.
	poison = 0xdb
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// pieces calls f with parts of the beginning of a list, up to most bytes.
func pieces(list []ib.SGE, most uint64, f func(off uint64, n int) bool) {
	for off, total := uint64(0), min(ib.TotalLength(list), most); off < total; {
		n := min(total-off, 64<<10)
		if !f(off, int(n)) {
			return
		}
		off += n
	}
}

// sum returns a checksum of the beginning of a list; ok is false where it
// cannot be read.
func (b *buffers) sum(list []ib.SGE) (sum uint32, ok bool) {
	var buf [4096]byte
	ok = true
	pieces(list, mostSummed, func(off uint64, n int) bool {
		for n > 0 && ok {
			part := buf[:min(n, len(buf))]
			if ok = b.table.Gather(b.pd, list, off, part) == ib.FaultNone; ok {
				sum = crc32.Update(sum, castagnoli, part)
			}
			off += uint64(len(part))
			n -= len(part)
		}
		return ok
	})
	return sum, ok
}

// fill poisons the beginning of a list.
func (b *buffers) fill(list []ib.SGE, most uint64) {
	pieces(list, most, func(off uint64, n int) bool {
		return b.table.Scatter(b.pd, list, off, slices.Repeat([]byte{poison}, n)) == ib.FaultNone
	})
}

// send remembers the memory of requests that are about to be posted.
func (k *checkedQP) watchSends(wrs []ib.SendWR) {
	b := k.buffers
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range wrs {
		wr := &wrs[i]
		s := sendBuffer{id: wr.ID, signaled: wr.Signaled || k.signalAll}
		known := wr.Opcode.Known() && wr.Inline == nil && len(wr.SGList) > 0
		switch {
		case !known:
		case wr.Opcode.Is(ib.OpReads) || wr.Opcode.Is(ib.OpAtomic):
			if k.On(strict.EarlyRead) {
				b.fill(wr.SGList, mostSummed)
			}
		case k.On(strict.SendChanged):
			if sum, ok := b.sum(wr.SGList); ok {
				s.list, s.sum = slices.Clone(wr.SGList), sum
			}
		}
		b.sends = append(b.sends, s)
	}
}

// forgetSends forgets the last n requests, which were not posted after all.
func (b *buffers) forgetSends(n int) {
	b.mu.Lock()
	b.sends = b.sends[:len(b.sends)-min(n, len(b.sends))]
	b.mu.Unlock()
}

// sent compares what was there when requests were posted with what is there
// when they complete: those up to the one of c.
func (k *checkedQP) sent(c *ib.WC, name func(uint64) uint64) {
	b := k.buffers
	b.mu.Lock()
	defer b.mu.Unlock()
	ok := c.Status == ib.StatusSuccess
	for n := range b.sends {
		s := &b.sends[n]
		if s.list != nil && ok {
			if sum, readable := b.sum(s.list); readable && sum != s.sum {
				k.Found(strict.SendChanged, strict.Finding{QPN: uint32(k.qp.QPN()), WRID: name(s.id), Key: uint32(s.list[0].LKey), Addr: s.list[0].Addr,
					Length: ib.TotalLength(s.list), Detail: "the memory of a send has changed between its post and its completion"})
			}
		}
		if ok && s.signaled || !ok && s.id == c.ID {
			b.sends = b.sends[:copy(b.sends, b.sends[n+1:])]
			return
		}
	}
	b.sends = b.sends[:0]
}

// watchReceives poisons the memory of receives that are about to be posted.
func (b *buffers) watchReceives(wrs []ib.RecvWR) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range wrs {
		r := recvBuffer{list: slices.Clone(wrs[i].SGList)}
		r.saved = make([]byte, min(ib.TotalLength(r.list), mostPoisoned))
		if b.table.Gather(b.pd, r.list, 0, r.saved) == ib.FaultNone {
			b.fill(r.list, mostPoisoned)
		} else {
			r.saved = nil
		}
		b.recvs = append(b.recvs, r)
	}
}

// forgetReceives restores the memory of the last n receives, which were not
// posted after all.
func (b *buffers) forgetReceives(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ; n > 0 && len(b.recvs) > 0; n-- {
		last := len(b.recvs) - 1
		b.restore(&b.recvs[last], 0)
		b.recvs = b.recvs[:last]
	}
}

// received restores what a message has not written of its receive, the oldest
// one.
func (b *buffers) received(c *ib.WC) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.recvs) == 0 {
		return
	}
	from := uint64(0)
	if c.Status == ib.StatusSuccess && c.Opcode == ib.WCRecv {
		from = uint64(c.ByteLen)
	}
	b.restore(&b.recvs[0], from)
	b.recvs = b.recvs[:copy(b.recvs, b.recvs[1:])]
}

func (b *buffers) restore(r *recvBuffer, from uint64) {
	if from < uint64(len(r.saved)) {
		_ = b.table.Scatter(b.pd, r.list, from, r.saved[from:]) // or it is gone
	}
}

// reset forgets all: the queue pair is in RESET.
func (b *buffers) reset() {
	b.mu.Lock()
	for i := range b.recvs {
		b.restore(&b.recvs[i], 0)
	}
	b.sends, b.recvs = nil, nil
	b.mu.Unlock()
}

// watchedSink is a sink of sends, or of receives, before that of config.
type watchedSink struct {
	qp.CompletionSink
	of    *checkedQP
	sends bool
}

// Complete implements qp.CompletionSink.
func (s *watchedSink) Complete(c *ib.WC) bool {
	if !s.sends {
		s.of.buffers.received(c)
		return s.CompletionSink.Complete(c)
	}
	name := func(id uint64) uint64 { return id }
	if n, ok := s.CompletionSink.(interface{ ProgramID(id uint64) uint64 }); ok {
		name = n.ProgramID
	}
	s.of.sent(c, name)
	return s.CompletionSink.Complete(c)
}

// watch has completions of the queue pair come by it, where an optional rule
// asks for it. Queues of receives are known by their completion queue to faces
// that have their own, which so have no poison.
func (k *checkedQP) watch(config *qp.Config) {
	if !k.On(strict.SendChanged) && !k.On(strict.EarlyRead) || config.PD == nil {
		return
	}
	k.buffers = &buffers{table: k.dev.mem, pd: config.PD}
	if config.SendCQ != nil {
		config.SendCQ = &watchedSink{config.SendCQ, k, true}
	}
	if k.poisons = k.recvCQ != nil && !k.shared && k.On(strict.EarlyRead); k.poisons {
		config.RecvCQ = &watchedSink{config.RecvCQ, k, false}
	}
}

// disordered is memory in which the end of what is written is there before the
// beginning. It is written by cache lines: those are there as a whole.
type disordered struct {
	memreg.Memory
	base uint64 // its address, as far as it is known
}

// cacheLine is what an adapter writes at once, and what processors see at once.
const cacheLine = 64

// Bytes says that nothing is copied there by others.
func (disordered) Bytes() []byte { return nil }

// CopyIn writes the last cache line first, and the others some microseconds
// later.
func (m disordered) CopyIn(off uint64, src []byte) error {
	end := m.base + off + uint64(len(src))
	cut := len(src) - int((end-1)%cacheLine) - 1
	if len(src) == 0 || cut <= 0 {
		return m.Memory.CopyIn(off, src)
	}
	if err := m.Memory.CopyIn(off+uint64(cut), src[cut:]); err != nil {
		return err
	}
	linger()
	return m.Memory.CopyIn(off, src[:cut])
}

// register looks at memory that is to be registered with options, and returns
// it as the rules ask for it.
func (c *Checks) register(m memreg.Memory, o *memreg.Options) memreg.Memory {
	if c.On(strict.SharedPage) && m != nil {
		c.checkPages(m, o)
	}
	return c.disorder(m, o)
}

// checkPages looks whether memory has its pages for itself. Of memory whose
// address is not known it says nothing.
func (c *Checks) checkPages(m memreg.Memory, o *memreg.Options) {
	b, page := m.Bytes(), uint64(os.Getpagesize())
	var addr uint64
	switch {
	case len(b) > 0:
		addr = memreg.AddrOf(b)
	case o.Base == memreg.BaseIOVA && o.Access&ib.ZeroBased == 0:
		addr = o.IOVA
	default:
		return
	}
	if n := m.Len(); addr%page != 0 || n%page != 0 {
		c.Found(strict.SharedPage, strict.Finding{Addr: addr, Length: n,
			Detail: fmt.Sprintf("a region does not begin and end with pages of %d bytes", page)})
	}
}

// disorder returns memory for a region with options, as the rules ask for it.
func (c *Checks) disorder(m memreg.Memory, o *memreg.Options) memreg.Memory {
	if !c.On(strict.LastByte) || o.Access&ib.RemoteWrite == 0 {
		return m
	}
	switch m.(type) {
	case nil, disordered, memreg.PagedMemory, memreg.SparseMemory, memreg.PersistentMemory, memreg.ReadOnlyMemory:
		return m
	}
	b := m.Bytes()
	if len(b) == 0 {
		return disordered{m, 0}
	}
	base := memreg.AddrOf(b)
	if o.Base == memreg.BaseReal && o.Access&ib.ZeroBased == 0 {
		o.Base, o.IOVA = memreg.BaseIOVA, base
	}
	return disordered{m, base}
}
