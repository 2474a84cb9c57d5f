package qptest

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

type opKind uint8

const (
	kindSend opKind = iota
	kindSendImm
	kindSendInv
	kindWrite
	kindWriteImm
	kindRead
	kindCompareSwap
	kindFetchAdd
	numDrawn        // those that every world has
	kindAtomicWrite = iota - 1
	kindFlush
	numKinds
)

var kindOpcodes = [numKinds]ib.Opcode{ib.OpSend, ib.OpSendImm, ib.OpSendInv, ib.OpWrite, ib.OpWriteImm, ib.OpRead, ib.OpCompareSwap, ib.OpFetchAdd, ib.OpAtomicWrite, ib.OpFlush}

var kindWCs = [numKinds]ib.WCOpcode{ib.WCSend, ib.WCSend, ib.WCSend, ib.WCWrite, ib.WCWrite, ib.WCRead, ib.WCCompareSwap, ib.WCFetchAdd, ib.WCAtomicWrite, ib.WCFlush}

func (k opKind) receives() bool { return k <= kindSendInv || k == kindWriteImm }
func (k opKind) sends() bool    { return k <= kindSendInv }
func (k opKind) writes() bool   { return k == kindWrite || k == kindWriteImm || k == kindAtomicWrite }
func (k opKind) atomic() bool   { return k == kindCompareSwap || k == kindFetchAdd }

// answered reports whether the request has a response of its own.
func (k opKind) answered() bool { return k == kindRead || k >= kindCompareSwap }

// op is a send request in the model.
type op struct {
	kind      opKind
	n         int
	signaled  bool
	solicited bool
	fence     bool
	imm       uint32
	inv       ib.Key
	local     []slot // nil for inline data
	data      []byte // what SEND and WRITE carry
	remote    int    // offset in the peer's target, or -1: the shared word
	flush     span   // FLUSH for persistence: what it is about, in the peer's target
	want      uint64 // original value that an atomic must return
	queue     int    // XRC: which shared receive queue of the peer it names
	fault     faultKind
	received  bool // SEND: the receiver has completed it
	ok        bool // completed with success
}

// slot is a piece of a side's local or receive memory.
type slot struct{ off, n int }

// recvOp is a posted receive in the model.
type recvOp struct {
	slots []slot
	n     int
	queue int // XRC: the shared receive queue that it is in
	done  bool
}

// word is a counter of one node that all connections towards it add 1 to.
type word struct {
	posted, completed int
	seen              map[uint64]bool
}

// Layout of a side's memory, which is one block: guards around each region.
const (
	guard       = 64
	targetWords = 8 // 64-bit words at the start of the target for atomics
)

// side is one end of a connection with its model.
type side struct {
	native bool // it takes the peer for native
	w      *world
	name   string
	ep     *simQP
	peer   *side
	config qp.Config
	wire   *sniffer
	xrc    *xrcSide // nil: of RC

	backing, shadow        []byte
	local, recv, target    span
	readonly, shared       span
	localReg, recvReg      *memreg.Region
	targetReg, readonlyReg *memreg.Region
	sharedReg              *memreg.Region

	// The model of the target: what it holds when every posted operation of
	// the peer has been executed, and which operation wrote each byte last
	// (-1: none).
	model  []byte
	writer []int32
	disk   *worldDisk // where the target is brought by FLUSHes, or nil

	ops     []*op
	next    int // the oldest operation without a known end
	recvs   []*recvOp
	recvPos int // the oldest receive that has not completed
	sendPos int // the peer's next operation that will complete a receive here
	ended   int // keys that the QP asked to invalidate
	budget  int
	rdLimit int

	localFree, recvFree []slot
	broken              string // why this side is or may be in ERR; "" is not
	failed              bool   // a completion with an error other than flush was seen
	faulted             bool   // the fault of this world was applied here
	sqd                 sqdPhase
}

type span struct{ off, n int }

type sqdPhase uint8

const (
	sqdNever sqdPhase = iota
	sqdDraining
	sqdDrained
	sqdDone
)

