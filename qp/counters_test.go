package qp

import (
	"reflect"
	"testing"
)

// Every counter has a name and takes part in sums, those added later too.
func TestStatsNameAndAddAllCounters(t *testing.T) {
	t.Parallel()
	var a, b Stats
	want := map[uint64]bool{}
	v := reflect.ValueOf(&b).Elem()
	n := uint64(0)
	set := func(f reflect.Value) {
		n++
		f.SetUint(n)
		want[2*n] = true
	}
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Array {
			for k := range f.Len() {
				set(f.Index(k))
			}
		} else {
			set(f)
		}
	}
	delete(want, 2*b.Drops[DropNone]) // counts what was not dropped
	a.Add(&b)
	a.Add(&b)
	names := map[string]bool{}
	a.Each(func(name string, value uint64) {
		if names[name] {
			t.Errorf("two counters are called %s", name)
		}
		if !want[value] {
			t.Errorf("%s is %d: not the sum of a counter of its own", name, value)
		}
		names[name] = true
		delete(want, value)
	})
	if len(want) > 0 {
		t.Errorf("%d counters have no name or are not added: %v", len(want), want)
	}
	if got := a.Drops[DropNone]; got != 2*b.Drops[DropNone] {
		t.Errorf("the packets that were used: %d, want %d", got, 2*b.Drops[DropNone])
	}
}
