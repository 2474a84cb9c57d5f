package memreg

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/gosoftroce/rocev2/ib"
)

// liar claims a length that its bytes do not have.
type liar struct{ Memory }

func (liar) Len() uint64 { return 100 }

// A registration that cannot work is refused, such as remote write without
// local write (IBTA 11.2.8.2).
func TestRegisterRefuses(t *testing.T) {
	t.Parallel()
	tab, other := newTable(1), newTable(2)
	pd, gone := tab.AllocPD(), tab.AllocPD()
	if err := tab.DeallocPD(gone); err != nil {
		t.Fatal(err)
	}
	buf := Local(make([]byte, 64))
	for _, c := range []struct {
		name string
		pd   *PD
		m    Memory
		o    Options
		want error
		text string
	}{
		{"no domain", nil, buf, Options{}, ErrPD, ""},
		{"domain of another table", other.AllocPD(), buf, Options{}, ErrPD, ""},
		{"deallocated domain", gone, buf, Options{}, ErrPD, ""},
		{"nil memory", pd, nil, Options{}, ErrMemory, "nil"},
		{"length 0", pd, Local(nil), Options{}, ErrLength, "0 bytes"},
		{"length 0, not nil", pd, Local([]byte{}), Options{Base: BaseZero}, ErrLength, "0 bytes"},
		{"lying length", pd, liar{buf}, Options{}, ErrLength, "Len is 100"},
		{"remote write without local write", pd, buf, Options{Access: ib.RemoteWrite}, ErrAccess, "RemoteWrite needs LocalWrite"},
		{"remote atomic without local write", pd, buf, Options{Access: ib.RemoteAtomic | ib.RemoteRead}, ErrAccess, "RemoteAtomic needs LocalWrite"},
		{"unknown right", pd, buf, Options{Access: ib.LocalWrite | 0x80}, ErrAccess, "0x80"},
		{"unknown high right", pd, buf, Options{Access: 1 << 31}, ErrAccess, "0x80000000"},
		{"local write on read-only memory", pd, readOnly{buf}, Options{Access: ib.LocalWrite}, ErrAccess, "read-only"},
		{"IOVA without asking for it", pd, buf, Options{IOVA: 4096}, ErrAddress, "without BaseIOVA"},
		{"IOVA and zero-based", pd, buf, Options{IOVA: 4096, Base: BaseZero}, ErrAddress, "without BaseIOVA"},
		{"BaseIOVA and the ZeroBased right", pd, buf, Options{IOVA: 1, Base: BaseIOVA, Access: ib.ZeroBased}, ErrAddress, "both"},
		{"unknown base", pd, buf, Options{Base: 9}, ErrAddress, "base kind 9"},
		{"real address of foreign memory", pd, newForeign(64), Options{}, ErrAddress, "real address"},
		{"wrap", pd, buf, Options{Base: BaseIOVA, IOVA: math.MaxUint64 - 62}, ErrAddress, "wrap"},
		{"end exactly at 2^64", pd, buf, Options{Base: BaseIOVA, IOVA: math.MaxUint64 - 63}, ErrAddress, "wrap"},
	} {
		r, err := tab.Register(c.pd, c.m, c.o)
		if r != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, %v; want %v", c.name, r, err, c.want)
		} else if !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: error %q does not say %q", c.name, err, c.text)
		}
	}
	if tab.Regions() != 0 || pd.Regions() != 0 {
		t.Errorf("refused registrations counted: %d in the table, %d in the domain", tab.Regions(), pd.Regions())
	}
}

func TestRegisterAddress(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	b := make([]byte, 64)
	for _, c := range []struct {
		name string
		o    Options
		want uint64
	}{
		{"real", Options{}, uint64(uintptr(unsafe.Pointer(&b[0])))},
		{"IOVA", Options{Base: BaseIOVA, IOVA: 0x7000_0000_1234}, 0x7000_0000_1234},
		{"IOVA 0", Options{Base: BaseIOVA}, 0},
		{"the last address that fits", Options{Base: BaseIOVA, IOVA: math.MaxUint64 - 64}, math.MaxUint64 - 64},
		{"zero-based", Options{Base: BaseZero}, 0},
		{"zero-based by right", Options{Access: ib.ZeroBased | ib.LocalWrite}, 0},
		{"optional rights are ignored", Options{Access: ib.RelaxedOrdering | 1<<29, Base: BaseZero}, 0},
	} {
		r := mustRegister(t, tab, pd, Local(b), c.o)
		if r.Addr() != c.want || r.Len() != 64 {
			t.Errorf("%s: %d bytes at %#x, want 64 at %#x", c.name, r.Len(), r.Addr(), c.want)
		}
		if got := r.Access()&ib.ZeroBased != 0; got != (c.o.Base == BaseZero || c.o.Access&ib.ZeroBased != 0) {
			t.Errorf("%s: ZeroBased reported %v", c.name, got)
		}
	}
}

