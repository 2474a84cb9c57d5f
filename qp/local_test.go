package qp

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/internal/testshort"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

// localWorld posts random requests, local operations among them, over a network
// that loses packets.
type localWorld struct {
	*pair
	r       *rand.Rand
	region  *memreg.Region
	windows []*memreg.Window
	bound   []bool // as it will be when all that is posted was carried out
	fast    *memreg.FastRegion
	valid   bool
	id      uint64
	want    []string
}

func (w *localWorld) post(wr ib.SendWR) {
	w.id++
	wr.ID, wr.Signaled, wr.Fence = w.id, w.r.IntN(4) != 0, wr.Fence || w.r.IntN(5) == 0
	if w.a.PostSend(&wr) != nil { // full
		w.settle()
		must(w.t, w.a.PostSend(&wr))
	}
	if wr.Signaled {
		w.want = append(w.want, fmt.Sprintf("%d SUCCESS", w.id))
	}
}

// step posts something. A window's key and whether it is bound are what they
// will be: binds do not wait, so the low byte is the request's own choice.
func (w *localWorld) step(keys []ib.Key, fastKey *ib.Key) {
	e, peer := w.a, w.b
	switch w.r.IntN(8) {
	case 0:
		w.post(ib.SendWR{Opcode: ib.OpRead, SGList: e.sge(w.r.IntN(1000), w.r.IntN(6000)), Remote: peer.remote(0)})
	case 1:
		w.post(ib.SendWR{Opcode: ib.OpFetchAdd, SGList: e.sge(0, 8), Remote: peer.remote(0)})
	case 2, 3:
		i := w.r.IntN(len(w.windows))
		if w.bound[i] = !w.bound[i]; !w.bound[i] {
			w.post(ib.SendWR{Opcode: ib.OpLocalInv, InvalidateKey: keys[i]})
			return
		}
		next := keys[i]&^0xff | ib.Key(w.r.IntN(256))
		w.post(ib.SendWR{Opcode: ib.OpBindMW, Bind: &ib.BindMW{Window: keys[i], NewKey: next, Region: w.region.LKey(), Addr: w.region.Addr(), Length: 8}})
		keys[i] = next
	case 4:
		if w.valid = !w.valid; !w.valid {
			op := ib.SendWR{Opcode: ib.OpLocalInv, InvalidateKey: *fastKey}
			if w.r.IntN(2) == 0 {
				op = ib.SendWR{Opcode: ib.OpReadInv, InvalidateKey: *fastKey, SGList: e.sge(0, w.r.IntN(3000)), Remote: peer.remote(0)}
			}
			w.post(op)
			return
		}
		next := *fastKey&^0xff | ib.Key(w.r.IntN(256))
		// After a READ that ends the key it needs the fence.
		w.post(ib.SendWR{Opcode: ib.OpRegMR, Fence: true, Reg: &ib.RegMR{Region: *fastKey, NewKey: next, Addr: 0x5000, Access: ib.LocalWrite}})
		*fastKey = next
	default:
		w.post(ib.SendWR{Opcode: ib.OpWrite, SGList: e.sge(w.r.IntN(1000), w.r.IntN(6000)), Remote: peer.remote(8)})
	}
}

// TestLocalOperationsUnderLoss: local operations among requests that are lost
// and sent again, one by one or all of them, are carried out once and complete
// in order (IBTA 10.8.3.3).
func TestLocalOperationsUnderLoss(t *testing.T) {
	t.Parallel()
	for seed := range testshort.Rounds[uint64](150) {
		r := rand.New(rand.NewPCG(seed, 7))
		p := newPair(t, pairConfig{mem: 1 << 16, attr: ib.Attr{PathMTU: rocev2.MTU512}, config: Config{ReadChunk: r.IntN(2) * 1024}})
		w := &localWorld{pair: p, r: r, bound: make([]bool, 3)}
		var err error
		w.region, err = p.a.table.Register(p.a.pd, memreg.Local(make([]byte, 8)), memreg.Options{Access: ib.LocalWrite | ib.MWBind})
		must(t, err)
		keys := make([]ib.Key, len(w.bound))
		for i := range keys {
			mw, err := p.a.table.AllocWindow(p.a.pd, ib.MWType2)
			must(t, err)
			w.windows, keys[i] = append(w.windows, mw), mw.RKey()
		}
		w.fast, err = p.a.table.AllocFast(p.a.pd, 64)
		must(t, err)
		must(t, w.fast.Map(memreg.Local(make([]byte, 64))))
		fastKey := w.fast.RKey()
		if seed%2 == 0 {
			p.a.SetReorder(NewPool(64))
			p.b.SetReorder(NewPool(64))
		}
		p.batches, p.bursts = r.IntN(2) == 0, r.IntN(2) == 0
		p.drop = func(*testEnd, *rocev2.Packet) bool { return r.IntN(12) == 0 }
		for range 120 {
			w.step(keys, &fastKey)
			if r.IntN(6) == 0 {
				w.settle()
				checkInvariants(t, p.a)
			}
		}
		p.drop = nil
		w.settle()
		if got, want := p.a.sq.statuses(), strings.Join(w.want, ", "); got != want {
			t.Fatalf("seed %d: completions\n%s\nwant\n%s", seed, got, want)
		}
		for i, mw := range w.windows {
			if mw.Grant().Alive() != w.bound[i] || mw.RKey() != keys[i] {
				t.Errorf("seed %d: window %d: bound %v under %v, want %v under %v", seed, i, mw.Grant().Alive(), mw.RKey(), w.bound[i], keys[i])
			}
		}
		if w.fast.Valid() != w.valid || w.fast.RKey() != fastKey {
			t.Errorf("seed %d: region valid %v under %v, want %v under %v", seed, w.fast.Valid(), w.fast.RKey(), w.valid, fastKey)
		}
		checkIdle(t, p.a)
		if t.Failed() {
			return
		}
	}
}
