package rdma

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"unsafe"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

// TestNothingShowsKeys walks over all that two devices, a listener, a dialler
// and a secured connection consist of, by reflection and through every pointer,
// and prints a value of each type, in all ways and as JSON: no key of the
// connection is there. Nor is it in what a tap writes. A type that is new is
// found as those that were there.
func TestNothingShowsKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newTappedNet(t, [2]string{"192.0.2.1", "192.0.2.2"}, fabric.Config{})
		var log bytes.Buffer
		n.client.KeyLogWriter = &log
		lc := ListenConfig{TLS: n.server, Device: n.devs[0]}
		l := must1[*Listener](t)(lc.Listen(t.Context(), n.at))
		defer l.Close()
		accepted := make(chan *Conn, 1)
		go func() {
			c, err := l.Accept(context.Background())
			if err != nil {
				t.Error(err)
			}
			accepted <- c
		}()
		d := Dialer{Device: n.devs[1], TLS: n.client}
		c := must1[*Conn](t)(d.Dial(testContext(t), n.at))
		s := <-accepted
		must(t, c.Send(t.Context(), secretText))
		synctest.Wait()

		traces := keyTraces(t, log.String())
		w := walker{seen: map[place]bool{}, types: map[reflect.Type]int{}, traces: traces, t: t}
		for _, root := range []any{&lc, l, &d, c, s, &n.devs[0], &n.devs[1]} {
			w.walk(reflect.ValueOf(root), 0)
		}
		names := map[string]bool{}
		for typ := range w.types {
			names[typ.String()] = true
		}
		for _, want := range []string{"psp.Key", "psp.Chain", "psp.Link", "verbs.Sealing", "verbs.QP", "rdma.Conn", "engine.QP", "secure.Queue"} {
			found := false
			for name := range names {
				found = found || strings.HasPrefix(name, want)
			}
			if !found {
				t.Errorf("there is no %s among %d types: the walk does not see all", want, len(names))
			}
		}
		must(t, c.Close())
		must(t, s.Close())
		for i := range n.taps {
			must(t, n.taps[i].Flush())
			if trace := traces.in(n.captures[i].String()); trace != "" {
				t.Errorf("a capture has a key, as %s", trace)
			}
		}
		t.Logf("%d types, %d values, %d bytes of text", len(w.types), len(w.seen), w.bytes)
	})
}

// TestKeyTraces shows that the test above finds keys in whatever is printed.
func TestKeyTraces(t *testing.T) {
	t.Parallel()
	key := []byte{0xbe, 0x7b, 0xfe, 0x19, 0x9b, 0x5e, 0x2c, 0x9a, 0x6a, 0xa7, 0x11, 0xbb, 0xfb, 0x3e, 0x19, 0x1d}
	traces := keyTraces(t, "ROCEV2_PSP 0x1@::1 "+hex.EncodeToString(key)+"\n")
	type words struct {
		a [4]uint32
		B uint64
	}
	shown := words{}
	for i := range shown.a {
		shown.a[i] = binary.BigEndian.Uint32(key[4*i:])
	}
	for _, v := range []any{
		struct{ key []byte }{key}, struct{ Key []byte }{key}, struct{ key [16]byte }{[16]byte(key)}, &struct{ Key []byte }{key}, shown,
		words{B: binary.LittleEndian.Uint64(key)}, string(key), verbs.Association{Key: key}.Key,
	} {
		found := false
		for _, text := range printed(reflect.ValueOf(v)) {
			found = found || traces.in(text) != ""
		}
		if !found {
			t.Errorf("the key was not found in a %T", v)
		}
	}
	for _, text := range printed(reflect.ValueOf(verbs.Association{SPI: 1, Key: key})) {
		if trace := traces.in(text); trace != "" {
			t.Errorf("an association shows its key as %s: %s", trace, text)
		}
	}
	for _, v := range []any{"no key", struct{ a, b uint64 }{1, 2}, verbs.Association{SPI: 7}} {
		for _, text := range printed(reflect.ValueOf(v)) {
			if trace := traces.in(text); trace != "" {
				t.Errorf("found a key in %q, as %s", text, trace)
			}
		}
	}
}

// traced is what keys look like in a text.
type traced map[string]string

// in returns as what a key is in a text, "" if there is none.
func (t traced) in(text string) string {
	for trace, what := range t {
		if strings.Contains(text, trace) {
			return what
		}
	}
	return ""
}

// keyTraces returns the traces of all keys of a log.
func keyTraces(t *testing.T, log string) traced {
	t.Helper()
	all := traced{}
	for _, line := range pspLines(log) {
		f := strings.Fields(line)
		key := must1[[]byte](t)(hex.DecodeString(f[2]))
		all.add(key)
		all.add(hmacOf([]byte("rocev2 psp"), key)) // the secret of the first generation
		number, addr, _ := strings.Cut(f[1], "@")
		spi := must1[uint64](t)(strconv.ParseUint(number, 0, 32))
		all.add(must1[[]byte](t)(packetKey(line, uint32(spi), netip.MustParseAddr(addr), byte(len(key)/32))))
	}
	if len(all) == 0 {
		t.Fatal("the log has no key")
	}
	return all
}

