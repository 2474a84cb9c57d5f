package memreg

import (
	"errors"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/internal/testshort"
	"github.com/gosoftroce/rocev2/rocev2"
)

// modelWindow is what the model knows of a window.
type modelWindow struct {
	w     *Window
	pd    *PD
	typ   ib.MWType
	key   ib.Key
	there bool

	on     *modelRegion // what it is bound to; nil: nothing
	off, n uint64
	access ib.Access
	qpn    rocev2.QPN
}

// modelFast is what the model knows of a fast registration region. Its current
// life is a region.
type modelFast struct {
	f      *FastRegion
	pd     *PD
	max    uint64
	mapped []byte
	key    ib.Key
	there  bool
	live   *modelRegion // nil: free
	lkey   ib.Key
}

func (w *world) windowsOn(m *modelRegion) (n int) {
	for _, x := range w.windows {
		if x.on == m {
			n++
		}
	}
	return n
}

func (w *world) allocWindow() {
	typ := ib.MWType(1 + w.next(2))
	pd := w.pds[w.next(len(w.pds))]
	x, err := w.tab.AllocWindow(pd, typ)
	if err != nil || x.Type() != typ || x.PD() != pd || x.Grant().Alive() {
		w.t.Fatalf("AllocWindow: %v", err)
	}
	w.windows = append(w.windows, &modelWindow{w: x, pd: pd, typ: typ, key: x.RKey(), there: true})
}

// target is what a bind names: a region, or the life of a fast registration
// region, with its lkey.
func (w *world) target() (*modelRegion, ib.Key) {
	if len(w.fasts) > 0 && w.next(3) == 0 {
		f := w.fasts[w.next(len(w.fasts))]
		return f.live, f.lkey
	}
	if len(w.regions) == 0 {
		return nil, ib.Key(w.next(256))
	}
	m := w.regions[w.next(len(w.regions))]
	return m, m.r.LKey()
}

var boundRights = []ib.Access{0, ib.RemoteRead, ib.RemoteWrite, ib.RemoteAtomic | ib.RemoteRead, ib.RemoteRead | ib.ZeroBased, ib.RemoteRead | ib.RelaxedOrdering, ib.LocalWrite}

func (w *world) bind() {
	if len(w.windows) == 0 {
		return
	}
	x := w.windows[w.next(len(w.windows))]
	pd, qpn := w.pds[w.next(len(w.pds))], rocev2.QPN(1+w.next(2))
	m, lkey := w.target()
	b := ib.BindMW{Window: x.key, NewKey: x.key&^0xff | ib.Key(w.next(256)), Region: lkey, Length: uint64(w.next(128)), Access: boundRights[w.next(len(boundRights))]}
	if m != nil {
		b.Addr = m.base + uint64(w.next(140)) - 4
	}
	switch w.next(16) {
	case 0:
		b.Window ^= ib.Key(1 + w.next(255))
	case 1:
		b.NewKey ^= 1 << 8
	case 2:
		b.Length = -b.Addr + uint64(w.next(3)) - 1 // ends around 2^64
	case 3:
		b.Length = math.MaxUint64 - uint64(w.next(256))
	}
	want := x.wantBind(pd, m, &b)
	wantFault(w.t, "Bind", w.tab.Bind(pd, qpn, &b), want)
	if want != ib.FaultNone {
		return
	}
	x.key, x.on = x.w.RKey(), nil
	if x.typ == ib.MWType2 && x.key != b.NewKey || x.typ == ib.MWType1 && (x.key == b.Window || x.key>>8 != b.Window>>8 || x.key != b.NewKey && b.NewKey != b.Window && b.NewKey>>8 == b.Window>>8) {
		w.t.Fatalf("bound under %v, asked for %v instead of %v", x.key, b.NewKey, b.Window)
	}
	if b.Length > 0 {
		x.on, x.off, x.n, x.access, x.qpn = m, b.Addr-m.base, b.Length, b.Access, qpn
	}
}

