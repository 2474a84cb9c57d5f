//go:build !portable

package owner_test

import (
	"math"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/transport/lease"
	"github.com/gosoftroce/rocev2/transport/owner"
	"github.com/gosoftroce/rocev2/verbs"
)

// A device that is opened again and again does not use up the slots. Without a
// queue pair none rests. Else Open waits until one has rested.
func TestOpenedOften(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	o := own(t, owner.Config{Slots: 8})
	for range 30 {
		openOn(t, "127.0.0.1", verbs.Config{}).Close()
	}
	if s := o.Stats(); s.Resting > 0 || s.Free != 7 {
		t.Errorf("after devices without a queue pair: %+v", s)
	}
	for i := range 9 {
		dev := openOn(t, "127.0.0.1", verbs.Config{})
		if _, err := newEnd(dev); err != nil {
			t.Fatal(err)
		}
		dev.Close()
		if s := o.Stats(); i == 0 && s.Resting != 1 {
			t.Errorf("after a queue pair: %+v", s)
		}
	}
}

// Leaseholders that lie do not have the sums over leases wrap.
func TestLiesDoNotWrap(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	o := own(t, owner.Config{})
	const most = math.MaxUint64
	for range 3 {
		c := knock(t, o)
		say := func(m *lease.Message) {
			t.Helper()
			if _, err := c.Write(m.Append(nil)); err != nil {
				t.Fatal(err)
			}
		}
		say(&lease.Message{Hello: &lease.Hello{Version: lease.Version, Shards: 1}})
		if _, err := c.Read(make([]byte, lease.MaxMessage)); err != nil {
			t.Fatal(err)
		}
		say(&lease.Message{Tell: &lease.Counts{MadeQPs: most, TxPackets: most, RxPackets: most, TxBytes: most, RxBytes: most, TxShm: most, RxShm: most}})
		say(&lease.Message{Reserve: &lease.Service{ID: 1, Mask: most}}) // whose answer comes after that
		if _, err := c.Read(make([]byte, lease.MaxMessage)); err != nil {
			t.Fatal(err)
		}
	}
	var sum uint64
	for _, l := range o.Leases() {
		for _, n := range []uint64{l.MadeQPs, l.TxPackets, l.RxPackets, l.TxBytes, l.RxBytes, l.TxShm, l.RxShm} {
			if sum+n < sum || n == 0 {
				t.Fatalf("%d and %d", sum, n)
			}
			sum += n
		}
	}
	a := owner.Lease{TxBytes: most - 1}
	if a.Add(&owner.Lease{TxBytes: 5, RxBytes: 6}); a.TxBytes != most || a.RxBytes != 6 {
		t.Errorf("sums %+v", a)
	}
}
