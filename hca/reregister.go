package hca

import (
	"github.com/gosoftroce/rocev2/memreg"
)

// Reregistration says what Reregister changes.
type Reregistration struct {
	PD      *PD                     // nil: the same
	Memory  memreg.Memory           // nil: the same
	Free    func() error            // gives Memory back, or nil
	Options func(o *memreg.Options) // changes those of the region; nil: none
	Done    func()                  // is called when it is done, before another; nil: none

	KeepKeys bool // the region keeps its keys
}

// Reregister changes a region (IBTA 11.2.8.5). It has new keys then, unless
// KeepKeys is set, and nothing uses the old ones any more. On an error the
// region is as it was.
func (mr *MR) Reregister(c Reregistration) error {
	mr.closing.mu.Lock()
	defer mr.closing.mu.Unlock()
	if mr.closing.done {
		return ErrClosed
	}
	old, from, to := mr.Region(), mr.pd, mr.pd
	m, o := old.Memory(), old.Options()
	if c.PD != nil {
		to = c.PD
	}
	if c.Memory != nil {
		m = c.Memory
	}
	if c.Options != nil {
		c.Options(&o)
	}
	if err := to.owner.usableBy(from.owner); err != nil {
		return err
	}
	m = to.owner.dev.checks.register(m, &o)
	if err := checkRegion(to.owner.dev.limits, m); err != nil {
		return err
	}
	next, err := to.takeOver(mr, old, m, o, c.KeepKeys)
	if err != nil {
		return err
	}
	d := from.owner.dev
	d.pager.leave(old)
	mr.region.Store(next)
	mr.pd = to
	if c.Done != nil {
		c.Done()
	}
	if to != from {
		from.mu.Lock()
		delete(from.regions, mr)
		from.mu.Unlock()
	}
	if c.Memory != nil {
		b := mr.backing
		mr.backing = newBacking(c.Free)
		return b.release()
	}
	return nil
}

// takeOver registers a region of this domain or another anew, in this domain.
func (pd *PD) takeOver(mr *MR, old *memreg.Region, m memreg.Memory, o memreg.Options, keepKeys bool) (next *memreg.Region, err error) {
	pd.mu.Lock()
	defer pd.mu.Unlock()
	if pd.closed {
		return nil, ErrClosed
	}
	d := pd.owner.dev
	d.mu.Lock()
	if keepKeys {
		next, err = d.mem.Replace(old, pd.core, m, o)
	} else {
		next, err = d.mem.Reregister(old, pd.core, m, o)
	}
	d.mu.Unlock()
	if err == nil {
		pd.regions[mr] = struct{}{}
	}
	return next, err
}

// Share registers the memory of a region once more (IBTA 11.2.8.6), in pd and
// with options of its own. The memory is given back when both have gone.
func (mr *MR) Share(pd *PD, o memreg.Options) (*MR, error) {
	mr.closing.mu.Lock()
	defer mr.closing.mu.Unlock()
	if mr.closing.done {
		return nil, ErrClosed
	}
	b := mr.backing
	b.users.Add(1)
	other, err := pd.register(mr.Region().Memory(), o, b)
	if err != nil {
		b.users.Add(-1) // not the last: mr is there
	}
	return other, err
}
