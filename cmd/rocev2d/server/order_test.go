package server

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

type sortable struct {
	Name   string    `json:"name"`
	Size   int64     `json:"size,omitempty"`
	Count  uint32    `json:"count"`
	On     bool      `json:"on"`
	When   time.Time `json:"when,omitzero"`
	List   []string  `json:"list"`
	Hidden string
	secret string
}

// Every column with an order sorts a list both ways, and leaves entries that
// are alike where they are. Addresses are in the order of their numbers.
func TestOrders(t *testing.T) {
	t.Parallel()
	now := time.Now()
	list := []sortable{
		{Name: "192.0.2.10:7", Size: 5, Count: 1, When: now},
		{Name: "192.0.2.9:80", Size: -5, Count: 1<<32 - 1, On: true},
		{Name: "192.0.2.9:7", Size: 5, Count: 0, When: now.Add(-time.Hour)},
	}
	for by, want := range map[string]string{
		"": "012", "name": "210", "-name": "012", "size": "102", "-size": "021", "count": "201", "-count": "102", "on": "021", "-on": "102", "when": "120", "-when": "021",
	} {
		o, err := orderOf[sortable](by)
		if err != nil {
			t.Errorf("%s: %v", by, err)
			continue
		}
		var got strings.Builder
		for _, e := range sorted(list, o) {
			got.WriteByte(byte('0' + slices.IndexFunc(list, func(x sortable) bool { return reflect.DeepEqual(x, e) })))
		}
		if got.String() != want || o.String() != by {
			t.Errorf("%s (%v): %s, want %s", by, o, got.String(), want)
		}
	}
	for _, by := range []string{"list", "Hidden", "hidden", "secret", "Name", "-", "--name", "name,size", "name desc", " name"} {
		if o, err := orderOf[sortable](by); err == nil || !strings.Contains(err.Error(), "count, name, on, size, when") {
			t.Errorf("%q: %v, %v", by, o, err)
		}
	}
	if got := sorted([]sortable(nil), order{"name", true}); len(got) != 0 {
		t.Error(got)
	}
	_ = sortable{}.secret // it is there to be hidden
}