// add adds what a key looks like: of its bytes and of its words at least 8
// bytes in a row, so that nothing is found by chance.
func (t traced) add(key []byte) {
	t[string(key[:8])] = "bytes"
	t[strings.Trim(strconv.Quote(string(key)), `"`)] = "a text in quotes"
	t[base64.StdEncoding.EncodeToString(key)[:16]] = "base 64"
	for _, f := range []string{"%x", "%X", "% x", "% X"} {
		t[fmt.Sprintf(f, key[:8])] = "hexadecimal"
	}
	for _, between := range []string{" ", ", ", ","} {
		for _, f := range []string{"%d", "%#x", "%#v", "%v"} {
			var b, big, little []string
			for i := range 8 {
				b = append(b, fmt.Sprintf(f, key[i]))
			}
			for i := 0; i < 8; i += 4 {
				big = append(big, fmt.Sprintf(f, binary.BigEndian.Uint32(key[i:])))
				little = append(little, fmt.Sprintf(f, binary.LittleEndian.Uint32(key[i:])))
			}
			t[strings.Join(b, between)] = "bytes as numbers"
			t[strings.Join(big, between)], t[strings.Join(little, between)] = "words of 32 bits", "words of 32 bits"
			t[fmt.Sprintf(f, binary.BigEndian.Uint64(key))], t[fmt.Sprintf(f, binary.LittleEndian.Uint64(key))] = "words of 64 bits", "words of 64 bits"
		}
	}
}

// printed prints a value in all ways.
func printed(v reflect.Value) (list []string) {
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		list = append(list, fmt.Sprintf(verb, v.Interface()))
	}
	if b, err := json.Marshal(v.Interface()); err == nil {
		list = append(list, string(b))
	}
	return list
}

// walker prints what can be reached from values.
type walker struct {
	t      *testing.T
	traces traced
	seen   map[place]bool
	types  map[reflect.Type]int
	bytes  int
}

// place is a value of a type: a struct and its first field are at one address.
type place struct {
	at  unsafe.Pointer
	typ reflect.Type
}

const (
	ownModule   = "github.com/gosoftroce/rocev2"
	printsOf    = 2   // values of a small type that are printed, one of others
	smallType   = 256 // bytes
	elementsOf  = 64  // of a slice, array or map that are looked at
	deepest     = 500 // no value is
	mostOfBytes = 1 << 14
)

// walk looks at a value and all that it leads to. What unexported fields lead
// to is looked at as well.
func (w *walker) walk(v reflect.Value, depth int) {
	if depth > deepest {
		w.t.Fatalf("%v lies deeper than %d", v.Type(), deepest)
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			w.walk(open(v.Elem()), depth+1)
		}
	case reflect.Interface:
		if !v.IsNil() {
			w.walk(addressable(v.Elem()), depth+1)
		}
	case reflect.Slice, reflect.Array:
		for i := range min(v.Len(), elementsOf) {
			w.walk(open(v.Index(i)), depth+1)
		}
	case reflect.Map:
		n := 0
		for it := v.MapRange(); n < elementsOf && it.Next(); n++ {
			w.walk(addressable(it.Key()), depth+1)
			w.walk(addressable(it.Value()), depth+1)
		}
	case reflect.Struct:
		w.fields(v, depth)
	}
}

// fields looks at a struct.
func (w *walker) fields(v reflect.Value, depth int) {
	p := place{v.Addr().UnsafePointer(), v.Type()}
	if w.seen[p] {
		return
	}
	w.seen[p] = true
	name := v.Type().PkgPath()
	switch {
	case strings.HasPrefix(name, ownModule) && !strings.HasPrefix(name, ownModule+"/fabric"):
		w.print(v)
	case name == "sync/atomic" && strings.HasPrefix(v.Type().Name(), "Pointer["):
		// Its fields are a pointer without a type, and one of none that
		// has the type.
		typ := v.Type().Field(0).Type.Elem().Elem()
		if at := *(*unsafe.Pointer)(v.Addr().UnsafePointer()); at != nil {
			w.walk(reflect.NewAt(typ, at).Elem(), depth+1)
		}
		return
	case name != "" && !strings.HasPrefix(name, ownModule):
		return // of the standard library: how it prints itself is its own
	}
	for i := range v.NumField() {
		w.walk(open(v.Field(i)), depth+1)
	}
}

// print prints a copy of a value, by itself and through a pointer.
func (w *walker) print(v reflect.Value) {
	w.types[v.Type()]++
	most := printsOf
	if v.Type().Size() > smallType {
		most = 1
	}
	if w.types[v.Type()] > most || v.Type().Size() > mostOfBytes {
		return
	}
	one := reflect.New(v.Type()).Elem()
	one.Set(v)
	shorten(one)
	for _, one := range []reflect.Value{one, one.Addr()} {
		for _, text := range printed(one) {
			w.bytes += len(text)
			if trace := w.traces.in(text); trace != "" {
				w.t.Errorf("a %v shows a key, as %s", one.Type(), trace)
			}
		}
	}
}

// shorten cuts the slices of a struct that are long: rings, and memory of
// programs.
func shorten(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			shorten(open(v.Field(i)))
		}
	case reflect.Slice:
		n := min(v.Len(), 4)
		if v.Type().Elem().Size() <= 8 { // maybe the bytes or words of a key
			n = min(v.Len(), elementsOf)
		}
		few := reflect.MakeSlice(v.Type(), n, n)
		reflect.Copy(few, v)
		for i := range few.Len() {
			shorten(open(few.Index(i)))
		}
		v.Set(few)
	case reflect.Interface:
		if v.Elem().Kind() == reflect.Slice {
			in := addressable(v.Elem())
			shorten(in)
			v.Set(in)
		}
	}
}

// open returns a value with the rights of one that is exported.
func open(v reflect.Value) reflect.Value {
	if !v.CanAddr() {
		return addressable(v)
	}
	return reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem()
}

// addressable returns a copy that has an address.
func addressable(v reflect.Value) reflect.Value {
	to := reflect.New(v.Type()).Elem()
	if v.CanInterface() {
		to.Set(v)
	}
	return to
}
