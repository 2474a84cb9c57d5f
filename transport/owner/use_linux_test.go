//go:build !portable

package owner_test

import (
	"sync"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/owner"
	"github.com/gosoftroce/rocev2/verbs"
)

// A lease tells which queue pairs there were, with which peers, and what went
// through shared memory, also after its end.
func TestLeaseTellsItsUse(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	var mu sync.Mutex
	var ended []owner.Lease
	o := own(t, owner.Config{Ended: func(l owner.Lease) {
		mu.Lock()
		defer mu.Unlock()
		ended = append(ended, l)
	}})
	var devs [2]*verbs.Device
	var ends [2]*end
	for i := range devs {
		var err error
		if devs[i], err = verbs.OpenLease(o.Socket(), verbs.Config{SharedMemory: true}); err != nil {
			t.Fatal(err)
		}
		defer devs[i].Close()
		if ends[i], err = newEnd(devs[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i, e := range ends {
		if err := e.connect(ends[1-i].qp.Endpoint()); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; ; i++ { // until both have agreed on memory, packets go by UDP
		failed := make(chan error, 2)
		for self, e := range ends {
			go func() { failed <- e.exchange(self, 1-self, i) }()
		}
		for range ends {
			if err := <-failed; err != nil {
				t.Fatal(err)
			}
		}
		if l := o.Leases(); l[0].TxShm > 0 && l[1].TxShm > 0 {
			break
		}
	}
	for i, e := range ends {
		if err := e.qp.Close(); err != nil {
			t.Fatal(err)
		}
		devs[i].Close()
	}
	for o.Stats().Leases > 0 {
		o.Leases()
	}
	o.Close() // when all have ended
	mu.Lock()
	defer mu.Unlock()
	for _, l := range ended {
		if l.QPs != 0 || l.MadeQPs != 1 || len(l.Reached) != 1 || l.Reached[0] != (owner.Peer{Addr: o.Addr(), Native: true}) ||
			!l.Last || len(l.Work.Types) != 1 || l.Work.Types[0] != (transport.UsedType{Type: "RC", Made: 1}) ||
			len(l.Work.Connections) != 1 || l.Work.Connections[0].Type != "RC" || l.Work.Connections[0].Peer != o.Addr() ||
			l.TxShm == 0 || l.RxShm == 0 || l.TxBytes < l.TxShm || l.TxPackets == 0 {
			t.Errorf("%+v", l)
		}
	}
	if len(ended) != 2 {
		t.Errorf("%d leases have ended", len(ended))
	}
}
