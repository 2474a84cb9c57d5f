package memreg

import (
	"errors"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/gosoftroce/rocev2/ib"
)

func TestBucketIsACacheLine(t *testing.T) {
	t.Parallel()
	if n := unsafe.Sizeof(bucket{}); unsafe.Sizeof(uintptr(0)) == 8 && n != 64 {
		t.Errorf("a bucket has %d bytes", n)
	}
	if n := unsafe.Sizeof(Region{}); unsafe.Sizeof(uintptr(0)) == 8 && n != 128 {
		t.Errorf("a region has %d bytes", n)
	}
	// What the lookup of an rkey reads of a region is in its first line,
	// and the grant of the lkey is in the second.
	var r Region
	if end := unsafe.Offsetof(r.remote) + unsafe.Sizeof(r.remote); unsafe.Sizeof(uintptr(0)) == 8 && end > 64 {
		t.Errorf("Region.remote ends at %d", end)
	}
	if o := unsafe.Offsetof(r.local); unsafe.Sizeof(uintptr(0)) == 8 && o != 64 {
		t.Errorf("Region.local is at %d", o)
	}
}

// A small key space makes collisions, full buckets and keys in quarantine
// common.
func TestKeyTableAgainstMap(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 7))
	random := func() uint32 { return rng.Uint32() & 0xffff }
	var kt keyTable
	kt.init()
	kt.limit = 64
	model := map[ib.Key]*Grant{}
	var live []ib.Key
	check := func(key ib.Key) {
		t.Helper()
		if got := kt.lookup(key); got != model[key] {
			t.Fatalf("lookup(%v) = %p, want %p", key, got, model[key])
		}
	}
	var biggest int
	for phase, target := range []int{300, 10, 9000, 200, 0, 5000, 0} {
		for range 12000 {
			// Registration and deregistration are mixed, with a
			// drift to the target.
			if len(live) < target && rng.IntN(4) != 0 || len(live) == 0 {
				kt.reserve(2)
				key, ok := kt.draw(random, 0)
				if !ok {
					t.Fatalf("phase %d: no key with %d live", phase, len(live))
				}
				if key == 0 || model[key] != nil || kt.quarantined(key) {
					t.Fatalf("drew %v, which is in use or in quarantine", key)
				}
				r := &Grant{key: key}
				kt.insert(key, r)
				model[key] = r
				live = append(live, key)
			} else {
				i := rng.IntN(len(live))
				key := live[i]
				live[i] = live[len(live)-1]
				live = live[:len(live)-1]
				delete(model, key)
				kt.kill(key)
				kt.trim()
				if !kt.quarantined(key) {
					t.Fatalf("%v is not in quarantine", key)
				}
				check(key)
			}
			check(ib.Key(random()))
			if len(live) > 0 {
				check(live[rng.IntN(len(live))])
			}
		}
		for _, key := range live {
			check(key)
		}
		biggest = max(biggest, len(*kt.buckets.Load()))
	}
	if kt.used != len(live)+len(kt.killed) || len(kt.killed) != kt.limit {
		t.Errorf("%d slots used by %d live and %d killed keys", kt.used, len(live), len(kt.killed))
	}
	if size := len(*kt.buckets.Load()); size >= biggest || kt.used > 3*size {
		t.Errorf("%d of at most %d buckets left for %d keys", size, biggest, kt.used)
	}
}

func TestShrinkThatDoesNotFit(t *testing.T) {
	t.Parallel()
	var kt keyTable
	kt.init()
	kt.rebuild(2 * minBuckets)
	// Six keys that share their low bits but for the highest.
	r := &Grant{}
	for i := range ib.Key(6) {
		kt.insert(i<<16|i%2*minBuckets|1, r)
	}
	if kt.rebuild(minBuckets) {
		t.Fatal("six keys fit in a bucket of five")
	}
	kt.shrinkAt = 6
	kt.trim()
	if len(*kt.buckets.Load()) != 2*minBuckets || kt.shrinkAt != 3 {
		t.Errorf("%d buckets, next try at %d keys", len(*kt.buckets.Load()), kt.shrinkAt)
	}
	for i := range ib.Key(6) {
		if kt.lookup(i<<16|i%2*minBuckets|1) != r {
			t.Errorf("key %d is lost", i)
		}
	}
}

