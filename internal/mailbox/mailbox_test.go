package mailbox

import (
	"runtime"
	"testing"
)

// Values come in their order, and only those that were posted.
func TestOrder(t *testing.T) {
	t.Parallel()
	var b Box[int]
	if b.Take() != nil || b.Posted() != 0 {
		t.Error("an empty box has something")
	}
	put, taken := 0, 0
	for round := range 500 {
		for range round % 191 {
			*b.Put() = put
			put++
		}
		if n := b.Posted(); n != 0 {
			t.Fatalf("%d values that were not posted", n)
		}
		if round%3 == 0 {
			continue
		}
		b.Post()
		if n := b.Posted(); n != put-taken {
			t.Fatalf("%d are posted, want %d", n, put-taken)
		}
		for v := b.Take(); v != nil; v = b.Take() {
			if *v != taken {
				t.Fatalf("took %d, want %d", *v, taken)
			}
			taken++
		}
		if taken != put {
			t.Fatalf("took %d of %d", taken, put)
		}
	}
}

// Two goroutines, each at its own pace: nothing is lost, and nothing seen half.
func TestTwoGoroutines(t *testing.T) {
	t.Parallel()
	const all = 100_000
	var b Box[[3]int]
	go func() {
		for i := range all {
			*b.Put() = [3]int{i, i + 1, i + 2}
			if i%7 == 0 || i == all-1 {
				b.Post()
			}
			if i%5000 == 0 {
				runtime.Gosched()
			}
		}
	}()
	for i := 0; i < all; {
		v := b.Take()
		if v == nil {
			runtime.Gosched()
			continue
		}
		if *v != [3]int{i, i + 1, i + 2} {
			t.Fatalf("value %d is %v", i, *v)
		}
		i++
	}
}

// Blocks are used again: a box that has held as many before allocates nothing.
func TestAllocatesNothing(t *testing.T) {
	var b Box[int]
	fill := func() {
		for range 1000 {
			*b.Put() = 1
		}
		b.Post()
		for b.Take() != nil {
		}
	}
	fill()
	fill()
	if n := testing.AllocsPerRun(100, fill); n != 0 {
		t.Errorf("%v allocations for 1000 values", n)
	}
}
