package heap

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// A random mix of pushes and pops agrees with a list that is kept sorted; equal
// keys leave in the order in which they came.
func TestAgreesWithSortedList(t *testing.T) {
	t.Parallel()
	type item struct{ key, value int }
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var h Heap[int, int]
		var list []item
		for i := range 2000 {
			if len(list) > 0 && rng.IntN(5) < 2 {
				if k, ok := h.Min(); !ok || k != list[0].key {
					t.Fatalf("seed %d, step %d: the least key is %d, %v, want %d", seed, i, k, ok, list[0].key)
				}
				if k, v := h.Pop(); k != list[0].key || v != list[0].value {
					t.Fatalf("seed %d, step %d: %d, %d leaves, want %v", seed, i, k, v, list[0])
				}
				list = list[1:]
				continue
			}
			k := rng.IntN(100)
			h.Push(k, i)
			list = append(list, item{k, i})
			slices.SortStableFunc(list, func(a, b item) int { return cmp.Compare(a.key, b.key) })
		}
		if h.Len() != len(list) {
			t.Fatalf("seed %d: %d values, want %d", seed, h.Len(), len(list))
		}
		h.Clear()
		if _, ok := h.Min(); ok || h.Len() != 0 {
			t.Fatalf("seed %d: a cleared heap has %d values", seed, h.Len())
		}
	}
}

// A heap that has had its largest size takes no more memory, and refers to
// nothing that has left it.
func TestNoAllocations(t *testing.T) {
	var h Heap[int64, *int]
	value := new(int)
	fill := func() {
		for i := range 100 {
			h.Push(int64(i*37%100), value)
		}
		for h.Len() > 0 {
			h.Pop()
		}
	}
	fill()
	if n := testing.AllocsPerRun(10, fill); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for i, e := range h.entries[:cap(h.entries)] {
		if e.value != nil {
			t.Errorf("place %d still refers to a value", i)
		}
	}
}

// BenchmarkTimers is a program with 1000 timers of which the earliest is set
// anew.
func BenchmarkTimers(b *testing.B) {
	var h Heap[int64, *int]
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		h.Push(rng.Int64N(1<<20), nil)
	}
	b.ReportAllocs()
	for b.Loop() {
		k, v := h.Pop()
		h.Push(k+rng.Int64N(1<<20), v)
	}
}
