package lab

import (
	"flag"
	"fmt"
	"io"
	"math"
	"reflect"
	"runtime/debug"
	"testing"

	"github.com/gosoftroce/rocev2/internal/race"
)

var extremeSeeds = flag.Int("extremes", 0, "how many scenarios with extreme values TestExtremes tries; 0: a few hundred")

// leaf is a field of a scenario that has a value of its own.
type leaf struct {
	name string
	reflect.Value
}

// leaves returns all of them that can be set.
func leaves(name string, v reflect.Value) (all []leaf) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				all = append(all, leaves(name+"."+f.Name, v.Field(i))...)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			all = append(all, leaves(fmt.Sprint(name, i), v.Index(i))...)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			all = append(all, leaves(name, v.Elem())...)
		}
	default:
		all = append(all, leaf{name, v})
	}
	return all
}

// extreme sets a field to a value at an end of its range, or beside it.
func (d *dice) extreme(f leaf) {
	switch f.Kind() {
	case reflect.Int, reflect.Int64:
		n := []int64{0, 1, 2, -1, 7, 63, 64, 255, 256, 1000, 1 << 15, 1<<16 - 1, 1 << 16, 1<<20 + 1, 1<<31 - 1, 1 << 31, 1 << 32, 1<<40 + 1,
			1e12, 8e12, 1e15, math.MaxInt64 / 1000, math.MaxInt64 / 4, math.MaxInt64, math.MinInt64}[d.below(25)]
		if f.OverflowInt(n) {
			n = math.MaxInt32
		}
		f.SetInt(n)
	case reflect.Uint64:
		f.SetUint(math.MaxUint64 >> d.below(64))
	case reflect.Float64:
		f.SetFloat([]float64{0, 1, -1, 1e-9, 5e-324, .999999999, math.NaN(), math.Inf(1), math.MaxFloat64}[d.below(9)])
	case reflect.Bool:
		f.SetBool(d.below(2) == 0)
	case reflect.String:
		f.SetString(d.one("", "x", "star", "pair", "hpcc", "static,bytes=1G", "dcqcn,line=1k,min=1k,ai=1,hai=1", "dcqcn-host,line=8000G", "hpcc,rtt=1s,stages=0", "swift,target=1us,hops=255,range=8s",
			"timely,line=17000G,min=1k,low=1ns,burst=1024M", "packet", "spray", "read", "port",
			"permutation", "bursts", "load", "halving", "ring", "go-back-n", "\x00", "hpcc-sim", "hadoop"))
	case reflect.Func: // which no file has
	default:
		panic(f.name)
	}
}

// A scenario with values at the ends of their ranges is refused, or is played:
// it does not panic, and it can be interrupted.
func TestExtremes(t *testing.T) {
	t.Parallel()
	count, played := *extremeSeeds, 0
	if count == 0 {
		count = 400
		if testing.Short() || race.Enabled {
			count = 40
		}
	}
	for seed := range uint64(count) {
		s := wild(seed)
		d := &dice{s.random(1000)}
		if d.below(3) == 0 {
			s.Network.RED, s.Network.Alpha = &RED{Kmin: 1000, Kmax: 100_000, Pmax: .5}, new(int)
		}
		what := ""
		for range 1 + d.below(3) {
			all := leaves("", reflect.ValueOf(&s).Elem())
			f := all[d.below(len(all))]
			d.extreme(f)
			what += fmt.Sprintf(" %s=%v", f.name, f.Value)
		}
		func() {
			defer func() {
				if v := recover(); v != nil {
					t.Errorf("seed %d,%s: %v\n%s", seed, what, v, debug.Stack())
				}
			}()
			r, err := newRun(&s, nil)
			if err != nil {
				return
			}
			m := newSampler(r)
			r.play(&interrupted{t.Context(), 40}, m)
			res := r.result(m)
			res.Plots()
			if _, err := res.WriteTo(io.Discard); err != nil && r.err == nil {
				t.Errorf("seed %d,%s: %v", seed, what, err)
			}
			played++
		}()
	}
	t.Logf("%d of %d can be played", played, count)
	if played < count/20 {
		t.Error("too few")
	}
}
