package hca

import (
	"errors"
	"io"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
)

// maker makes one object of a kind.
type maker func() (io.Closer, error)

// makers returns what makes an object of each kind in the context, which has a
// domain and a completion queue already.
func makers(t *testing.T, c *Context) [numKinds]maker {
	t.Helper()
	pd, err := c.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := c.CreateCQ(4, nil)
	if err != nil {
		t.Fatal(err)
	}
	member, err := c.CreateQP(qp.Config{Type: ib.UD, PD: pd.Core(), SendCQ: cq, RecvCQ: cq})
	if err != nil {
		t.Fatal(err)
	}
	var attached atomic.Uint32
	return [numKinds]maker{
		kindQP:      func() (io.Closer, error) { return c.CreateQP(qp.Config{PD: pd.Core(), SendCQ: cq, RecvCQ: cq}) },
		kindCQ:      func() (io.Closer, error) { return c.CreateCQ(4, nil) },
		kindChannel: func() (io.Closer, error) { return c.CreateCompChannel(false) },
		kindPD:      func() (io.Closer, error) { return c.AllocPD() },
		kindAH: func() (io.Closer, error) {
			h := new(AH)
			return h, pd.MakeAH(h, ib.AddressVector{DGID: c.dev.own.Addr})
		},
		kindAttach: func() (io.Closer, error) {
			a := attachment{member, netip.AddrFrom4([4]byte{239, 1, byte(attached.Load() >> 8), byte(attached.Add(1))})}
			return a, member.Attach(a.group)
		},
		kindMR: func() (io.Closer, error) {
			return pd.Register(memreg.Local(make([]byte, 8)), memreg.Options{}, nil)
		},
		kindSRQ:  func() (io.Closer, error) { return pd.CreateSRQ(SRQConfig{MaxWR: 1, MaxSGE: 1}) },
		kindMW:   func() (io.Closer, error) { return pd.AllocMW(ib.MWType2) },
		kindXRCD: func() (io.Closer, error) { return c.OpenXRCD() },
	}
}

// there is how many objects of each kind makers has made.
var there = objects{kindPD: 1, kindCQ: 1, kindQP: 1}

// attachment is a queue pair in a group.
type attachment struct {
	q     *QP
	group netip.Addr
}

func (a attachment) Close() error { return a.q.Detach(a.group) }

// fill makes objects until that fails, and returns them and the error.
func fill(f maker) (made []io.Closer, err error) {
	for {
		obj, err := f()
		if err != nil {
			return made, err
		}
		made = append(made, obj)
	}
}

// A context has no more objects of a kind than its quota says, whatever others
// have; and what is closed may be made anew.
func TestQuotaOfAContext(t *testing.T) {
	t.Parallel()
	o := newTestOwner(t)
	quota := Quota{QPs: 3, CQs: 4, Channels: 5, PDs: 6, MRs: 7, AHs: 8, SRQs: 9, MWs: 10, Attach: 11, XRCDs: 12}
	most := objects{kindQP: 3, kindCQ: 4, kindChannel: 5, kindPD: 6, kindMR: 7, kindAH: 8, kindSRQ: 9, kindMW: 10, kindAttach: 11, kindXRCD: 12}
	for range 2 { // beside each other
		c, err := o.dev.NewContext(WithQuota(quota))
		if err != nil {
			t.Fatal(err)
		}
		for k, f := range makers(t, c) {
			for range 2 {
				made, err := fill(f)
				if len(made)+there[k] != most[k] || !errors.Is(err, ErrNoResources) || !strings.Contains(err.Error(), kindNames[k]+" in one context") {
					t.Errorf("%d %s were made, then: %v", len(made), kindNames[k], err)
				}
				for _, obj := range made {
					if err := obj.Close(); err != nil {
						t.Error(err)
					}
				}
			}
		}
		if c.count != there {
			t.Errorf("counted are %v", c.count)
		}
	}
}

// The limits of the device hold for all contexts together, and for the quotas.
func TestLimitsOfADevice(t *testing.T) {
	t.Parallel()
	o := newTestOwner(t)
	d := o.dev
	for k := range d.stock.limits {
		d.stock.limits[k] = 10
	}
	var contexts []*Context
	for range 2 {
		c, err := d.NewContext(WithQuota(Quota{QPs: 1000, CQs: 8, MRs: 10}))
		if err != nil {
			t.Fatal(err)
		}
		contexts = append(contexts, c)
	}
	for k := range numKinds {
		total := 0
		var of [2][numKinds]maker
		for i, c := range contexts {
			of[i] = makers(t, c)
		}
		for i := range contexts {
			made, err := fill(of[i][k])
			if !errors.Is(err, ErrNoResources) {
				t.Errorf("%s: %v", kindNames[k], err)
			}
			total += len(made)
		}
		d.mu.Lock()
		if d.stock.count[k] != 10 || total+2*there[k] != 10 && k != kindCQ && k != kindPD {
			t.Errorf("%d %s were made, %d are counted", total, kindNames[k], d.stock.count[k])
		}
		d.mu.Unlock()
		for i, c := range contexts {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			var err error
			if contexts[i], err = d.NewContext(WithQuota(Quota{CQs: 8})); err != nil {
				t.Fatal(err)
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stock.count != (objects{}) {
		t.Errorf("with all contexts closed %v are counted", d.stock.count)
	}
}

// A field of 0 is no limit of its own, a negative one allows nothing.
func TestQuotaFields(t *testing.T) {
	t.Parallel()
	var device objects
	for k := range device {
		device[k] = 10 * (k + 1)
	}
	if got := (Quota{}).within(device); got != device {
		t.Errorf("no quota: %v", got)
	}
	want := device
	want[kindCQ], want[kindChannel], want[kindMR], want[kindSRQ] = 1, 0, device[kindMR]-1, device[kindSRQ]-1
	q := Quota{QPs: device[kindQP] + 1, CQs: 1, Channels: -1, PDs: device[kindPD], MRs: device[kindMR] - 1, SRQs: device[kindSRQ] - 1}
	if got := q.within(device); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// What is made beside a Close of the context is closed, or refused; and nothing
// stays counted.
func TestQuotaBesideClose(t *testing.T) {
	t.Parallel()
	link, other := fabric.Pair(testAddrA, testAddrB)
	d := New(Config{}, link)
	t.Cleanup(func() { d.Close(); other.Close() })
	for range 10 {
		c, err := d.NewContext()
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var begun atomic.Int32
		for _, f := range makers(t, c) {
			wg.Go(func() {
				for {
					_, err := f()
					begun.Add(1)
					if err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		wg.Go(func() {
			for begun.Load() < 20 {
				runtime.Gosched()
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		d.mu.Lock()
		if d.stock.count != (objects{}) || c.count != (objects{}) {
			t.Errorf("%v are counted, %v in the context", d.stock.count, c.count)
		}
		d.mu.Unlock()
	}
}