// wantBind is the model's answer to a bind.
func (x *modelWindow) wantBind(pd *PD, m *modelRegion, b *ib.BindMW) ib.Fault {
	if !x.there || b.Window != x.key {
		return ib.FaultUnknownKey
	}
	type2 := x.typ == ib.MWType2
	switch {
	case x.pd != pd:
		return ib.FaultWrongPD
	case type2 && x.on != nil:
		return ib.FaultState
	case type2 && b.NewKey>>8 != x.key>>8:
		return ib.FaultUnknownKey
	case !type2 && b.Length == 0:
		return ib.FaultNone
	case m == nil || !m.alive:
		return ib.FaultUnknownKey
	case m.pd != pd:
		return ib.FaultWrongPD
	}
	end, wrap := bits.Add64(b.Addr, b.Length, 0)
	switch {
	case !type2 && b.Access&ib.ZeroBased != 0, b.Access&ib.LocalWrite != 0, m.acc&ib.MWBind == 0,
		b.Access&(ib.RemoteWrite|ib.RemoteAtomic) != 0 && m.acc&ib.LocalWrite == 0:
		return ib.FaultNoAccess
	case b.Length == 0 || b.Addr < m.base || wrap != 0 || end > m.base+uint64(len(m.image)):
		return ib.FaultOutOfBounds
	}
	return ib.FaultNone
}

// endWindow invalidates or frees a window.
func (w *world) endWindow() {
	if len(w.windows) == 0 {
		return
	}
	x := w.windows[w.next(len(w.windows))]
	if w.next(6) == 0 {
		w.tab.FreeWindow(x.w) // of one that was freed: nothing happens
		x.there, x.on = false, nil
		return
	}
	pd, qpn := w.pds[w.next(len(w.pds))], rocev2.QPN(1+w.next(2))
	want := ib.FaultNone
	switch {
	case x.on == nil:
		want = ib.FaultUnknownKey
	case x.pd != pd:
		want = ib.FaultWrongPD
	case x.typ == ib.MWType1:
		want = ib.FaultNotInvalidatable
	case x.qpn != qpn:
		want = ib.FaultNoAccess
	default:
		x.on = nil
	}
	wantFault(w.t, "Invalidate", w.tab.Invalidate(pd, qpn, x.key), want)
}

// resolveWindow accesses memory through a window.
func (w *world) resolveWindow() {
	if len(w.windows) == 0 {
		return
	}
	x := w.windows[w.next(len(w.windows))]
	pd, qpn := w.pds[w.next(len(w.pds))], rocev2.QPN(1+w.next(2))
	need := boundRights[w.next(4)]
	var base uint64
	if x.on != nil && x.access&ib.ZeroBased == 0 {
		base = x.on.base + x.off
	}
	addr, length, key := base+uint64(w.next(64))-4, uint64(w.next(64)), x.key
	switch w.next(8) {
	case 0:
		length = math.MaxUint64 - uint64(w.next(256))
	case 1:
		key ^= ib.Key(1 + w.next(255))
	}
	want := ib.FaultNone
	end, wrap := bits.Add64(addr, length, 0)
	switch {
	case x.on == nil || key != x.key:
		want = ib.FaultUnknownKey
	case x.pd != pd:
		want = ib.FaultWrongPD
	case x.typ == ib.MWType2 && x.qpn != qpn, x.access&need != need:
		want = ib.FaultNoAccess
	case addr < base || wrap != 0 || end > base+x.n:
		want = ib.FaultOutOfBounds
	}
	v, f := w.tab.Resolve(pd, qpn, key, addr, length, need)
	if f != want {
		w.t.Fatalf("%d bytes at %#x through a window of %d at %#x: fault %q, want %q", length, addr, x.n, base, f, want)
	}
	if f == ib.FaultNone {
		w.useAny(x.on, v, addr-base+x.off, length)
		v.Release()
	}
}

