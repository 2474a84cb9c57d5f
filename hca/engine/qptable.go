package engine

import (
	"math/bits"

	"github.com/gosoftroce/rocev2/rocev2"
)

// table finds queue pairs by their number, by open addressing. Among very many
// a map costs several cache misses for each packet, this one or two.
type table struct {
	keys  []rocev2.QPN // a power of two, at least twice as many as there are; 0: free, for no queue pair has that number
	qps   []*QP
	n     int
	shift uint8
}

const firstTable = 16

// place is where the search for a number begins.
func (t *table) place(n rocev2.QPN) int { return int(uint32(n) * 0x9e3779b1 >> t.shift) }

// get returns the queue pair with a number, nil if there is none.
func (t *table) get(n rocev2.QPN) *QP {
	if len(t.keys) == 0 {
		return nil
	}
	for i := t.place(n); ; i = (i + 1) & (len(t.keys) - 1) {
		switch t.keys[i] {
		case n:
			return t.qps[i] // nil for the number 0
		case 0:
			return nil
		}
	}
}

// put adds a queue pair under a number that is not in the table, and not 0.
func (t *table) put(n rocev2.QPN, q *QP) {
	if 2*(t.n+1) > len(t.keys) {
		t.resize(max(2*len(t.keys), firstTable))
	}
	i := t.place(n)
	for t.keys[i] != 0 {
		i = (i + 1) & (len(t.keys) - 1)
	}
	t.keys[i], t.qps[i] = n, q
	t.n++
}

func (t *table) resize(size int) {
	old := *t
	*t = table{
		keys: make([]rocev2.QPN, size), qps: make([]*QP, size),
		shift: uint8(32 - bits.TrailingZeros(uint(size))),
	}
	for i, n := range old.keys {
		if n != 0 {
			t.put(n, old.qps[i])
		}
	}
}

// remove takes a number out. Those after it that stand there because the place
// was taken move up.
func (t *table) remove(n rocev2.QPN) {
	if t.get(n) == nil {
		return
	}
	mask := len(t.keys) - 1
	i := t.place(n)
	for t.keys[i] != n {
		i = (i + 1) & mask
	}
	for j := (i + 1) & mask; t.keys[j] != 0; j = (j + 1) & mask {
		if home := t.place(t.keys[j]); (j-home)&mask >= (j-i)&mask {
			t.keys[i], t.qps[i] = t.keys[j], t.qps[j]
			i = j
		}
	}
	t.keys[i], t.qps[i] = 0, nil
	t.n--
}

// each calls f for every queue pair, in no order.
func (t *table) each(f func(*QP)) {
	for _, q := range t.qps {
		if q != nil {
			f(q)
		}
	}
}
