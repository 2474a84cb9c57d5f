package hca

import (
	"fmt"
	"sync"

	"github.com/gosoftroce/rocev2/memreg"
)

// ImplicitMR is an implicit on-demand region: one key for all memory that the
// program allows, now and later.
type ImplicitMR struct {
	mr  *MR
	mem *memreg.Implicit

	mu   sync.Mutex
	held map[uint64]func() error // gives back what is allowed, by its address
}

// RegisterImplicit registers the whole address space, of which nothing is
// allowed.
func (pd *PD) RegisterImplicit(o memreg.Options) (*ImplicitMR, error) {
	m := &ImplicitMR{mem: memreg.NewImplicit(), held: map[uint64]func() error{}}
	o.Base, o.IOVA = memreg.BaseIOVA, 0
	mr, err := pd.Register(m.mem, o, m.giveBack)
	if err != nil {
		return nil, err
	}
	m.mr = mr
	return m, nil
}

// Region returns the region as the wire knows it.
func (m *ImplicitMR) Region() *memreg.Region { return m.mr.Region() }

// Close deregisters the region, as MR.Close.
func (m *ImplicitMR) Close() error { return m.mr.Close() }

// giveBack ends what is allowed when the region is gone.
func (m *ImplicitMR) giveBack() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var err error
	for addr := range m.held {
		giveBack, e := m.revoke(addr)
		if e == nil {
			e = giveBack()
		}
		if err == nil {
			err = e
		}
	}
	return err
}

// Allow lets addresses from addr on stand for mem, until Forbid or Close.
func (m *ImplicitMR) Allow(addr uint64, mem memreg.Memory) error {
	return m.allow(addr, mem, func() error { return nil })
}

// AllowRegion lets the addresses of a region stand for its memory, which stays
// until Forbid or Close even if that region is closed.
func (m *ImplicitMR) AllowRegion(mr *MR) error {
	mr.closing.mu.Lock()
	defer mr.closing.mu.Unlock()
	if mr.closing.done {
		return ErrClosed
	}
	r, b := mr.Region(), mr.backing
	b.users.Add(1)
	err := m.allow(r.Addr(), r.Memory(), b.release)
	if err != nil {
		b.users.Add(-1) // not the last: mr is there
	}
	return err
}

func (m *ImplicitMR) allow(addr uint64, mem memreg.Memory, release func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.Region().Alive() {
		return ErrClosed
	}
	if err := m.mem.Allow(addr, mem); err != nil {
		return err
	}
	m.held[addr] = release
	return nil
}

// Forbid takes back what was allowed from addr on. When it returns nothing
// touches the memory through the region any more. Others may allow and forbid
// while it waits for pages.
func (m *ImplicitMR) Forbid(addr uint64) error {
	m.mu.Lock()
	giveBack, err := m.revoke(addr)
	m.mu.Unlock()
	if err != nil {
		return err
	}
	return giveBack()
}

// revoke takes addr off the list and returns how to give its memory back. The
// caller holds mu.
func (m *ImplicitMR) revoke(addr uint64) (giveBack func() error, err error) {
	fetching, ok := m.mem.Revoke(addr)
	if !ok {
		return nil, fmt.Errorf("%w: nothing is allowed from address %#x on", memreg.ErrAddress, addr)
	}
	release := m.held[addr]
	delete(m.held, addr)
	return func() error {
		m.mr.dev.pager.await(fetching)
		return release()
	}, nil
}

// Prefetch brings n bytes at off of the region into memory, if they may be
// elsewhere, and waits for them.
func (mr *MR) Prefetch(off, n uint64, write bool) error {
	r := mr.Region()
	if !mr.dev.pager.fetch(memreg.Missing{Region: r, Off: off, Len: n, Write: write}) {
		return ErrClosed
	}
	return nil
}
