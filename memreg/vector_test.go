package memreg

import (
	"bytes"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

// vectorOf is a foreign memory that takes vectors.
type vectorOf struct {
	*foreign
	calls int
}

func (m *vectorOf) CopyInV(off uint64, src [][]byte) error {
	m.calls++
	return m.CopyIn(off, bytes.Join(src, nil))
}

// TestVector: a view writes buffers with one call where the memory has one, and
// one by one elsewhere. Bounds and rights are those of CopyIn.
func TestVector(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	v := &vectorOf{foreign: newForeign(32)}
	for _, c := range []struct {
		name              string
		m                 Memory
		vector, placeable bool
	}{
		{"local", Local(make([]byte, 32)), false, true},
		{"foreign", newForeign(32), false, false},
		{"vector", v, true, true},
	} {
		r := mustRegister(t, tab, pd, c.m, Options{Access: ib.LocalWrite, Base: BaseIOVA, IOVA: 1 << 32})
		view, f := tab.ResolveLocal(pd, r.SGE(4, 20), ib.LocalWrite)
		if f != ib.FaultNone {
			t.Fatal(f)
		}
		if view.Vector() != c.vector || view.Placeable() != c.placeable {
			t.Errorf("%s: vector %v, placeable %v", c.name, view.Vector(), view.Placeable())
		}
		part := view.Part(2, 10)
		if part.Len() != 10 || part.Addr() != view.Addr()+2 {
			t.Errorf("%s: part of %d bytes at %#x", c.name, part.Len(), part.Addr())
		}
		if f := part.CopyInV(1, [][]byte{[]byte("ab"), nil, []byte("cdefghi")}, 9); f != ib.FaultNone {
			t.Errorf("%s: %v", c.name, f)
		}
		got := make([]byte, 32)
		if err := c.m.CopyOut(got, 0); err != nil || string(got) != "\x00\x00\x00\x00\x00\x00\x00abcdefghi"+string(make([]byte, 16)) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
		if f := part.CopyInV(2, [][]byte{[]byte("ab"), []byte("cdefghi")}, 9); f != ib.FaultOutOfBounds {
			t.Errorf("%s: beyond the end: %v", c.name, f)
		}
		view.Release()
		if n := pinsOf(r); n != 0 {
			t.Errorf("%s: %d pins", c.name, n)
		}
	}
	if v.calls != 1 {
		t.Errorf("%d calls", v.calls)
	}
	v.good = 8
	r := mustRegister(t, tab, pd, v, Options{Access: ib.LocalWrite, Base: BaseIOVA, IOVA: 1 << 33})
	view, _ := tab.ResolveLocal(pd, r.SGE(0, 32), ib.LocalWrite)
	defer view.Release()
	if f := view.CopyInV(0, [][]byte{make([]byte, 9)}, 9); f != ib.FaultMemory {
		t.Errorf("memory that has gone: %v", f)
	}
	if (View{}).Placeable() || (View{}).Vector() {
		t.Error("the zero view has memory")
	}
}
