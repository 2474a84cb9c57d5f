package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
)

func TestQPTable(t *testing.T) {
	t.Parallel()
	var tab table
	if tab.get(5) != nil || tab.get(0) != nil {
		t.Error("found in an empty table")
	}
	tab.remove(5)
	want := map[rocev2.QPN]*QP{}
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 200_000 {
		// Few numbers, so that they collide, and phases of growth and
		// of decline.
		n := rocev2.QPN(1 + random.Uint32N(3000)*8)
		if grow := round/20_000%2 == 0; random.Uint32N(4) == 0 != grow {
			if want[n] == nil {
				q := new(QP)
				want[n] = q
				tab.put(n, q)
			}
		} else {
			delete(want, n)
			tab.remove(n)
		}
		if probe := rocev2.QPN(1 + random.Uint32N(3000)*8); tab.get(probe) != want[probe] {
			t.Fatalf("round %d: number %d found as %p, want %p", round, probe, tab.get(probe), want[probe])
		}
	}
	if tab.n != len(want) {
		t.Errorf("%d in the table, want %d", tab.n, len(want))
	}
	for n, q := range want {
		if tab.get(n) != q {
			t.Fatalf("number %d is lost", n)
		}
	}
	if tab.get(0) != nil {
		t.Error("found number 0")
	}
}

// Queue pairs that come and go leave nothing.
func TestTableStaysSmall(t *testing.T) {
	t.Parallel()
	a, b := newWorld(t, 1).newPair(Config{})
	for range 500 {
		qa, qb := connectPair(a, b, true)
		a.write(qa, b, 8)
		a.waitOK(1)
		a.destroy(qa)
		b.destroy(qb)
	}
	for _, h := range []*host{a, b} {
		u := h.e.Usage()
		if u.Timers > 1 || len(h.e.table.keys) > 2*firstTable {
			t.Errorf("%d timers, a table of %d", u.Timers, len(h.e.table.keys))
		}
		if u.Timers = 0; u != (Usage{}) {
			t.Errorf("left is %+v", u)
		}
	}
}

func BenchmarkQPTable(b *testing.B) {
	for _, size := range []int{10, 10000, 100000} {
		var tab table
		var numbers []rocev2.QPN
		for len(numbers) < size {
			if n := rocev2.QPN(rand.Uint32()) & rocev2.QPNMask; n != 0 && tab.get(n) == nil {
				tab.put(n, new(QP))
				numbers = append(numbers, n)
			}
		}
		b.Run(fmt.Sprintf("qps=%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				if tab.get(numbers[i%size]) == nil {
					b.Fatal("lost")
				}
			}
		})
	}
}
