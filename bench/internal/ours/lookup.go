package ours

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/pair"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

// lookup resolves keys of a table with many regions, in one process: the same
// few keys again and again, and keys at random, where a large table also costs
// the processor's cache misses.
type lookup struct {
	cfg Config
}

const hotKeys = 10

// Hello has nothing to say: there is no network in this test.
func (l *lookup) Hello() (any, error) { return nil, nil }

// Connect has nothing to connect.
func (l *lookup) Connect(json.RawMessage) error { return nil }

// Close has nothing to close.
func (l *lookup) Close() error { return nil }

// Run measures on the active side.
func (l *lookup) Run(stop <-chan struct{}) (pair.Result, error) {
	if !l.cfg.Active {
		<-stop
		return pair.Result{}, nil
	}
	if l.cfg.Regions < hotKeys {
		return pair.Result{}, fmt.Errorf("%d regions are fewer than %d", l.cfg.Regions, hotKeys)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	table := memreg.NewTable(rnd.Uint32)
	pd := table.AllocPD()
	memory := memreg.Local(make([]byte, 4096))
	keys := make([]ib.Key, l.cfg.Regions)
	addrs := make([]uint64, l.cfg.Regions)
	begin := time.Now()
	for i := range keys {
		r, err := table.Register(pd, memory, memreg.Options{Access: ib.LocalWrite | ib.RemoteWrite})
		if err != nil {
			return pair.Result{}, err
		}
		keys[i], addrs[i] = r.RKey(), r.Addr()
	}
	r := newResult()
	r.Values["register_ns"] = float64(time.Since(begin).Nanoseconds()) / float64(len(keys))
	step := len(keys) / hotKeys // the hot keys lie all over the table
	order := make([]uint32, 1<<16)
	for name, pick := range map[string]func(i int) int{
		"hot_ns":    func(i int) int { return i % hotKeys * step },
		"random_ns": func(int) int { return rnd.IntN(len(keys)) },
	} {
		for i := range order {
			order[i] = uint32(pick(i))
		}
		ns, err := resolve(table, pd, keys, addrs, order, l.cfg.Measure/2)
		if err != nil {
			return r, err
		}
		r.Values[name] = ns
	}
	return r, nil
}

// resolve looks keys up in the given order for a while, and returns the
// nanoseconds that one look-up takes.
func resolve(t *memreg.Table, pd *memreg.PD, keys []ib.Key, addrs []uint64, order []uint32, d time.Duration) (float64, error) {
	n := 0
	begin := time.Now()
	for {
		for _, k := range order {
			v, fault := t.Resolve(pd, 1, keys[k], addrs[k], 4096, ib.RemoteWrite)
			if fault != ib.FaultNone {
				return 0, errors.New("a key that was registered does not resolve")
			}
			v.Release()
		}
		n += len(order)
		if e := time.Since(begin); e >= d {
			return float64(e.Nanoseconds()) / float64(n), nil
		}
	}
}
