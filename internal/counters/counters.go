// Package counters goes over structs of counters: fields of type uint64 that
// say by tags how they are called and what they count.
//
//	TxPackets uint64 `name:"tx_packets" help:"packets handed to the network"`
//
// It is for those who read counters, and as slow as package reflect.
package counters

import "reflect"

// Each calls f for every counter of a struct with its name, in the order of the
// struct. Fields without a name are left out.
func Each[T any](s *T, f func(name string, value uint64)) {
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		if name := v.Type().Field(i).Tag.Get("name"); name != "" {
			f(name, v.Field(i).Uint())
		}
	}
}

// Names returns the names of the counters of a struct, in its order.
func Names[T any]() (names []string) {
	Each(new(T), func(name string, _ uint64) { names = append(names, name) })
	return names
}

// Help returns what the counter with a name counts. It is empty if there is
// none.
func Help[T any](_ *T, name string) string {
	t := reflect.TypeFor[T]()
	for i := range t.NumField() {
		if tag := t.Field(i).Tag; tag.Get("name") == name {
			return tag.Get("help")
		}
	}
	return ""
}

// Bound has no counter of s be more than most.
func Bound[T any](s *T, most uint64) {
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Uint64 {
			f.SetUint(min(f.Uint(), most))
		}
	}
}

// Add adds every counter of o to that of s.
func Add[T any](s, o *T) {
	to, from := reflect.ValueOf(s).Elem(), reflect.ValueOf(o).Elem()
	for i := range to.NumField() {
		if f := to.Field(i); f.Kind() == reflect.Uint64 {
			f.SetUint(f.Uint() + from.Field(i).Uint())
		}
	}
}