func TestKilledKeysAreNotReusedSoon(t *testing.T) {
	t.Parallel()
	// The source repeats the keys of the first region for ever, then new
	// ones.
	draws := []uint32{11, 22}
	next := uint32(100)
	replay := 0
	tab := NewTable(func() uint32 {
		if replay++; replay%3 != 0 {
			return draws[replay%3-1]
		}
		next++
		return next
	})
	pd := tab.AllocPD()
	first := mustRegister(t, tab, pd, Local(make([]byte, 8)), Options{})
	if first.LKey() != 11 || first.RKey() != 22 {
		t.Fatalf("keys %v and %v", first.LKey(), first.RKey())
	}
	mustDeregister(t, tab, first)
	killed := 0
	for ; killed < 10*quarantineKeys; killed += 2 {
		r := mustRegister(t, tab, pd, Local(make([]byte, 8)), Options{})
		if r.LKey() == 11 || r.LKey() == 22 {
			break
		}
		mustDeregister(t, tab, r)
	}
	if killed < quarantineKeys-2 || killed > quarantineKeys {
		t.Errorf("a key came back after %d others, want %d", killed, quarantineKeys)
	}
}

func TestBadRandomSources(t *testing.T) {
	t.Parallel()
	for name, random := range map[string]func() uint32{
		"zero":     func() uint32 { return 0 },
		"constant": func() uint32 { return 42 },
	} {
		tab := NewTable(random)
		pd := tab.AllocPD()
		r, err := tab.Register(pd, Local(make([]byte, 8)), Options{})
		if r != nil || !errors.Is(err, ErrExhausted) {
			t.Errorf("%s: %v, %v", name, r, err)
		}
		if tab.Regions() != 0 || pd.Regions() != 0 || tab.keys.used != 0 {
			t.Errorf("%s: a refused registration left something behind", name)
		}
	}
}

// The key that is drawn beside another of the same bucket needs a second free
// slot.
func TestDrawLeavesRoomForTheOther(t *testing.T) {
	t.Parallel()
	var kt keyTable
	kt.init()
	for i := range ib.Key(4) {
		kt.insert((i+1)*minBuckets, &Grant{})
	}
	source := []uint32{9 * minBuckets, 10 * minBuckets, 11*minBuckets + 1}
	random := func() uint32 { k := source[0]; source = source[1:]; return k }
	a, _ := kt.draw(random, 0)
	b, _ := kt.draw(random, a)
	if a != 9*minBuckets || b != 11*minBuckets+1 {
		t.Errorf("drew %v and %v", a, b)
	}
}

func TestKeysAreDistinct(t *testing.T) {
	t.Parallel()
	tab := newTable(3)
	pd := tab.AllocPD()
	seen := map[ib.Key]bool{0: true}
	for range 20000 {
		r := mustRegister(t, tab, pd, Local(make([]byte, 8)), Options{})
		if seen[r.LKey()] || seen[r.RKey()] || r.LKey() == r.RKey() {
			t.Fatalf("keys %v, %v are not new", r.LKey(), r.RKey())
		}
		seen[r.LKey()], seen[r.RKey()] = true, true
	}
}

// A region can have the key that its peer was told, unless something has it, or
// had it lately.
func TestKeyThatWasTold(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	const told = ib.Key(0xc0ffee01)
	register := func() (*Region, error) {
		return tab.Register(pd, Local(make([]byte, 64)), Options{Access: ib.LocalWrite | ib.RemoteWrite, Key: told})
	}
	r, err := register()
	if err != nil || r.RKey() != told || r.LKey() == told {
		t.Fatalf("%v, %v", r, err)
	}
	if _, err := register(); !errors.Is(err, ErrExhausted) {
		t.Errorf("a second one: %v", err)
	}
	if err := tab.Deregister(r); err != nil {
		t.Fatal(err)
	}
	if _, err := register(); !errors.Is(err, ErrExhausted) {
		t.Errorf("a third one, in quarantine: %v", err)
	}
}

// There is room for any key that is free: the table grows for it.
func TestKeysThatWereTold(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	rng := rand.New(rand.NewPCG(1, 2))
	const n = 20_000
	for i := range n {
		if _, err := tab.Register(pd, Local(make([]byte, 8)), Options{Key: ib.Key(max(rng.Uint32(), 1))}); err != nil {
			t.Fatalf("region %d: %v", i, err)
		}
	}
	if size := len(*tab.keys.buckets.Load()); size > 8*n {
		t.Errorf("the table has %d buckets for %d regions", size, n)
	}
}
