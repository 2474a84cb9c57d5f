package memreg

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

// newTable returns a table with repeatable keys.
func newTable(seed uint64) *Table {
	return NewTable(rand.New(rand.NewPCG(seed, 1)).Uint32)
}

func mustRegister(t testing.TB, tab *Table, pd *PD, m Memory, o Options) *Region {
	t.Helper()
	r, err := tab.Register(pd, m, o)
	if err != nil {
		t.Fatalf("Register: %v", err)
	}
	return r
}

func wantFault(t testing.TB, why string, got, want ib.Fault) {
	t.Helper()
	if got != want {
		t.Errorf("%s: fault %q, want %q", why, got, want)
	}
}

// pinsOf counts the pins on the region's own grants.
func pinsOf(r *Region) int {
	return int(r.local.pins.Load()&^dead + r.remote.pins.Load()&^dead)
}

// mustDeregister deregisters a region that has no grants but its own.
func mustDeregister(t testing.TB, tab *Table, r *Region) {
	t.Helper()
	if err := tab.Deregister(r); err != nil {
		t.Errorf("Deregister: %v", err)
	}
}

var errTorn = errors.New("the owner unmapped it")

// foreign is memory that can only be copied: it hides its bytes, and beyond
// good bytes every access faults.
type foreign struct {
	m    Memory
	good uint64
	err  error
	n    int // calls
}

func newForeign(size int) *foreign {
	return &foreign{m: Local(make([]byte, size)), good: uint64(size), err: errTorn}
}

func (m *foreign) at(off, n uint64) error {
	m.n++
	if off+n > m.good {
		return m.err
	}
	return nil
}

func (m *foreign) Len() uint64   { return m.m.Len() }
func (m *foreign) Bytes() []byte { return nil }

func (m *foreign) CopyIn(off uint64, src []byte) error {
	if err := m.at(off, uint64(len(src))); err != nil {
		return err
	}
	return m.m.CopyIn(off, src)
}

func (m *foreign) CopyOut(dst []byte, off uint64) error {
	if err := m.at(off, uint64(len(dst))); err != nil {
		return err
	}
	return m.m.CopyOut(dst, off)
}

func (m *foreign) Load64(off uint64) (uint64, error) {
	if err := m.at(off, 8); err != nil {
		return 0, err
	}
	return m.m.Load64(off)
}

func (m *foreign) Store64(off, v uint64) error {
	if err := m.at(off, 8); err != nil {
		return err
	}
	return m.m.Store64(off, v)
}

func (m *foreign) CompareSwap64(off, compare, swap uint64) (uint64, error) {
	if err := m.at(off, 8); err != nil {
		return 0, err
	}
	return m.m.CompareSwap64(off, compare, swap)
}

func (m *foreign) FetchAdd64(off, add uint64) (uint64, error) {
	if err := m.at(off, 8); err != nil {
		return 0, err
	}
	return m.m.FetchAdd64(off, add)
}

// readOnly is local memory that must not be written.
type readOnly struct{ Memory }

func (readOnly) ReadOnly() bool { return true }
