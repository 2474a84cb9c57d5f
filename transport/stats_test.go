package transport

import (
	"reflect"
	"testing"
)

// Every counter takes part, those added later too.
func TestStatsAddAllCounters(t *testing.T) {
	t.Parallel()
	var a, b LinkStats
	v := reflect.ValueOf(&b).Elem()
	for i := range v.NumField() {
		v.Field(i).SetUint(uint64(i + 1))
	}
	a.Add(&b)
	a.Add(&b)
	n := 0
	a.Each(func(name string, got uint64) {
		n++
		if want := uint64(2 * n); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	})
	if n != v.NumField() {
		t.Errorf("Each names %d of %d counters", n, v.NumField())
	}
}
