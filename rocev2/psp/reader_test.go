package psp

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// TestReaderOfForgedGenerations has packets of random generations that no key
// opens: each costs a derivation, and not all those before it. What is kept is
// bounded, and honest packets open among them.
func TestReaderOfForgedGenerations(t *testing.T) { // not parallel: it counts allocations
	const first = 9
	for _, opened := range []bool{false, true} {
		reader, err := NewReader(GCM128, first, make([]byte, 16))
		if err != nil {
			t.Fatal(err)
		}
		chain := newChain(t, GCM128, make([]byte, 16))
		for range 100 {
			chain.Next()
		}
		honest := seals(chain.Key(first), Later(first, 100))
		if opened {
			if _, _, err := reader.Open(nil, honest); err != nil {
				t.Fatal(err)
			}
		}
		forged := append([]byte{}, honest...)
		forged[len(forged)-1] ^= 1
		r := rand.New(rand.NewPCG(1, 1))
		open := func() {
			forged[4] = byte(r.Uint32()) & 0x7f
			if _, _, err := reader.Open(nil, forged); !errors.Is(err, ErrICV) {
				t.Error(err)
			}
		}
		for range 1000 {
			open()
		}
		if got := len(reader.chains); got > 128 {
			t.Errorf("%d secrets are kept", got)
		}
		// Deriving all keys before it would allocate hundreds of times.
		if got := testing.AllocsPerRun(1000, open); got > 40 {
			t.Errorf("opened %t: a forged packet costs %v allocations", opened, got)
		}
		if _, _, err := reader.Open(nil, honest); err != nil {
			t.Errorf("opened %t, and an honest packet: %v", opened, err)
		}
	}
}

// TestReader has packets of 1000 generations, some of them late, others
// missing, and forged ones of any generation among them.
func TestReader(t *testing.T) {
	t.Parallel()
	const first = 0x7d000009
	for _, begin := range []int{0, 1, 100, 127} {
		r := rand.New(rand.NewPCG(uint64(begin), 1))
		reader, err := NewReader(GCM128, first, make([]byte, 16))
		if err != nil {
			t.Fatal(err)
		}
		chain := newChain(t, GCM128, make([]byte, 16))
		var before [][]byte // by how many generations they are late
		opens := func(why string, packet []byte, want error) {
			t.Helper()
			h, plain, err := reader.Open(nil, packet)
			if !errors.Is(err, want) || want == nil && (len(plain) != 16 || h.IV != 1) || want != nil && plain != nil {
				t.Fatalf("begun at %d, %s, generation %d: %+v, %x, %v", begin, why, chain.Generation(), h, plain, err)
			}
		}
		for g := 0; g < 1000; g++ {
			packet := seals(chain.Key(first), Later(first, uint64(g)))
			if g >= begin && (g == begin || r.IntN(4) > 0) {
				for range 3 {
					forged := append([]byte{}, packet...)
					forged[len(forged)-1] ^= 1
					forged[4] = byte(r.Uint32())
					opens("forged", forged, ErrICV)
				}
				opens("in turn", packet, nil)
				opens("again", packet, nil)
				for i, p := range before {
					if p != nil {
						opens("late", p, map[bool]error{false: nil, true: ErrICV}[i >= 8])
					}
				}
				before = append([][]byte{packet}, before...)
			} else {
				before = append([][]byte{nil}, before...)
			}
			before = before[:min(len(before), 12)]
			if g > begin && r.IntN(50) == 0 { // missing
				for n := r.IntN(60); n > 0; n-- {
					chain.Next()
					g++
				}
				before = nil
			}
			chain.Next()
		}
		opens("old", seals(newChain(t, GCM128, make([]byte, 16)).Key(first), first), ErrICV)
		opens("of another number", seals(chain.Key(first), first+1), ErrICV)
		opens("of one key", seals(chain.Key(first), first|SecondMaster), ErrICV)
		opens("short", make([]byte, 8), ErrShort)
	}
	if _, err := NewReader(GCM256, first, make([]byte, 16)); err == nil {
		t.Error("a key that is too short")
	}
}
