package verbs

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// TestLayouts: what is seen as another type without a copy has its layout,
// field by field: names, types and offsets.
func TestLayouts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ ours, theirs any }{
		{SendWR{}, ib.SendWR{}},
		{RecvWR{}, ib.RecvWR{}},
		{WC{}, ib.WC{}},
		{SGE{}, ib.SGE{}},
		{RemoteAddr{}, ib.RemoteAddr{}},
		{BindMW{}, ib.BindMW{}},
		{RegMR{}, ib.RegMR{}},
	} {
		if err := sameLayout(reflect.TypeOf(c.ours), reflect.TypeOf(c.theirs)); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct{ ours, theirs any }{
		{struct{ A uint64 }{}, struct{ A uint32 }{}},
		{struct{ A, B uint64 }{}, struct{ A uint64 }{}},
		{struct{ A, B uint64 }{}, struct{ B, A uint64 }{}},
		{struct{ A []SGE }{}, struct{ A []ib.RemoteAddr }{}},
	} {
		if sameLayout(reflect.TypeOf(c.ours), reflect.TypeOf(c.theirs)) == nil {
			t.Errorf("%T and %T pass", c.ours, c.theirs)
		}
	}
}

// sameLayout says where two types differ in memory.
func sameLayout(a, b reflect.Type) error {
	switch {
	case a == b:
		return nil
	case a.Kind() != b.Kind() || a.Size() != b.Size() || a.Align() != b.Align():
		return fmt.Errorf("%v and %v differ in kind, size or alignment", a, b)
	case a.Kind() == reflect.Slice:
		return sameLayout(a.Elem(), b.Elem())
	case a.Kind() == reflect.Pointer:
		for t := a.Elem(); t.Kind() == reflect.Struct; {
			if t = t.Field(0).Type; t == b.Elem() {
				return nil // what it points to begins with the other
			}
		}
		return sameLayout(a.Elem(), b.Elem())
	case a.Kind() != reflect.Struct || a.NumField() != b.NumField():
		return fmt.Errorf("%v and %v are different types", a, b)
	}
	for i := range a.NumField() {
		f, g := a.Field(i), b.Field(i)
		if f.Name != g.Name || f.Offset != g.Offset {
			return fmt.Errorf("field %d of %v is %s at %d, of %v %s at %d", i, a, f.Name, f.Offset, b, g.Name, g.Offset)
		}
		if err := sameLayout(f.Type, g.Type); err != nil {
			return fmt.Errorf("%v.%s: %w", a, f.Name, err)
		}
	}
	return nil
}

// numbered sets every field below v to a number of its own, and returns how
// many it has set.
func numbered(v reflect.Value, n int) int {
	switch v.Kind() {
	case reflect.Struct:
		if v.NumField() > 0 && v.Type().PkgPath() == "net/netip" {
			return n
		}
		for i := range v.NumField() {
			n = numbered(v.Field(i), n)
		}
		return n
	case reflect.Array:
		for i := range v.Len() {
			n = numbered(v.Index(i), n)
		}
		return n
	}
	switch n++; {
	case v.CanUint():
		v.SetUint(uint64(n))
	case v.CanInt():
		v.SetInt(int64(n))
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	}
	return n
}

// zeros lists the fields below v that are zero.
func zeros(v reflect.Value, name string) (all []string) {
	if v.Kind() == reflect.Struct && v.Type().PkgPath() != "net/netip" {
		for i := range v.NumField() {
			all = append(all, zeros(v.Field(i), name+"."+v.Type().Field(i).Name)...)
		}
		return all
	}
	if v.IsZero() && v.Kind() != reflect.Map && v.Type().PkgPath() != "net/netip" {
		all = append(all, name)
	}
	return all
}

