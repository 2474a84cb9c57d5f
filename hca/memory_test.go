package hca

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

// A domain that is closed while a region of it is being closed waits for it:
// none is left allocated. The device's lock is held meanwhile, so that both
// stand in the middle of their work in ever another order.
func TestDomainWaitsForItsRegions(t *testing.T) {
	t.Parallel()
	o := newTestOwner(t)
	for range 200 {
		pd, err := o.AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var mrs []*MR
		for range 4 {
			mr, err := pd.Register(memreg.Local(make([]byte, 8)), memreg.Options{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			mrs = append(mrs, mr)
		}
		o.dev.mu.Lock()
		for _, mr := range mrs {
			wg.Go(func() { mr.Close() })
		}
		for range 20 {
			runtime.Gosched()
		}
		wg.Go(func() { pd.Close() })
		o.dev.mu.Unlock()
		if err := pd.Close(); err != nil { // at once, ahead of those that wait for the lock
			t.Errorf("Close: %v", err)
		}
		o.dev.mu.Lock()
		if err := o.dev.mem.DeallocPD(pd.core); !errors.Is(err, memreg.ErrPD) {
			t.Errorf("the domain is still allocated (%v)", err)
		}
		o.dev.mu.Unlock()
		wg.Wait()
		if t.Failed() {
			return
		}
	}
}

// Memory that cannot be given back is an error, and the domain goes all the
// same.
func TestDomainGoesDespiteErrors(t *testing.T) {
	t.Parallel()
	o := newTestOwner(t)
	pd, err := o.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	bad := errors.New("cannot be given back")
	for range 3 {
		if _, err := pd.Register(memreg.Local(make([]byte, 8)), memreg.Options{}, func() error { return bad }); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := pd.Close(); !errors.Is(err, bad) {
			t.Errorf("Close: %v", err)
		}
	}
	if n := o.dev.Stats().MRs; n != 0 || !errors.Is(o.dev.mem.DeallocPD(pd.core), memreg.ErrPD) {
		t.Errorf("the domain is there, with %d regions", n)
	}
}

// A region that was closed takes no memory of its domain, which may live long.
func TestClosedRegionLeavesItsDomain(t *testing.T) {
	t.Parallel()
	o := newTestOwner(t)
	pd, err := o.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		mr, err := pd.Register(memreg.Local(make([]byte, 8)), memreg.Options{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := mr.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(pd.regions); n != 0 {
		t.Errorf("the domain still knows %d regions", n)
	}
}

// A region that has other grants is not closed, nor is its domain; when they
// are revoked both can be.
func TestRegionInUseClosesLater(t *testing.T) {
	t.Parallel()
	o := newTestOwner(t)
	d := o.dev
	pd, err := o.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	for _, first := range []func(*MR) error{(*MR).Close, func(*MR) error { return pd.Close() }} {
		freed := 0
		mr, err := pd.Register(memreg.Local(make([]byte, 8)), memreg.Options{Access: ib.MWBind}, func() error { freed++; return nil })
		if err != nil {
			t.Fatal(err)
		}
		d.mu.Lock()
		g, err := d.mem.Grant(mr.Region(), memreg.GrantOptions{Length: 8, Access: ib.RemoteRead})
		d.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		if err := first(mr); !errors.Is(err, memreg.ErrRegionInUse) || freed != 0 || !mr.Region().Alive() {
			t.Fatalf("Close of a region in use: %v, freed %d", err, freed)
		}
		d.mu.Lock()
		d.mem.Revoke(g)
		d.mu.Unlock()
		for range 2 {
			if err := first(mr); err != nil || freed != 1 {
				t.Fatalf("Close when the grant is revoked: %v, freed %d", err, freed)
			}
		}
		if n := d.Stats().MRs; n != 0 {
			t.Errorf("%d regions are left", n)
		}
	}
	if !errors.Is(d.mem.DeallocPD(pd.core), memreg.ErrPD) {
		t.Error("the domain is still there")
	}
}