func newSide(w *world, q *simQP, pair int, c qp.Config) *side {
	s := &side{w: w, ep: q, config: c, name: fmt.Sprintf("%c%d", 'a'+nodeIndex(w, q.on), pair)}
	off := guard
	place := func(n int) span {
		n = (n + 7) &^ 7
		sp := span{off, n}
		off += n + guard
		return sp
	}
	s.local = place(2*w.p.maxMsg + 512)
	s.recv = place(w.recvRoom() * max(w.p.maxSend, 8))
	s.target = place(targetWords*8 + w.p.maxMsg + 64)
	s.readonly = place(64)
	s.shared = place(8)
	s.backing = alignedBytes(off)
	fillRandom(w, s.backing)
	nativeStore(s.backing[s.shared.off:], 0)
	s.shadow = bytes.Clone(s.backing)
	s.model = bytes.Clone(s.at(s.target))
	s.writer = make([]int32, s.target.n)
	for i := range s.writer {
		s.writer[i] = -1
	}
	s.localFree = []slot{{0, s.local.n}}
	s.recvFree = []slot{{0, s.recv.n}}
	s.localReg = s.register(s.local, accessLocal)
	s.recvReg = s.register(s.recv, accessLocal)
	s.registerTarget()
	s.readonlyReg = s.register(s.readonly, accessRead|w.bindable())
	if pair == 0 {
		s.sharedReg = s.register(s.shared, accessAll)
	}
	s.budget = 4 + w.rng.IntN(40)
	return s
}

func nodeIndex(w *world, n *simNode) int {
	if n == w.nodes[1] {
		return 1
	}
	return 0
}

func (s *side) at(sp span) []byte { return s.backing[sp.off:][:sp.n] }

func (s *side) register(sp span, access ib.Access) *memreg.Region {
	reg, err := s.ep.on.register(s.ep.on.pd, s.at(sp), uint64(s.w.rng.Uint32())<<12, access)
	if err != nil {
		s.w.fail("register: %v", err)
	}
	return reg
}

func fillRandom(w *world, b []byte) {
	for i := 0; i < len(b); i += 8 {
		v := w.rng.Uint64()
		for j := i; j < min(i+8, len(b)); j++ {
			b[j] = byte(v)
			v >>= 8
		}
	}
}

// allocate takes n bytes off a free list; the caller frees them with release.
func allocate(free *[]slot, n int) (slot, bool) {
	for i, f := range *free {
		if f.n >= n {
			(*free)[i] = slot{f.off + n, f.n - n}
			return slot{f.off, n}, true
		}
	}
	return slot{}, false
}

// release gives bytes back; neighbours are joined so that large pieces return.
func release(free *[]slot, sl slot) {
	for i := 0; i < len(*free); {
		f := (*free)[i]
		switch {
		case f.n == 0:
		case f.off == sl.off+sl.n:
			sl.n += f.n
		case sl.off == f.off+f.n:
			sl.off, sl.n = f.off, sl.n+f.n
		default:
			i++
			continue
		}
		*free = append((*free)[:i], (*free)[i+1:]...)
	}
	*free = append(*free, sl)
}

// scatter cuts n bytes into at most pieces slots, some of them empty.
func (s *side) scatter(free *[]slot, n, pieces int) ([]slot, bool) {
	var out []slot
	k := 1 + s.w.rng.IntN(pieces)
	for i := range k {
		part := n
		if i < k-1 {
			part = s.w.rng.IntN(n + 1)
		}
		sl, ok := allocate(free, part)
		if !ok {
			for _, sl := range out {
				release(free, sl)
			}
			return nil, false
		}
		out = append(out, sl)
		n -= part
	}
	return out, true
}

func sgeList(reg *memreg.Region, slots []slot) []ib.SGE {
	var sg []ib.SGE
	for _, sl := range slots {
		sg = append(sg, ib.SGE{Addr: reg.Addr() + uint64(sl.off), Length: uint32(sl.n), LKey: reg.LKey()})
	}
	return sg
}

// gather returns the bytes of slots in the memory m of this side.
func gather(m []byte, sp span, slots []slot) []byte {
	var out []byte
	for _, sl := range slots {
		out = append(out, m[sp.off+sl.off:][:sl.n]...)
	}
	return out
}

// spread writes b into slots of the memory m.
func spread(m []byte, sp span, slots []slot, b []byte) {
	for _, sl := range slots {
		n := copy(m[sp.off+sl.off:][:sl.n], b)
		b = b[n:]
	}
}

