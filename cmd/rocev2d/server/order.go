package server

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"
)

// order is how a list is sorted: by a column, from the smallest on unless it
// runs down. The zero value leaves the list as it is.
type order struct {
	column string
	down   bool
}

// String returns the value of the parameter sort.
func (o order) String() string {
	if o.down {
		return "-" + o.column
	}
	return o.column
}

// orderOf reads the parameter sort of a list of T: the name of a column in
// JSON, with a minus for the largest first.
func orderOf[T any](sort string) (o order, err error) {
	if sort == "" {
		return o, nil
	}
	o.column, o.down = strings.CutPrefix(sort, "-")
	columns := columnsOf(reflect.TypeFor[T]())
	if _, ok := columns[o.column]; !ok {
		var names []string
		for name := range columns {
			names = append(names, name)
		}
		slices.Sort(names)
		return order{}, fmt.Errorf("sort=%s: the columns are %s, with a minus for the largest first", clip(sort), strings.Join(names, ", "))
	}
	return o, nil
}

// columnsOf returns the fields of a struct that can be sorted by, by their
// names in JSON: texts, numbers, times and what is true or not.
func columnsOf(t reflect.Type) map[string]int {
	columns := map[string]int{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if _, ok := keyOf(reflect.Zero(f.Type)); ok && f.IsExported() && name != "" && name != "-" {
			columns[name] = i
		}
	}
	return columns
}

// sortKey is what values are compared by: one of its parts.
type sortKey struct {
	number  uint64
	rest    int64
	address netip.Addr
	text    string
}

// keyOf returns the key of a value, false if it has none.
func keyOf(v reflect.Value) (k sortKey, ok bool) {
	switch v.Kind() {
	case reflect.String:
		k.text = v.String()
		k.address = addressIn(k.text)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		k.number = v.Uint()
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int:
		k.rest = v.Int()
	case reflect.Bool:
		if v.Bool() {
			k.number = 1
		}
	case reflect.Struct:
		t, isTime := v.Interface().(time.Time)
		if !isTime {
			return k, false
		}
		k.rest = t.UnixNano()
		if t.IsZero() { // whose number is none
			k.rest = 0
		}
	default:
		return k, false
	}
	return k, true
}

// addressIn returns the address that a text is, also one with a port: they are
// in the order of their numbers.
func addressIn(s string) netip.Addr {
	if a, err := netip.ParseAddr(s); err == nil {
		return a
	}
	a, _ := netip.ParseAddrPort(s) // or none
	return a.Addr()
}

func (k sortKey) compare(o sortKey) int {
	return cmp.Or(cmp.Compare(k.number, o.number), cmp.Compare(k.rest, o.rest), k.address.Compare(o.address), strings.Compare(k.text, o.text))
}

// sorted returns a list in an order. Entries that are alike stay as they are.
func sorted[T any](list []T, o order) []T {
	i, ok := columnsOf(reflect.TypeFor[T]())[o.column]
	if !ok {
		return list
	}
	type keyed struct {
		key   sortKey
		entry *T
	}
	keys := make([]keyed, len(list))
	for n := range list {
		k, _ := keyOf(reflect.ValueOf(&list[n]).Elem().Field(i)) // columnsOf has only those that have one
		keys[n] = keyed{k, &list[n]}
	}
	slices.SortStableFunc(keys, func(a, b keyed) int {
		if o.down {
			return b.key.compare(a.key)
		}
		return a.key.compare(b.key)
	})
	out := make([]T, len(list))
	for n := range keys {
		out[n] = *keys[n].entry
	}
	return out
}
