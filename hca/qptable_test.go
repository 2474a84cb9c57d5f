package hca

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
)

func TestQPTable(t *testing.T) {
	t.Parallel()
	var table qpTable
	if table.get(5) != nil || table.get(0) != nil {
		t.Error("found in an empty table")
	}
	table.remove(5)
	want := map[rocev2.QPN]*QP{}
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 200_000 {
		// Few numbers, so that they collide, and phases of growth and of decline.
		n := rocev2.QPN(1 + random.Uint32N(3000)*8)
		if grow := round/20_000%2 == 0; random.Uint32N(4) == 0 != grow {
			if want[n] == nil {
				q := new(QP)
				want[n] = q
				table.put(n, q)
			}
		} else {
			delete(want, n)
			table.remove(n)
		}
		if probe := rocev2.QPN(1 + random.Uint32N(3000)*8); table.get(probe) != want[probe] {
			t.Fatalf("round %d: number %d found as %p, want %p", round, probe, table.get(probe), want[probe])
		}
	}
	if table.n != len(want) {
		t.Errorf("%d in the table, want %d", table.n, len(want))
	}
	for n, q := range want {
		if table.get(n) != q {
			t.Fatalf("number %d is lost", n)
		}
	}
	if table.get(0) != nil {
		t.Error("found number 0")
	}
}

func BenchmarkQPTable(b *testing.B) {
	for _, size := range []int{10, 10000, 100000} {
		var table qpTable
		var numbers []rocev2.QPN
		for len(numbers) < size {
			if n := rocev2.QPN(random32()) & rocev2.QPNMask; n != 0 && table.get(n) == nil {
				table.put(n, new(QP))
				numbers = append(numbers, n)
			}
		}
		b.Run(fmt.Sprintf("qps=%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				if table.get(numbers[i%size]) == nil {
					b.Fatal("lost")
				}
			}
		})
	}
}
