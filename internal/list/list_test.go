package list

import (
	"math/rand/v2"
	"slices"
	"testing"
)

type item struct {
	n     int
	place Element[item]
}

// A list does what a slice does.
func TestListIsASlice(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var l List[item]
		var want []*item
		items := make([]item, 8)
		for i := range items {
			items[i].n, items[i].place.Value = i, &items[i]
		}
		for range 100 {
			x := &items[rng.IntN(len(items))]
			switch {
			case x.place.In():
				l.Remove(&x.place)
				want = slices.DeleteFunc(want, func(y *item) bool { return y == x })
			case rng.IntN(2) == 0:
				l.PushBack(&x.place)
				want = append(want, x)
			default:
				l.PushFront(&x.place)
				want = slices.Insert(want, 0, x)
			}
			if len(want) > 0 && rng.IntN(4) == 0 {
				if got := l.PopFront(); got != want[0] || got.place.In() {
					t.Fatalf("seed %d: took %d, not %d", seed, got.n, want[0].n)
				}
				want = want[1:]
			}
			if l.Len() > 0 && l.Back() != want[len(want)-1] || l.Len() == 0 && l.Back() != nil {
				t.Fatalf("seed %d: the last one is another", seed)
			}
			var got []*item
			for x := l.Front(); x != nil; x = x.place.Next() {
				got = append(got, x)
			}
			if !slices.Equal(got, want) || l.Len() != len(want) {
				t.Fatalf("seed %d: %d of %d are in the list, in another order perhaps", seed, len(got), len(want))
			}
			for i := range items {
				if items[i].place.In() != slices.Contains(want, &items[i]) {
					t.Fatalf("seed %d: %d does not know where it is", seed, i)
				}
			}
		}
	}
}

// BenchmarkPushPop is what a queue pair costs that has its turn.
func BenchmarkPushPop(b *testing.B) {
	var l List[item]
	items := make([]item, 4)
	for i := range items {
		items[i].place.Value = &items[i]
		l.PushBack(&items[i].place)
	}
	b.ReportAllocs()
	for b.Loop() {
		l.PushBack(&l.PopFront().place)
	}
}
