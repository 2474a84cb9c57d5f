package hca

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

// PD is a protection domain.
type PD struct {
	owner *Context
	core  *memreg.PD

	mu      sync.Mutex
	closed  bool
	regions map[*MR]struct{}       // those that are not deregistered yet
	handles map[io.Closer]struct{} // address handles that are open
	srqs    map[failing]struct{}
	windows map[io.Closer]struct{}
	fasts   map[io.Closer]struct{}

	closing closing
}

// failing is a shared receive queue, which lives on without its domain.
type failing interface{ fail() }

// MR is a registered memory region.
type MR struct {
	dev    *Device
	region atomic.Pointer[memreg.Region] // Reregister replaces it

	closing closing
	pd      *PD // and what follows: guarded by closing
	backing *backing
}

// closing is a Close that is done once, unless it was refused: then it can be
// tried again.
type closing struct {
	mu   sync.Mutex
	done bool
	err  error // of the Close that was done
}

// do calls f unless it is done. Callers wait for each other.
func (c *closing) do(f func() (done bool, err error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return c.err
	}
	c.done, c.err = f()
	return c.err
}

// AllocPD makes a protection domain.
func (c *Context) AllocPD() (*PD, error) {
	pd := &PD{owner: c, core: c.dev.mem.AllocPD(), regions: map[*MR]struct{}{}, handles: map[io.Closer]struct{}{}, srqs: map[failing]struct{}{},
		windows: map[io.Closer]struct{}{}, fasts: map[io.Closer]struct{}{}}
	if err := c.adopt(pd, kindPD); err != nil {
		return nil, err
	}
	return pd, nil
}

// Context returns the context that the domain was made through.
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

// Close deregisters what is registered in the domain, destroys its address
// handles, and frees it. A queue pair of the domain lives on and reaches no
// memory; a shared receive queue raises EventSRQError and takes no more
// receives. The error is that of giving memory back; the domain is freed all
// the same, unless a region has other grants (memreg.ErrRegionInUse). Then
// Close can be called again. A call beside another, or beside the Close of a
// region, returns when all is done.
func (pd *PD) Close() error { return pd.closing.do(pd.close) }

func (pd *PD) close() (done bool, err error) {
	pd.mu.Lock()
	pd.closed = true
	left := slices.Collect(maps.Keys(pd.regions))
	handles := slices.Collect(maps.Keys(pd.handles))
	srqs := slices.Collect(maps.Keys(pd.srqs))
	windows := slices.Collect(maps.Keys(pd.windows))
	fasts := slices.Collect(maps.Keys(pd.fasts))
	pd.mu.Unlock()
	for _, s := range srqs {
		s.fail()
	}
	var errs []error
	for _, h := range handles {
		errs = append(errs, h.Close())
	}
	for _, mw := range windows { // before the regions that they are on
		errs = append(errs, mw.Close())
	}
	for _, f := range fasts {
		errs = append(errs, f.Close())
	}
	for _, mr := range left {
		errs = append(errs, mr.Close())
	}
	pd.mu.Lock()
	inUse := len(pd.regions)+len(pd.fasts) > 0
	pd.mu.Unlock()
	if inUse {
		return false, errors.Join(errs...)
	}
	d := pd.owner.dev
	d.mu.Lock()
	errs = append(errs, d.mem.DeallocPD(pd.core))
	d.mu.Unlock()
	pd.owner.release(pd, kindPD)
	return true, errors.Join(errs...)
}

// Register registers memory. free, if not nil, is called once when the region
// has been deregistered, or at once when Register fails.
func (pd *PD) Register(m memreg.Memory, o memreg.Options, free func() error) (*MR, error) {
	mr, err := pd.register(m, o, newBacking(free))
	if err != nil && free != nil {
		free()
	}
	return mr, err
}

func (pd *PD) register(m memreg.Memory, o memreg.Options, b *backing) (*MR, error) {
	if err := checkRegion(pd.owner.dev.limits, m); err != nil {
		return nil, err
	}
	m = pd.owner.dev.checks.register(m, &o)
	mr := &MR{dev: pd.owner.dev, pd: pd, backing: b}
	err := pd.make(kindMR, func(t *memreg.Table) error {
		region, err := t.Register(pd.core, m, o)
		if err == nil {
			mr.region.Store(region)
			pd.regions[mr] = struct{}{}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return mr, nil
}

// checkRegion checks how long a region is to be. Without a profile it may be as
// long as can be.
func checkRegion(most ib.Limits, m memreg.Memory) error {
	if m == nil || most.MRSize >= ib.OwnLimits.MRSize {
		return nil
	}
	if n := m.Len(); n > most.MRSize {
		return fmt.Errorf("%w: a memory region has at most %d bytes; this one would have %d", ErrNoResources, most.MRSize, n)
	}
	return nil
}

// Region returns the region as the wire knows it.
func (mr *MR) Region() *memreg.Region { return mr.region.Load() }

// Close deregisters the region: its keys are dead at once, and when Close
// returns no transfer touches the memory any more. It waits for pages that are
// being fetched. A region with other grants stays as it is
// (memreg.ErrRegionInUse), and Close can be called again.
func (mr *MR) Close() error { return mr.closing.do(mr.close) }

func (mr *MR) close() (done bool, err error) {
	pd := mr.pd
	d := pd.owner.dev
	d.mu.Lock()
	err = d.mem.Deregister(mr.Region())
	d.mu.Unlock()
	if err != nil {
		return false, err // its memory must stay
	}
	d.pager.leave(mr.Region())
	pd.mu.Lock()
	delete(pd.regions, mr) // now: the domain's Close waits for those it finds
	pd.mu.Unlock()
	pd.owner.unreserve(kindMR)
	return true, mr.backing.release()
}

// make counts an object of kind k, and has f make it with the locks held.
func (pd *PD) make(k kind, f func(t *memreg.Table) error) error {
	d := pd.owner.dev
	if err := pd.owner.reserve(k); err != nil {
		return err
	}
	pd.mu.Lock()
	defer pd.mu.Unlock()
	err := ErrClosed
	if !pd.closed {
		d.mu.Lock()
		err = f(d.mem)
		d.mu.Unlock()
	}
	if err != nil {
		pd.owner.unreserve(k)
	}
	return err
}

// backing is the memory of regions, which is given back when the last of them
// has gone.
type backing struct {
	users atomic.Int32
	free  func() error // or nil
}

func newBacking(free func() error) *backing {
	b := &backing{free: free}
	b.users.Store(1)
	return b
}

// release says that one region has gone.
func (b *backing) release() error {
	if b.users.Add(-1) == 0 && b.free != nil {
		return b.free()
	}
	return nil
}