// act is the application of this side: it posts receives and requests, and
// brings the faults about.
func (s *side) act() {
	w := s.w
	if s.ep.closed {
		return
	}
	s.faultNow()
	if s.ep.closed {
		return
	}
	s.postRecvs()
	s.sqdStep()
	for range 1 + w.rng.IntN(6) {
		if s.budget == 0 || !s.postOp() {
			break
		}
	}
	w.touch(s.ep)
	sqd := s.broken == "" && (s.sqd == sqdDrained || s.sqd == sqdDraining)
	if s.budget > 0 || s.recvsMissing() || sqd {
		pause := clock.Time(w.rng.IntN(200000))
		if w.rng.IntN(20) == 0 {
			pause *= 100
		}
		w.push(event{at: w.now + pause, kind: eventAct, q: s.ep})
	}
}

// recvsMissing reports whether the peer still needs receives from this side.
func (s *side) recvsMissing() bool {
	p := s.peer
	if s.broken != "" || p.broken != "" || p.ep.closed {
		return false
	}
	if s.w.p.forge {
		return p.budget > 0 || p.next < len(p.ops)
	}
	o, _ := s.nextMessage()
	return p.budget > 0 || o != nil
}

func (s *side) postRecvs() {
	w := s.w
	for s.wantsRecv() {
		if w.rng.IntN(4) == 0 {
			return // be late now and then: RNR
		}
		n := w.p.maxSend
		short := w.p.fault == faultRecvTooSmall && !s.faulted && s.faultHere() && len(s.recvs) > 3
		if short {
			n /= 2
		}
		slots, ok := s.scatter(&s.recvFree, n, s.config.MaxRecvSGE)
		if !ok {
			return
		}
		wr := ib.RecvWR{ID: uint64(len(s.recvs)), SGList: sgeList(s.recvReg, slots)}
		queue, err := s.postRecv(&wr)
		if err != nil {
			w.fail("%s: PostRecv: %v", s.name, err)
		}
		s.faulted = s.faulted || short
		s.recvs = append(s.recvs, &recvOp{slots: slots, n: n, queue: queue})
	}
}

// postOp posts one random request; false when there is no room for it.
func (s *side) postOp() bool {
	w := s.w
	o := &op{kind: w.place(opKind(w.rng.IntN(int(numDrawn)))), signaled: w.rng.IntN(3) > 0 || s.budget == 1, solicited: w.rng.IntN(4) == 0, imm: w.rng.Uint32()}
	wr := ib.SendWR{ID: uint64(len(s.ops)), Opcode: kindOpcodes[o.kind], Signaled: o.signaled, Solicited: o.solicited, Imm: o.imm, Fence: w.rng.IntN(6) == 0}
	o.signaled, o.fence = o.signaled || s.config.SignalAll, wr.Fence
	switch {
	case o.kind.atomic() || o.kind == kindAtomicWrite:
		o.n = 8
	case o.kind == kindFlush:
	case o.kind.sends():
		o.n = s.length(w.p.maxSend)
	default:
		o.n = s.length(w.p.maxMsg)
	}
	inline := (o.kind.sends() || o.kind.writes()) && (o.n <= s.config.MaxInline || o.kind == kindAtomicWrite) && w.rng.IntN(2) == 0
	if !inline && o.kind != kindFlush {
		slots, ok := s.scatter(&s.localFree, o.n, s.config.MaxSendSGE)
		if !ok {
			return false
		}
		o.local = slots
		wr.SGList = sgeList(s.localReg, slots)
	}
	if o.kind.sends() || o.kind.writes() {
		o.data = make([]byte, o.n)
		fillRandom(w, o.data)
		if inline {
			wr.Inline = bytes.Clone(o.data)
		} else {
			spread(s.backing, s.local, o.local, o.data)
			spread(s.shadow, s.local, o.local, o.data)
		}
	}
	s.aim(o, &wr)
	s.aimXRC(o, &wr)
	s.spoil(o, &wr)
	err := s.ep.PostSend(&wr)
	for i := range wr.Inline {
		wr.Inline[i] = ^wr.Inline[i] // the QP must have its own copy
	}
	if err != nil {
		if !errors.Is(err, ib.ErrQueueFull) || len(s.ops)-s.next < s.config.MaxSendWR {
			w.fail("%s: PostSend with %d outstanding of %d: %v", s.name, len(s.ops)-s.next, s.config.MaxSendWR, err)
		}
		for _, sl := range o.local {
			release(&s.localFree, sl)
		}
		return false
	}
	w.tracef("%s post %d %v n=%d signaled=%v fence=%v fault=%v", s.name, wr.ID, wr.Opcode, o.n, o.signaled, wr.Fence, o.fault)
	s.apply(o, &wr)
	s.ops = append(s.ops, o)
	w.tally.ops[o.kind]++
	s.budget--
	return true
}

