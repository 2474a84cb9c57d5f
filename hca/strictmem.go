package hca

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"slices"

	"github.com/gosoftroce/rocev2/hca/strict"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
)

// What strict mode does with requests that have not completed, and with their
// memory. All of it happens with the shard of the queue pair locked.

// request is a send request that has not completed.
type request struct {
	id       uint64
	signaled bool
	list     []ib.SGE // its memory
	compared bool     // that must not change
	sum      uint32   // of it
	poisoned poisoned
}

// poisoned is memory that is poisoned, and what was there.
type poisoned struct {
	list  []ib.SGE
	saved []byte
}

const (
	// mostSummed is how much of the beginning of a message is compared, and
	// mostPoisoned how much of the memory of a receive or a READ is
	// poisoned.
	mostSummed   = 1 << 20
	mostPoisoned = 64 << 10
	// poison is what memory has that belongs to the adapter, and shortest
	// how many bytes of it are taken for that.
	poison   = 0xdb
	shortest = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum returns a checksum of the beginning of a list; ok is false where it
// cannot be read.
func (k *checkedQP) sum(list []ib.SGE) (sum uint32, ok bool) {
	var buf [4096]byte
	for off, total := uint64(0), min(ib.TotalLength(list), mostSummed); off < total; {
		part := buf[:min(total-off, uint64(len(buf)))]
		if k.dev.mem.Gather(k.pd, list, off, part) != ib.FaultNone {
			return 0, false
		}
		sum = crc32.Update(sum, castagnoli, part)
		off += uint64(len(part))
	}
	return sum, true
}

// poison poisons the beginning of a list.
func (k *checkedQP) poison(list []ib.SGE) (p poisoned) {
	if n := min(ib.TotalLength(list), mostPoisoned); n > 0 {
		saved := make([]byte, n)
		if k.dev.mem.Gather(k.pd, list, 0, saved) == ib.FaultNone && k.dev.mem.Scatter(k.pd, list, 0, bytes.Repeat([]byte{poison}, len(saved))) == ib.FaultNone {
			p = poisoned{slices.Clone(list), saved}
		}
	}
	return p
}

// restore has memory from an offset on be as it was, where it is still
// poisoned: the peer, too, may have written there.
func (k *checkedQP) restore(p *poisoned, from int) {
	if from >= len(p.saved) {
		return
	}
	now := make([]byte, len(p.saved)-from)
	if k.dev.mem.Gather(k.pd, p.list, uint64(from), now) != ib.FaultNone {
		return // it is gone
	}
	for i := 0; i < len(now); {
		n := 0
		for i+n < len(now) && now[i+n] == poison {
			n++
		}
		if n >= shortest || n == len(now) {
			_ = k.dev.mem.Scatter(k.pd, p.list, uint64(from+i), p.saved[from+i:from+i+n]) // or it is gone
		}
		i += n + 1
	}
}

// watchSends remembers requests that are about to be posted.
func (k *checkedQP) watchSends(wrs []ib.SendWR) {
	for i := range wrs {
		wr := &wrs[i]
		r := request{id: wr.ID, signaled: k.signaled(wr)}
		if wr.Inline == nil {
			r.list = slices.Clone(wr.SGList)
		}
		switch known := wr.Opcode.Known() && wr.Inline == nil; {
		case !known:
		case wr.Opcode.Is(ib.OpReads) || wr.Opcode.Is(ib.OpAtomic):
			if k.poisons {
				r.poisoned = k.poison(wr.SGList)
			}
		case k.compares && len(wr.SGList) > 0:
			r.sum, r.compared = k.sum(wr.SGList)
		}
		k.requests.Push(r)
	}
}

// forgetSends forgets the last n requests, which were not posted after all.
func (k *checkedQP) forgetSends(n int) {
	for range n {
		r, _ := k.requests.DropLast()
		k.restore(&r.poisoned, 0)
		if k.slots != nil {
			k.slots.Unsend(r.signaled)
		}
	}
}

// watchReceives poisons the memory of receives that are about to be posted.
func (k *checkedQP) watchReceives(wrs []ib.RecvWR) {
	if k.poisonsReceives {
		for i := range wrs {
			k.receives.Push(k.poison(wrs[i].SGList))
		}
	}
}

// forgetReceives restores the memory of the last n receives, which were not
// posted after all.
func (k *checkedQP) forgetReceives(n int) {
	for range n {
		if p, ok := k.receives.DropLast(); ok {
			k.restore(&p, 0)
		}
	}
}

// forgetAll forgets what is posted: the queue pair is in RESET, or gone.
func (k *checkedQP) forgetAll() {
	k.forgetReceives(k.receives.Len())
	for k.requests.Len() > 0 {
		r, _ := k.requests.DropLast()
		k.restore(&r.poisoned, 0)
	}
	k.silent = strict.Queue[request]{}
}

// watchedSends is the sink of a queue pair's sends, before that of its
// configuration. All requests complete there, in order; those that are not
// signaled go no further.
type watchedSends struct {
	qp.CompletionSink
	of *checkedQP
}

// Complete implements qp.CompletionSink.
func (s *watchedSends) Complete(c *ib.WC) bool {
	k, ok := s.of, c.Status == ib.StatusSuccess
	r, _ := k.requests.Pop()
	shown := r.signaled || !ok
	switch {
	case !ok:
		k.restore(&r.poisoned, 0)
		k.silent = strict.Queue[request]{}
		if c.Status == ib.StatusLocProtErr {
			wc := *c
			wc.ID = s.name(c.ID)
			k.deniedLocal(&wc, r.list)
		}
	case shown:
		s.compareAll(&r)
	case r.compared:
		if k.silent.Push(r); k.silent.Len() > k.depth {
			k.silent.Pop()
		}
	}
	if k.slots != nil {
		k.slots.Sent(r.signaled, shown) // before the program can poll it
	}
	if !shown || s.CompletionSink.Complete(c) {
		return true
	}
	if k.slots != nil {
		k.slots.SentLost()
	}
	return false
}

// compareAll compares the memory of a request that has completed, and of those
// that have done so before it without a completion.
func (s *watchedSends) compareAll(last *request) {
	for r, ok := s.of.silent.Pop(); ok; r, ok = s.of.silent.Pop() {
		s.compare(&r)
	}
	s.compare(last)
}

// compare compares the memory of a request that has completed with what was
// there when it was posted.
func (s *watchedSends) compare(r *request) {
	if !r.compared {
		return
	}
	if sum, ok := s.of.sum(r.list); !ok || sum == r.sum {
		return
	}
	s.of.Found(strict.SendChanged, strict.Finding{QPN: uint32(s.of.qp.QPN()), WRID: s.name(r.id), Key: uint32(r.list[0].LKey), Addr: r.list[0].Addr,
		Length: ib.TotalLength(r.list), Detail: "the memory of a send has changed between its post and its completion"})
}

// name returns the program's ID of a request.
func (s *watchedSends) name(id uint64) uint64 {
	if n, ok := s.CompletionSink.(interface{ ProgramID(id uint64) uint64 }); ok {
		return n.ProgramID(id)
	}
	return id
}

// watchedReceives is the same for receives that are not of a shared queue.
type watchedReceives struct {
	qp.CompletionSink
	of *checkedQP
}

// Complete implements qp.CompletionSink. It restores what a message has not
// written.
func (s *watchedReceives) Complete(c *ib.WC) bool {
	k := s.of
	if p, ok := k.receives.Pop(); ok {
		from := 0
		if c.Status == ib.StatusSuccess && c.Opcode == ib.WCRecv {
			from = int(min(c.ByteLen, mostPoisoned))
		}
		k.restore(&p, from)
	}
	if k.slots != nil {
		k.slots.Received(1) // before the program can poll it
	}
	if s.CompletionSink.Complete(c) {
		return true
	}
	if k.slots != nil {
		k.slots.Received(-1)
	}
	return false
}

// watch has completions of the queue pair come by it, where a rule asks for it.
// Receives of shared queues, and of faces that have completion queues of their
// own, are not known here.
func (k *checkedQP) watch(config *qp.Config) {
	k.compares = k.On(strict.SendChanged) && config.PD != nil
	k.poisons = k.On(strict.EarlyRead) && config.PD != nil
	names := k.On(strict.StaleKey) || k.On(strict.BadAccess)
	if config.SendCQ != nil && (k.compares || k.poisons || k.slots != nil || names) {
		config.SendCQ, config.SignalAll = &watchedSends{config.SendCQ, k}, true
		k.watched = true
	}
	own := k.recvCQ != nil && !k.shared
	k.poisonsReceives = own && k.poisons
	if k.poisonsReceives || own && k.slots != nil {
		config.RecvCQ = &watchedReceives{config.RecvCQ, k}
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

// mapped is memory that was mapped for a region: mapping.Mapping.
type mapped interface{ Addr() uint64 }

// checkPages looks whether memory has its pages for itself. Of memory whose
// address is not known it says nothing.
func (c *Checks) checkPages(m memreg.Memory, o *memreg.Options) {
	switch m.(type) {
	case mapped, memreg.SparseMemory:
		return
	}
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
	if m == nil {
		return m
	}
	b := m.Bytes()
	switch m := m.(type) {
	case disordered, memreg.SparseMemory:
		return m
	case memreg.PagedMemory:
		if len(b) == 0 {
			return m
		}
	case memreg.PersistentMemory, memreg.ReadOnlyMemory:
		return m
	}
	if len(b) == 0 {
		return disordered{m, 0}
	}
	base := memreg.AddrOf(b)
	if o.Base == memreg.BaseReal && o.Access&ib.ZeroBased == 0 {
		o.Base, o.IOVA = memreg.BaseIOVA, base
	}
	return disordered{m, base}
}
