package memreg

import (
	"bytes"
	"errors"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

// modelRegion is what the model knows of a region.
type modelRegion struct {
	r     *Region
	pd    *PD
	base  uint64
	image []byte
	acc   ib.Access
	alive bool
}

// world runs an operation sequence on a Table and on the model.
type world struct {
	t       *testing.T
	in      []byte
	tab     *Table
	pds     []*PD
	regions []*modelRegion
	grants  []*modelGrant
	windows []*modelWindow
	fasts   []*modelFast
}

// modelGrant is what the model knows of a grant on a part of a region.
type modelGrant struct {
	g     *Grant
	m     *modelRegion
	o     GrantOptions
	alive bool // neither revoked nor invalidated
	there bool // not revoked
}

// next is the next number below n of the sequence; 0 at its end.
func (w *world) next(n int) int {
	if len(w.in) == 0 {
		return 0
	}
	b := int(w.in[0])
	w.in = w.in[1:]
	return b % n
}

// bases are addresses where sums wrap or almost do.
var bases = []uint64{0, 1, 8, 4096, 1<<32 - 8, 1 << 32, 1<<63 - 8, 1 << 63, math.MaxUint64 - 300, math.MaxUint64 - 64, math.MaxUint64 - 8, math.MaxUint64}

var rights = []ib.Access{0, ib.LocalWrite, ib.RemoteRead, ib.RemoteWrite, ib.LocalWrite | ib.RemoteWrite, ib.LocalWrite | ib.RemoteAtomic, all, all | ib.MWBind, ib.LocalWrite | ib.RemoteRead}

func (w *world) register() {
	n := w.next(256)
	base := bases[w.next(len(bases))] + uint64(w.next(3))
	acc := rights[w.next(len(rights))]
	pd := w.pds[w.next(len(w.pds))]
	m := Local(make([]byte, n))
	if w.next(4) == 0 {
		m = newForeign(n)
	}
	r, err := w.tab.Register(pd, m, Options{Access: acc, Base: BaseIOVA, IOVA: base})
	_, wraps := bits.Add64(base, uint64(n), 0)
	bad := n == 0 || wraps != 0 || acc&(ib.RemoteWrite|ib.RemoteAtomic) != 0 && acc&ib.LocalWrite == 0
	if bad != (err != nil) {
		w.t.Fatalf("Register of %d bytes at %#x with %v: %v", n, base, acc, err)
	}
	if err == nil {
		w.regions = append(w.regions, &modelRegion{r, pd, base, make([]byte, n), acc, true})
	}
}

func (w *world) deregister() {
	if len(w.regions) == 0 {
		return
	}
	m := w.regions[w.next(len(w.regions))]
	n := 0
	for _, g := range w.grants {
		if g.there && g.m == m {
			n++
		}
	}
	n += w.windowsOn(m)
	err := w.tab.Deregister(m.r) // of a dead one: nothing happens
	if errors.Is(err, ErrRegionInUse) != (n != 0) {
		w.t.Fatalf("Deregister with %d grants: %v", n, err)
	}
	m.alive = m.alive && n != 0
}

// want is the model's answer, by arithmetic in 65 bits.
func (m *modelRegion) want(pd *PD, addr, length uint64, need ib.Access) ib.Fault {
	end, wrap := bits.Add64(addr, length, 0)
	switch {
	case !m.alive:
		return ib.FaultUnknownKey
	case m.pd != pd:
		return ib.FaultWrongPD
	case m.acc&need != need:
		return ib.FaultNoAccess
	case addr < m.base || wrap != 0 || end > m.base+uint64(len(m.image)):
		return ib.FaultOutOfBounds
	}
	return ib.FaultNone
}

func (w *world) resolve() {
	if len(w.regions) == 0 {
		return
	}
	m := w.regions[w.next(len(w.regions))]
	pd := w.pds[w.next(len(w.pds))]
	need := rights[w.next(len(rights))]
	addr := m.base + uint64(w.next(256)) - 8
	length := uint64(w.next(256))
	switch w.next(8) {
	case 0:
		length = -addr + uint64(w.next(3)) - 1 // ends around 2^64
	case 1:
		length = math.MaxUint64 - uint64(w.next(256))
	case 2:
		addr = bases[w.next(len(bases))] - uint64(w.next(3))
	}
	local := w.next(2) == 0
	var v View
	var f ib.Fault
	if local {
		length &= math.MaxUint32
		v, f = w.tab.ResolveLocal(pd, ib.SGE{Addr: addr, Length: uint32(length), LKey: m.r.LKey()}, need)
	} else {
		v, f = w.tab.Resolve(pd, 1, m.r.RKey(), addr, length, need)
	}
	if want := m.want(pd, addr, length, need); f != want {
		w.t.Fatalf("%d bytes at %#x, region of %d at %#x: fault %q, want %q", length, addr, len(m.image), m.base, f, want)
	}
	if f == ib.FaultNone {
		w.use(m, v, addr-m.base, length)
		v.Release()
	}
}

// use writes through the view and compares the whole region with the model.
func (w *world) use(m *modelRegion, v View, off, length uint64) {
	if v.Len() != length || v.Region() != m.r {
		w.t.Fatalf("view of %d bytes, want %d", v.Len(), length)
	}
	src := bytes.Repeat([]byte{byte(w.next(256))}, int(length))
	wantFault(w.t, "CopyIn", v.CopyIn(0, src), ib.FaultNone)
	copy(m.image[off:], src)
	got := make([]byte, len(m.image))
	if err := m.r.Memory().CopyOut(got, 0); err != nil || !bytes.Equal(got, m.image) {
		w.t.Fatalf("memory differs from the model after %d bytes at %d: %v", length, off, err)
	}
}

// copyList moves bytes through a list of entries of several regions.
func (w *world) copyList() {
	pd := w.pds[0]
	var sg []ib.SGE
	var flat []byte
	for range w.next(5) {
		if len(w.regions) == 0 {
			break
		}
		m := w.regions[w.next(len(w.regions))]
		if m.want(pd, m.base, 0, 0) != ib.FaultNone {
			continue
		}
		off := w.next(len(m.image))
		n := w.next(len(m.image) - off + 1)
		sg = append(sg, m.r.SGE(uint64(off), uint32(n)))
		flat = append(flat, m.image[off:off+n]...)
	}
	off, n := w.next(256), w.next(256)
	dst := make([]byte, n)
	f := w.tab.Gather(pd, sg, uint64(off), dst)
	if off+n > len(flat) {
		wantFault(w.t, "Gather beyond the list", f, ib.FaultOutOfBounds)
		return
	}
	if f != ib.FaultNone || !bytes.Equal(dst, flat[off:off+n]) {
		w.t.Fatalf("Gather of %d at %d: %v", n, off, f)
	}
}

func runModel(t *testing.T, in []byte) {
	rng := rand.New(rand.NewPCG(1, 2))
	w := &world{t: t, in: in, tab: NewTable(rng.Uint32)}
	w.pds = []*PD{w.tab.AllocPD(), w.tab.AllocPD()}
	for len(w.in) > 0 {
		switch w.next(12) {
		case 0, 1:
			w.register()
		case 2:
			w.deregister()
		case 3:
			w.copyList()
		case 8:
			w.grant()
		case 9:
			w.endGrant()
		case 10, 11:
			w.resolveGrant()
		default:
			w.resolve()
		}
	}
	live := 0
	for _, m := range w.regions {
		if m.alive != m.r.Alive() || pinsOf(m.r) != 0 {
			t.Fatalf("region alive %v, want %v; %d pins", m.r.Alive(), m.alive, pinsOf(m.r))
		}
		if m.alive {
			live++
		}
	}
	if n := len(slices.Collect(w.tab.All())); n != live || w.tab.Regions() != live {
		t.Fatalf("All yields %d regions, Regions is %d, want %d", n, w.tab.Regions(), live)
	}
}

func TestModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 99))
		in := make([]byte, 3000)
		for i := range in {
			in[i] = byte(rng.Uint32())
		}
		runModel(t, in)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzModel(f *testing.F) {
	f.Add([]byte{0, 64, 9, 0, 6, 0, 0, 4, 0, 0, 0, 8, 16, 7, 1})
	f.Add([]byte{0, 255, 10, 0, 6, 0, 1, 2, 0, 5, 0, 0, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, in []byte) { runModel(t, in) })
}
