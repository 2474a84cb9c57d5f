package server

import (
	"fmt"
	"testing"

	"github.com/gosoftroce/rocev2/transport/owner"
)

// Commands are what processes say: the label values are bounded, nothing is
// lost, and a sum does not go back when a lease ends.
func TestLeaseTotals(t *testing.T) {
	t.Parallel()
	p := newPastLeases()
	sum := func(now []owner.Lease) (bytes uint64, open, leases int) {
		all := p.total(now)
		if len(all) > maxLeaseUsers+1 {
			t.Fatalf("%d label values", len(all))
		}
		for _, l := range all {
			bytes, open, leases = bytes+l.TxBytes, open+l.QPs, leases+l.Slot
		}
		return bytes, open, leases
	}
	var now []owner.Lease
	for i := range 3 * maxLeaseUsers {
		now = append(now, owner.Lease{UID: 7, Command: fmt.Sprint("c", i), Slots: 1, QPs: 2, TxBytes: 10})
	}
	if bytes, open, leases := sum(now); bytes != 30*maxLeaseUsers || open != 6*maxLeaseUsers || leases != 3*maxLeaseUsers {
		t.Errorf("%d bytes, %d queue pairs, %d leases", bytes, open, leases)
	}
	for _, l := range now {
		p.add(l)
	}
	if bytes, open, leases := sum(nil); bytes != 30*maxLeaseUsers || open != 0 || leases != 0 {
		t.Errorf("at the end %d bytes, %d queue pairs, %d leases", bytes, open, leases)
	}
	if l := p.total(nil)[leaseUser{"7", "c1"}]; l.TxBytes != 10 {
		t.Errorf("one of them has %+v", l)
	}
}
