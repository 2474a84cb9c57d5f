package qptest

import (
	"bytes"
	"math/rand/v2"
	"slices"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// ATOMIC WRITEs and FLUSHes of the worlds. They draw from numbers of their own,
// and the worlds of seeds that found a bug have none, so that those stay what
// they were.

// choosePlaced has a third of the worlds do ATOMIC WRITEs and FLUSHes.
func (w *world) choosePlaced() {
	if w.seed%3 == 1 && !slices.Contains(foundSeeds, w.seed) {
		w.placed = rand.New(rand.NewPCG(w.seed, 0xf1a5))
	}
}

// place makes some requests ATOMIC WRITEs and FLUSHes.
func (w *world) place(k opKind) opKind {
	if w.placed != nil {
		switch w.placed.IntN(8) {
		case 0, 1:
			return kindAtomicWrite
		case 2:
			return kindFlush
		}
	}
	return k
}

// worldDisk is memory that has a disk after it.
type worldDisk struct {
	memreg.Memory
	stored []byte
}

func (d *worldDisk) Persistent() bool { return true }

func (d *worldDisk) Persist(off, n uint64) error {
	copy(d.stored[off:off+n], d.Bytes()[off:off+n])
	return nil
}

// registerTarget registers what the peer writes to and reads from.
func (s *side) registerTarget() {
	if s.w.placed == nil {
		s.targetReg = s.register(s.target, accessAll|s.w.bindable())
		return
	}
	s.disk = &worldDisk{Memory: memreg.Local(s.at(s.target)), stored: bytes.Clone(s.at(s.target))}
	o := memreg.Options{Access: accessAll | accessFlushGlobal | accessFlushPersistent | s.w.bindable(), Base: memreg.BaseIOVA, IOVA: uint64(s.w.rng.Uint32()) << 12}
	reg, err := s.ep.on.table.Register(s.ep.on.pd, s.disk, o)
	if err != nil {
		s.w.fail("register: %v", err)
	}
	s.targetReg = reg
}

// aimFlush chooses what a FLUSH is about.
func (s *side) aimFlush(o *op, wr *ib.SendWR) {
	r, t, n := s.w.placed, s.peer.targetReg, s.peer.target.n
	wr.FlushType = rocev2.FlushType(1 + r.IntN(3))
	wr.Remote.RKey = t.RKey()
	if r.IntN(4) == 0 {
		wr.FlushLevel = rocev2.FlushRegion
		o.flush = span{0, n}
	} else {
		o.flush.off = r.IntN(n)
		o.flush.n = r.IntN(n - o.flush.off + 1)
		wr.Remote.Addr, wr.Length = t.Addr()+uint64(o.flush.off), uint32(o.flush.n)
	}
	if wr.FlushType&rocev2.FlushPersistent == 0 {
		o.flush = span{}
	}
}

// checkFlushed checks that the disk has what a FLUSH is about, except where a
// later request may have written and been brought there.
func (s *side) checkFlushed(id int) {
	o, p := s.ops[id], s.peer
	for j := o.flush.off; j < o.flush.off+o.flush.n; j++ {
		if p.writer[j] < int32(id) && p.disk.stored[j] != p.model[j] {
			s.w.fail("%s: byte %d is not on the disk after FLUSH %d", s.name, j, id)
		}
	}
}

// onFetch has what a queue pair waits for take some time.
func (w *world) onFetch(q *simQP, f qp.Fetch) {
	w.push(event{at: w.now + clock.Time(w.placed.IntN(500_000)), kind: eventFetched, q: q, fetch: f})
}

func (w *world) onFetched(q *simQP, f qp.Fetch) {
	f.Fault = ib.FaultGone
	if f.Region.Alive() {
		f.Fault = f.Fetch()
	}
	w.tally.persisted++
	w.tracef("%s persisted %d bytes at %d: %v", q.model.name, f.Len, f.Off, f.Fault)
	if !q.closed {
		q.Fetched(w.now, f)
		w.touch(q)
	}
}
