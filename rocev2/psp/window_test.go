package psp

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testshort"
)

// model is a Window as a set.
type model struct {
	newest uint64
	seen   map[uint64]bool
}

func (m *model) take(iv uint64) Verdict {
	switch {
	case iv == 0 || m.newest >= WindowSize && iv <= m.newest-WindowSize:
		return Stale
	case m.seen[iv]:
		return Replay
	}
	m.seen[iv] = true
	m.newest = max(m.newest, iv)
	return Fresh
}

func TestWindow(t *testing.T) {
	t.Parallel()
	for seed := range testshort.Rounds[uint64](20) {
		r := rand.New(rand.NewPCG(seed, 1))
		var w Window
		m := model{seen: map[uint64]bool{}}
		next := uint64(1)
		if seed%4 == 3 {
			next = math.MaxUint64 - 50_000 // up to the last one
		}
		for range 30_000 {
			iv := next
			switch r.IntN(10) {
			case 0, 1, 2:
				iv -= min(next, r.Uint64N(2*WindowSize)) // late, or again
			case 3:
				if next < math.MaxUint64-10*WindowSize {
					next += r.Uint64N(3 * WindowSize) // many are lost
					iv = next
				}
			}
			look, want := w.Look(iv), m.take(iv)
			if got := w.Take(iv); got != want || look != want {
				t.Fatalf("seed %d: IV %d, newest %d: looked at %d, taken %d, want %d", seed, iv, m.newest, look, got, want)
			}
			if next < math.MaxUint64 {
				next++
			}
		}
	}
}

// TestLookMovesNothing looks at an IV far ahead, as of a forged packet.
func TestLookMovesNothing(t *testing.T) {
	t.Parallel()
	var w Window
	w.Take(5)
	if w.Look(math.MaxUint64) != Fresh || w.Look(6) != Fresh || w.Look(5) != Replay || w.newest != 5 {
		t.Errorf("Look moved the window to %d", w.newest)
	}
}