// useAny is use for a region whose own struct the model does not know.
func (w *world) useAny(m *modelRegion, v View, off, length uint64) {
	if m.r == nil {
		m.r = v.Region()
		defer func() { m.r = nil }()
	}
	w.use(m, v, off, length)
}

func (w *world) allocFast() {
	pd, most := w.pds[w.next(len(w.pds))], uint64(1+w.next(128))
	f, err := w.tab.AllocFast(pd, most)
	if err != nil || f.Valid() {
		w.t.Fatalf("AllocFast: %v", err)
	}
	w.fasts = append(w.fasts, &modelFast{f: f, pd: pd, max: most, key: f.RKey(), lkey: f.LKey(), there: true})
}

// useFast maps memory to a fast registration region, registers it, accesses it,
// invalidates or frees it.
func (w *world) useFast() {
	if len(w.fasts) == 0 {
		return
	}
	x := w.fasts[w.next(len(w.fasts))]
	pd := w.pds[w.next(len(w.pds))]
	switch w.next(10) {
	case 0, 1:
		mem := make([]byte, w.next(140))
		err := x.f.Map(Local(mem))
		if ok := x.there && x.live == nil && len(mem) > 0 && uint64(len(mem)) <= x.max; ok != (err == nil) {
			w.t.Fatalf("Map of %d bytes of %d: %v", len(mem), x.max, err)
		} else if ok {
			x.mapped = mem
		}
	case 2, 3, 4:
		w.registerFast(x, pd)
	case 5:
		n := 0
		if x.live != nil {
			n = w.windowsOn(x.live)
		}
		if err := w.tab.FreeFast(x.f); errors.Is(err, ErrRegionInUse) != (n != 0) {
			w.t.Fatalf("FreeFast with %d windows: %v", n, err)
		}
		if n == 0 {
			w.endFast(x)
			x.there = false
		}
	case 6:
		w.invalidateFast(x, pd)
	default:
		w.resolveFast(x, pd)
	}
}

func (w *world) registerFast(x *modelFast, pd *PD) {
	b := ib.RegMR{Region: x.key, NewKey: x.key&^0xff | ib.Key(w.next(256)), Addr: bases[w.next(len(bases))], Access: rights[w.next(len(rights))]}
	if w.next(8) == 0 {
		b.NewKey ^= 1 << 8
	}
	_, wraps := bits.Add64(b.Addr, uint64(len(x.mapped)), 0)
	want := ib.FaultNone
	switch {
	case !x.there || b.NewKey>>8 != x.key>>8:
		want = ib.FaultUnknownKey
	case x.pd != pd:
		want = ib.FaultWrongPD
	case x.live != nil || x.mapped == nil:
		want = ib.FaultState
	case b.Access&(ib.RemoteWrite|ib.RemoteAtomic) != 0 && b.Access&ib.LocalWrite == 0:
		want = ib.FaultNoAccess
	case wraps != 0:
		want = ib.FaultOutOfBounds
	}
	wantFault(w.t, "RegisterFast", w.tab.RegisterFast(pd, &b), want)
	if want != ib.FaultNone {
		return
	}
	x.key, x.lkey = b.NewKey, x.lkey&^0xff|b.NewKey&0xff
	if x.f.RKey() != x.key || x.f.LKey() != x.lkey {
		w.t.Fatalf("keys %v and %v, want %v and %v", x.f.LKey(), x.f.RKey(), x.lkey, x.key)
	}
	x.live = &modelRegion{pd: x.pd, base: b.Addr, image: append([]byte(nil), x.mapped...), acc: b.Access, alive: true}
}

func (w *world) endFast(x *modelFast) {
	if x.live != nil {
		x.live.alive = false
		x.live = nil
	}
}

