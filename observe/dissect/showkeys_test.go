package dissect

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"unsafe"
)

// TestNothingShowsKeys prints all that a capture consists of, with every verb
// and as JSON: the keys that have opened its packets are not there, and nor is
// the text of their log. What unexported fields lead to is printed as well.
func TestNothingShowsKeys(t *testing.T) {
	t.Parallel()
	log, err := os.ReadFile("testdata/secured.keys")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("testdata/secured.pcapng")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Keys().Follow(bytes.NewReader(log), "log"); err != nil {
		t.Fatal(err)
	}
	opened := 0
	p := shower{t: t, seen: map[spot]bool{}, types: map[reflect.Type]bool{}, traces: keysOf(t, string(log))}
	for packet, err := c.Next(); err == nil; packet, err = c.Next() {
		if packet.Sealed.Opened {
			opened++
		}
	}
	// A log that is still written, in the middle of a line.
	c.dec.keys.take(log[bytes.LastIndexByte(bytes.TrimSpace(log), '\n')+1 : len(log)-1])
	p.show(reflect.ValueOf(&c), 0)
	if opened == 0 || len(p.types) < 10 {
		t.Errorf("%d packets were opened, %d types seen", opened, len(p.types))
	}
	p.seen = map[spot]bool{}
	p.traces = []string{"shown"}
	if !p.shows(reflect.ValueOf(struct{ key []byte }{[]byte("shown")})) {
		t.Error("what is shown is not found")
	}
}

// keysOf returns what the keys of a log look like when they are printed.
func keysOf(t *testing.T, log string) (traces []string) {
	t.Helper()
	for line := range strings.Lines(log) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != KeyLabel {
			continue
		}
		key, err := hex.DecodeString(f[2])
		if err != nil {
			t.Fatal(err)
		}
		part := key[:8]
		traces = append(traces, string(part), f[2][:16], strings.ToUpper(f[2][:16]), hex.EncodeToString([]byte(f[2][:16])))
		for _, format := range []string{"%v", "% x", "% X", "%#v", "%q", "%c", "%U", "%b", "%o"} {
			traces = append(traces, strings.Trim(fmt.Sprintf(format, part), "[]\"{}"), strings.Trim(fmt.Sprintf(format, []byte(f[2][:16])), "[]\"{}"))
		}
		traces = append(traces, fmt.Sprint(binary.BigEndian.Uint64(part)), fmt.Sprint(binary.LittleEndian.Uint64(part)))
	}
	if traces == nil {
		t.Fatal("the log has no key")
	}
	return traces
}

// shower prints what values lead to.
type shower struct {
	t      *testing.T
	traces []string
	seen   map[spot]bool
	types  map[reflect.Type]bool
}

type spot struct {
	at  unsafe.Pointer
	typ reflect.Type
}

func (p *shower) show(v reflect.Value, depth int) {
	if depth > 100 {
		p.t.Fatalf("%v lies deeper than 100", v.Type())
	}
	if !v.CanAddr() || !v.CanInterface() { // a copy, or the same with all rights
		to := reflect.New(v.Type()).Elem()
		switch {
		case v.CanAddr():
			to = reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem()
		case v.CanInterface():
			to.Set(v)
		default:
			return
		}
		v = to
	}
	at := spot{v.Addr().UnsafePointer(), v.Type()}
	if p.seen[at] {
		return
	}
	p.seen[at] = true
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			p.show(v.Elem(), depth+1)
		}
	case reflect.Slice, reflect.Array:
		for i := range min(v.Len(), 32) {
			p.show(v.Index(i), depth+1)
		}
	case reflect.Map:
		n := 0
		for it := v.MapRange(); n < 32 && it.Next(); n++ {
			for _, e := range []reflect.Value{it.Key(), it.Value()} {
				if e.CanInterface() {
					p.show(e, depth+1)
				}
			}
		}
	case reflect.Struct:
		if path := v.Type().PkgPath(); path != "" && !strings.Contains(path, "gosoftroce") {
			return // of the standard library: how it prints itself is its own
		}
		if !p.types[v.Type()] {
			p.types[v.Type()] = true
			for _, one := range []reflect.Value{v, v.Addr()} {
				if p.shows(one) {
					p.t.Errorf("a %v shows a key", one.Type())
				}
			}
		}
		for i := range v.NumField() {
			p.show(v.Field(i), depth+1)
		}
	}
}

// shows reports whether a value shows a trace, as JSON or with any verb but %p,
// for which package fmt asks no method: go vet finds that.
func (p *shower) shows(v reflect.Value) bool {
	var all strings.Builder
	for _, flag := range []string{"", "+", "#", " "} {
		for _, verb := range "vTtbcdoOqxXUeEfFgGs" {
			fmt.Fprintf(&all, "%"+flag+string(verb)+"\n", v.Interface())
		}
	}
	if b, err := json.Marshal(v.Interface()); err == nil {
		all.Write(b)
	}
	for _, trace := range p.traces {
		if strings.Contains(all.String(), trace) {
			return true
		}
	}
	return false
}
