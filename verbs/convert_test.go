package verbs

import (
	"io"
	"net/netip"
	"reflect"
	"testing"

	"github.com/gosoftroce/rocev2/hca"
)

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
	var st hca.Stats
	numbered(reflect.ValueOf(&st).Elem(), 0)
	var cfg Config
	numbered(reflect.ValueOf(&cfg).Elem(), 0)
	cfg.Congestion, cfg.NotifyClass, cfg.NotifyScope, cfg.Strict, cfg.Profile = "dcqcn", 1, "port", "on", "mlx5"
	cfg.SharedMemory = false // Sealing excludes it
	adapter, err := cfg.hcaConfig()
	if err != nil {
		t.Fatal(err)
	}
	if adapter.Random != nil {
		t.Error("hca.Config.Random is not that of Config, which has none")
	}
	cfg.Random = func() uint32 { return 0 }
	if adapter, err = cfg.hcaConfig(); err != nil {
		t.Fatal(err)
	}
	adapter.Trace = newTracer(io.Discard, netip.Addr{}).write // as open does
	link := cfg.udpConfig()
	link.ReusePort = true // Shards asks for it
	for name, v := range map[string]any{
		"Stats": statsFrom(st), "hca.Config": adapter, "udp.Config": link,
	} {
		for _, field := range zeros(reflect.ValueOf(v), name) {
			t.Errorf("%s is zero", field)
		}
	}
}

// Each counter of a link and of a queue pair has a name, in its order, and says
// what it counts.
func TestCountersSayWhatTheyCount(t *testing.T) {
	t.Parallel()
	var link LinkStats
	var own []string
	link.Each(func(name string, _ uint64) { own = append(own, name) })
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