func TestRegionSaysWhatItIs(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	m := Local(make([]byte, 64))
	r := mustRegister(t, tab, pd, m, Options{Access: ib.RemoteRead, Base: BaseIOVA, IOVA: 1000})
	if r.PD() != pd || r.Access() != ib.RemoteRead || !r.Alive() {
		t.Errorf("region is %+v", r)
	}
	if &r.Memory().Bytes()[0] != &m.Bytes()[0] {
		t.Error("Memory is not what was registered")
	}
	if s := r.SGE(8, 16); s != (ib.SGE{Addr: 1008, Length: 16, LKey: r.LKey()}) {
		t.Errorf("SGE(8, 16) = %+v", s)
	}
}

// A domain with regions cannot be deallocated (IBTA 10.2.3).
func TestPD(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	a := mustRegister(t, tab, pd, Local(make([]byte, 8)), Options{})
	b := mustRegister(t, tab, pd, Local(make([]byte, 8)), Options{})
	mustDeregister(t, tab, a)
	if err := tab.DeallocPD(pd); !errors.Is(err, ErrPDInUse) || !strings.Contains(err.Error(), "1") {
		t.Errorf("DeallocPD with a region left: %v", err)
	}
	mustDeregister(t, tab, b)
	tab.Deregister(b) // again: nothing happens
	mustDeregister(t, tab, nil)
	newTable(2).Deregister(mustRegister(t, tab, pd, Local(make([]byte, 8)), Options{}))
	if pd.Regions() != 1 || tab.Regions() != 1 {
		t.Errorf("%d and %d regions, want 1: another table's Deregister must not touch it", pd.Regions(), tab.Regions())
	}
	for r := range tab.All() {
		mustDeregister(t, tab, r)
	}
	if err := tab.DeallocPD(pd); err != nil {
		t.Errorf("DeallocPD of an empty domain: %v", err)
	}
	if err := tab.DeallocPD(pd); !errors.Is(err, ErrPD) {
		t.Errorf("DeallocPD twice: %v", err)
	}
	if err := tab.DeallocPD(nil); !errors.Is(err, ErrPD) {
		t.Errorf("DeallocPD(nil): %v", err)
	}
}

func TestAllYieldsEachRegionOnce(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	want := map[*Region]bool{}
	for range 500 {
		want[mustRegister(t, tab, pd, Local(make([]byte, 8)), Options{})] = true
	}
	all := slices.Collect(tab.All())
	if len(all) != len(want) {
		t.Fatalf("%d regions, want %d", len(all), len(want))
	}
	for _, r := range all {
		if !want[r] {
			t.Fatal("a region appeared twice")
		}
		delete(want, r)
	}
	for r := range tab.All() {
		if r != all[0] {
			t.Error("order changed without a change")
		}
		break
	}
}

func TestNewTableNeedsRandom(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("NewTable(nil) did not panic")
		}
	}()
	NewTable(nil)
}

func TestNames(t *testing.T) {
	t.Parallel()
	for f := ib.FaultNone; f <= ib.FaultMemory; f++ {
		if s := f.String(); s == "" || strings.HasPrefix(s, "fault ") {
			t.Errorf("fault %d has no name", f)
		}
	}
	if s := ib.Fault(200).Error(); s != "fault 200" {
		t.Errorf("unknown fault: %q", s)
	}
	if ib.FaultNone.Err() != nil || !errors.Is(ib.FaultWrongPD.Err(), ib.FaultWrongPD) {
		t.Error("Err is wrong")
	}
	for a, want := range map[ib.Access]string{
		0:                             "LocalRead",
		ib.LocalWrite | ib.RemoteRead: "LocalWrite|RemoteRead",
		ib.MWBind | 1<<31:             "MWBind|0x80000000",
	} {
		if a.String() != want {
			t.Errorf("Access %#x prints %q, want %q", uint32(a), a, want)
		}
	}
	if s := ib.Key(0xabc).String(); s != "0x00000abc" {
		t.Errorf("Key prints %q", s)
	}
}
