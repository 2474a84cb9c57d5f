package memreg

import (
	"bytes"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

// Pieces are one memory: every part of it, across their borders.
func TestPieces(t *testing.T) {
	t.Parallel()
	a, b, c := aligned(24, 0), aligned(12, 0), aligned(20, 0)
	m := Pieces(a, nil, b, []byte{}, c)
	if m.Len() != 56 || m.Bytes() != nil {
		t.Fatalf("%d bytes", m.Len())
	}
	image := make([]byte, 56)
	for off := range 57 {
		for n := range 57 - off {
			src := bytes.Repeat([]byte{byte(off*57 + n)}, n)
			must(t, m.CopyIn(uint64(off), src))
			copy(image[off:], src)
			if got := bytes.Join([][]byte{a, b, c}, nil); !bytes.Equal(got, image) {
				t.Fatalf("%d bytes at %d", n, off)
			}
			got := make([]byte, n)
			must(t, m.CopyOut(got, uint64(off)))
			if !bytes.Equal(got, src) {
				t.Fatalf("read %d bytes at %d", n, off)
			}
		}
		if err := m.CopyIn(uint64(off), make([]byte, 57-off)); err != ib.FaultOutOfBounds {
			t.Errorf("%d bytes at %d: %v", 57-off, off, err)
		}
	}
	for off := range uint64(60) {
		want := ib.FaultMisaligned
		switch {
		case off > 48:
			want = ib.FaultOutOfBounds
		case off == 0 || off == 8 || off == 16 || off == 24 || off == 36 || off == 44:
			want = ib.FaultNone
		}
		if _, err := m.Load64(off); faultOf(err) != want {
			t.Errorf("load at %d: %v, want %v", off, err, want)
		}
		if err := m.Store64(off, off); faultOf(err) != want {
			t.Errorf("store at %d: %v, want %v", off, err, want)
		}
		if old, err := m.FetchAdd64(off, 1); faultOf(err) != want || want == ib.FaultNone && old != off {
			t.Errorf("add at %d: %v, want %v", off, err, want)
		}
		if old, err := m.CompareSwap64(off, off+1, 9); faultOf(err) != want || want == ib.FaultNone && old != off+1 {
			t.Errorf("swap at %d: %v, want %v", off, err, want)
		}
	}
	if m := Pieces(nil, a); m.Bytes() == nil {
		t.Error("a single piece is not local memory")
	}
	if Pieces().Len() != 0 {
		t.Error("no piece has bytes")
	}
}
