package hca

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/gosoftroce/rocev2/memreg"
)

// PD is a protection domain.
type PD struct {
	owner *Context
	core  *memreg.PD

	mu      sync.Mutex
	closed  bool
	regions map[*MR]struct{} // those that are not deregistered yet

	once sync.Once
	err  error
}

// MR is a registered memory region.
type MR struct {
	pd     *PD
	region *memreg.Region
	free   func() error // gives the memory back, or nil
	once   sync.Once
	err    error
}

// AllocPD makes a protection domain.
func (o *Context) AllocPD() (*PD, error) {
	pd := &PD{owner: o, core: o.dev.mem.AllocPD(), regions: map[*MR]struct{}{}}
	if err := o.adopt(pd, kindPD); err != nil {
		return nil, err
	}
	return pd, nil
}

// Context returns the owner of the domain.
func (pd *PD) Context() *Context { return pd.owner }

// Device returns the device of the domain.
func (pd *PD) Device() *Device { return pd.owner.dev }

// Core returns the domain as queue pairs know it.
func (pd *PD) Core() *memreg.PD { return pd.core }

// Closed reports whether the domain has been closed.
func (pd *PD) Closed() bool {
	pd.mu.Lock()
	defer pd.mu.Unlock()
	return pd.closed
}

// Close deregisters what is registered in the domain and frees it. A queue pair
// of the domain lives on and reaches no memory. The error is that of giving
// memory back; the domain is freed all the same. Whoever calls it beside
// another, or beside the Close of a region, returns when all is done.
func (pd *PD) Close() error {
	pd.once.Do(func() {
		pd.mu.Lock()
		pd.closed = true
		left := slices.Collect(maps.Keys(pd.regions))
		pd.mu.Unlock()
		var errs []error
		for _, mr := range left {
			errs = append(errs, mr.Close())
		}
		d := pd.owner.dev
		d.mu.Lock()
		errs = append(errs, d.mem.DeallocPD(pd.core))
		d.mu.Unlock()
		pd.owner.release(pd, kindPD)
		pd.err = errors.Join(errs...)
	})
	return pd.err
}

// Register registers memory. free, if not nil, is called once when the region
// has been deregistered, or at once when Register fails.
func (pd *PD) Register(m memreg.Memory, o memreg.Options, free func() error) (*MR, error) {
	mr, err := pd.register(m, o, free)
	if err != nil && free != nil {
		free()
	}
	return mr, err
}

func (pd *PD) register(m memreg.Memory, o memreg.Options, free func() error) (*MR, error) {
	d := pd.owner.dev
	if err := pd.owner.reserve(kindMR); err != nil {
		return nil, err
	}
	pd.mu.Lock()
	defer pd.mu.Unlock()
	if pd.closed {
		pd.owner.unreserve(kindMR)
		return nil, ErrClosed
	}
	d.mu.Lock()
	region, err := d.mem.Register(pd.core, m, o)
	d.mu.Unlock()
	if err != nil {
		pd.owner.unreserve(kindMR)
		return nil, err
	}
	mr := &MR{pd: pd, region: region, free: free}
	pd.regions[mr] = struct{}{}
	return mr, nil
}

// Region returns the region as the wire knows it.
func (mr *MR) Region() *memreg.Region { return mr.region }

// Close deregisters the region: its keys are dead at once, and when Close
// returns no transfer touches the memory any more. It waits for pages that are
// being fetched.
func (mr *MR) Close() error {
	mr.once.Do(func() {
		pd := mr.pd
		d := pd.owner.dev
		d.mu.Lock()
		mr.err = d.mem.Deregister(mr.region)
		d.mu.Unlock()
		if mr.err != nil {
			return // the region is in use: its memory must stay
		}
		d.pager.leave(mr.region)
		pd.mu.Lock()
		delete(pd.regions, mr) // now: the domain's Close waits for those it finds
		pd.mu.Unlock()
		pd.owner.unreserve(kindMR)
		if mr.free != nil {
			mr.err = mr.free()
		}
	})
	return mr.err
}