// TestNothingIsLost: what is converted field by field keeps every field.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	var attr ib.Attr
	numbered(reflect.ValueOf(&attr).Elem(), 0)
	ours := attrFrom(&attr)
	if back := attrOf(&ours); *back != attr {
		t.Errorf("attributes come back as %+v, want %+v", back, attr)
	}
	var st hca.Stats
	numbered(reflect.ValueOf(&st).Elem(), 0)
	var pair qp.Stats
	n := numbered(reflect.ValueOf(&pair).Elem(), 0) - 1 // DropNone counts what was not dropped
	var cfg Config
	numbered(reflect.ValueOf(&cfg).Elem(), 0)
	cfg.Congestion, cfg.NotifyClass, cfg.NotifyScope = "dcqcn", 1, "port"
	adapter, err := cfg.hcaConfig()
	if err != nil {
		t.Fatal(err)
	}
	adapter.Trace = newTracer(io.Discard, netip.Addr{}).write // as open does
	link := cfg.udpConfig()
	link.ReusePort = true // Shards asks for it
	for name, v := range map[string]any{
		"Stats": statsFrom(st), "QPStats": qpStatsFrom(&pair), "Attr": ours, "hca.Config": adapter, "udp.Config": link,
	} {
		for _, field := range zeros(reflect.ValueOf(v), name) {
			t.Errorf("%s is zero", field)
		}
	}
	type counted struct {
		name  string
		value uint64
	}
	var theirs, counters []counted
	pair.Each(func(name string, value uint64) { theirs = append(theirs, counted{name, value}) })
	programs := qpStatsFrom(&pair)
	programs.Each(func(name string, value uint64) { counters = append(counters, counted{name, value}) })
	if !slices.Equal(counters, theirs) || len(counters) != n {
		t.Errorf("the %d counters of a queue pair, of %d, are\n%v, want\n%v", len(counters), n, counters, theirs)
	}
}

// TestErrorsAreOurs: the error structs of the layers below become those that
// programs can name, with the same fields.
func TestErrorsAreOurs(t *testing.T) {
	t.Parallel()
	var modify *ModifyError
	if err := errorFrom(&ib.ModifyError{Err: ErrAttrValue, Attr: AttrPort}); !errors.As(err, &modify) || !errors.Is(err, ErrAttrValue) || modify.Attr != AttrPort {
		t.Errorf("%v", err)
	}
	var number *RangeError
	if err := errorFrom(&hca.RangeError{What: "x", Max: 3}); !errors.As(err, &number) || number.Max != 3 {
		t.Errorf("%v", err)
	}
	var open *OpenError
	below := &udp.OpenError{Op: "bind", Err: transport.ErrClosed, Hint: "why"}
	if err := errorFrom(below); !errors.As(err, &open) || !errors.Is(err, transport.ErrClosed) || open.Hint != "why" || err.Error() != below.Error() {
		t.Errorf("%v", err)
	}
	if err := errorFrom(ErrClosed); err != ErrClosed {
		t.Errorf("%v", err)
	}
}

// Seeing requests and completions as another type allocates nothing.
func TestViewDoesNotAllocate(t *testing.T) {
	var wrs [4]SendWR
	var wcs [4]WC
	wrs[3].ID = 7
	n := testing.AllocsPerRun(100, func() {
		for i := range sendWRsOf(wrs[:]) {
			wcsOf(wcs[:])[i].ID = sendWRsOf(wrs[:])[i].ID
		}
	})
	if n != 0 || wcs[3].ID != 7 {
		t.Errorf("%v allocations, completion %v", n, wcs[3].ID)
	}
	if len(sendWRsOf(nil)) != 0 || len(wcsOf(nil)) != 0 {
		t.Error("nothing becomes something")
	}
}

// Each counter of a link and of a queue pair has a name, in its order, and says
// what it counts.
func TestCountersSayWhatTheyCount(t *testing.T) {
	t.Parallel()
	var link LinkStats
	var own []string
	link.Each(func(name string, _ uint64) { own = append(own, name) })
	var tags []string
	eachCounter(&link, func(name string, _ uint64) { tags = append(tags, name) })
	if !slices.Equal(own, tags) {
		t.Errorf("the counters of a link are %q, and the tags %q", own, tags)
	}
	var qps QPStats
	seen := map[string]string{}
	note := func(name, help string) {
		if help == "" || seen[help] != "" {
			t.Errorf("the help of %s is %q, that of %q", name, help, seen[help])
		}
		seen[help] = name
	}
	qps.Each(func(name string, _ uint64) { note("qp "+name, qps.Help(name)) })
	for _, name := range own {
		note("link "+name, link.Help(name))
	}
	if len(seen) < 70 {
		t.Errorf("only %d counters", len(seen))
	}
	if qps.Help("none") != "" {
		t.Error("there is help for what there is not")
	}
}