// length is a random length with a liking for the edges.
func (s *side) length(most int) int {
	r, m := s.w.rng, s.w.p.mtu.Bytes()
	switch r.IntN(6) {
	case 0:
		return 0
	case 1:
		return min(r.IntN(9), most)
	case 2:
		return min(max(m*(1+r.IntN(3))+r.IntN(3)-1, 0), most)
	case 3:
		return most
	}
	return r.IntN(most + 1)
}

// aim chooses the remote memory of a request.
func (s *side) aim(o *op, wr *ib.SendWR) {
	r, t := s.w.rng, s.peer.targetReg
	switch {
	case o.kind == kindSendInv:
		o.inv = ib.Key(r.Uint32())
		wr.InvalidateKey = o.inv
	case o.kind == kindFetchAdd && r.IntN(3) == 0:
		o.remote = -1
		shared := s.w.pairs[0][nodeIndex(s.w, s.peer.ep.on)].sharedReg
		wr.Remote = ib.RemoteAddr{Addr: shared.Addr(), RKey: shared.RKey()}
		wr.CompareAdd = 1
	case o.kind.atomic():
		o.remote = 8 * r.IntN(targetWords)
		wr.Remote = ib.RemoteAddr{Addr: t.Addr() + uint64(o.remote), RKey: t.RKey()}
		wr.CompareAdd, wr.Swap = r.Uint64(), r.Uint64()
		if r.IntN(2) == 0 {
			wr.CompareAdd = nativeLoad(s.peer.model[o.remote:])
		}
	case o.kind == kindFlush:
		s.aimFlush(o, wr)
		return
	case o.kind == kindAtomicWrite:
		o.remote = 8 * r.IntN(targetWords)
		wr.Remote = ib.RemoteAddr{Addr: t.Addr() + uint64(o.remote), RKey: t.RKey()}
	case o.kind == kindRead:
		o.remote = r.IntN(s.peer.target.n - o.n + 1)
		wr.Remote = ib.RemoteAddr{Addr: t.Addr() + uint64(o.remote), RKey: t.RKey()}
	case o.kind.writes():
		o.remote = targetWords*8 + r.IntN(s.peer.target.n-targetWords*8-o.n+1)
		wr.Remote = ib.RemoteAddr{Addr: t.Addr() + uint64(o.remote), RKey: t.RKey()}
	}
	if o.n == 0 && !o.kind.sends() && r.IntN(2) == 0 {
		wr.Remote = ib.RemoteAddr{Addr: r.Uint64(), RKey: ib.Key(r.Uint32())} // not looked at: IBTA 9.7.4.1.5
	}
}

// apply executes a posted request in the model of the peer's memory.
func (s *side) apply(o *op, wr *ib.SendWR) {
	p := s.peer
	switch {
	case o.fault.breaksResponder():
	case o.remote < 0:
		s.w.words[nodeIndex(s.w, p.ep.on)].posted++
	case o.kind.atomic():
		old := nativeLoad(p.model[o.remote:])
		o.want = old
		switch {
		// Both return the old value (IBTA 9.4.5).
		case o.kind == kindFetchAdd:
			nativeStore(p.model[o.remote:], old+wr.CompareAdd)
		case old == wr.CompareAdd:
			nativeStore(p.model[o.remote:], wr.Swap)
		}
		s.mark(o, len(s.ops))
	case o.kind.writes():
		copy(p.model[o.remote:], o.data)
		s.mark(o, len(s.ops))
	}
}

func (s *side) mark(o *op, index int) {
	for i := range o.n {
		s.peer.writer[o.remote+i] = int32(index)
	}
}