func (w *world) invalidateFast(x *modelFast, pd *PD) {
	want := ib.FaultNone
	switch {
	case x.live == nil:
		want = ib.FaultUnknownKey
	case x.pd != pd:
		want = ib.FaultWrongPD
	case w.windowsOn(x.live) > 0:
		want = ib.FaultState
	}
	wantFault(w.t, "Invalidate", w.tab.Invalidate(pd, 1, x.key), want)
	if want == ib.FaultNone {
		w.endFast(x)
	}
}

func (w *world) resolveFast(x *modelFast, pd *PD) {
	need, addr, length := rights[w.next(len(rights))], uint64(w.next(64))-4, uint64(w.next(140))
	want := ib.FaultUnknownKey
	if x.live != nil {
		addr += x.live.base
		want = x.live.want(pd, addr, length, need)
	}
	v, f := w.tab.Resolve(pd, 1, x.key, addr, length, need)
	if w.next(2) == 0 {
		v.Release()
		v, f = w.tab.ResolveLocal(pd, ib.SGE{Addr: addr, Length: uint32(length), LKey: x.lkey}, need)
	}
	wantFault(w.t, "access to a fast registration region", f, want)
	if f == ib.FaultNone {
		w.useAny(x.live, v, addr-x.live.base, length)
		v.Release()
	}
}

func runWindows(t *testing.T, in []byte) {
	rng := rand.New(rand.NewPCG(3, 4))
	w := &world{t: t, in: in, tab: NewTable(rng.Uint32)}
	w.pds = []*PD{w.tab.AllocPD(), w.tab.AllocPD()}
	steps := []func(){w.register, w.register, w.deregister, w.resolve, w.grant, w.endGrant, w.resolveGrant, w.allocWindow,
		w.bind, w.bind, w.bind, w.endWindow, w.resolveWindow, w.resolveWindow, w.allocFast, w.useFast, w.useFast, w.useFast}
	for len(w.in) > 0 && !t.Failed() {
		steps[w.next(len(steps))]()
	}
	for _, x := range w.windows {
		if x.there && (x.w.Grant().Alive() != (x.on != nil) || x.w.RKey() != x.key) || !x.there && x.w.RKey() != 0 {
			t.Fatalf("window alive %v under %v, want %v under %v", x.w.Grant().Alive(), x.w.RKey(), x.on != nil, x.key)
		}
		if n := x.w.Grant().pins.Load() &^ dead; n != 0 {
			t.Fatalf("%d pins on a window", n)
		}
	}
	for _, m := range w.regions {
		n := w.windowsOn(m)
		for _, g := range w.grants {
			if g.there && g.m == m {
				n++
			}
		}
		if m.alive && m.r.Bound() != n || pinsOf(m.r) != 0 {
			t.Fatalf("%d windows on a region, want %d; %d pins", m.r.Bound(), n, pinsOf(m.r))
		}
	}
}

func TestWindowModel(t *testing.T) {
	t.Parallel()
	for seed := range testshort.Rounds[uint64](300) {
		rng := rand.New(rand.NewPCG(seed, 98))
		in := make([]byte, 4000)
		for i := range in {
			in[i] = byte(rng.Uint32())
		}
		runWindows(t, in)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// FuzzWindows runs sequences of calls on windows, fast registration regions,
// regions and grants against the model.
func FuzzWindows(f *testing.F) {
	f.Add([]byte{0, 64, 4, 0, 7, 0, 1, 7, 1, 0, 8, 0, 0, 0, 1, 0, 4, 8, 1, 9, 12, 0, 0, 0, 1, 4, 8, 2, 11, 0, 1, 0, 0, 11, 0, 1, 0, 0})
	f.Add([]byte{14, 0, 100, 15, 0, 0, 0, 64, 15, 0, 0, 2, 5, 3, 6, 1, 15, 0, 0, 9, 5, 8, 4, 1, 15, 0, 0, 6})
	f.Fuzz(func(t *testing.T, in []byte) { runWindows(t, in) })
}
