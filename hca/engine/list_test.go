package engine

import (
	"slices"
	"testing"
)

func order(l *list) []*QP {
	var out []*QP
	for q := l.front(); q != nil; q = q.links.next[l.kind] {
		out = append(out, q)
	}
	return out
}

func TestListIsFairAndHoldsEachOnce(t *testing.T) {
	t.Parallel()
	l := list{kind: listLimited}
	a, b, c := &QP{}, &QP{}, &QP{}
	for _, q := range []*QP{a, b, c, a, b} {
		l.push(q)
	}
	want := func(why string, qs ...*QP) {
		t.Helper()
		if got := order(&l); !slices.Equal(got, qs) {
			t.Fatalf("%s: %d entries in another order than wanted", why, len(got))
		}
	}
	want("each once, in order", a, b, c)
	l.rotate()
	want("the front goes to the back", b, c, a)
	l.remove(c)
	want("one from the middle is taken out", b, a)
	l.remove(c)
	want("taking it out again changes nothing", b, a)
	l.push(c)
	want("and it may come back", b, a, c)
	l.pop()
	l.pop()
	l.pop()
	if !l.empty() || l.len() != 0 {
		t.Error("not empty in the end")
	}
	l.push(a)
	l.rotate()
	want("a single entry stays", a)
}
