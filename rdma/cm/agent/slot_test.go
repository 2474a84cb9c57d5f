package agent

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// TestSlot looks at all IDs that an agent with a slot chooses: they have it, do
// not repeat, and come in no order that shows the next.
func TestSlot(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, slot := range []uint8{0, 3, 255} {
		a := New(Config{Random: rng.Uint32, Shared: true, Slot: slot})
		seen := map[mad.CommID]bool{}
		last, steps := mad.CommID(0), map[mad.CommID]int{}
		for range 1 << 16 {
			id := a.table.newID()
			if uint8(id) != slot || id == 0 {
				t.Fatalf("ID %08x of slot %d", id, slot)
			}
			if seen[id] {
				t.Fatalf("ID %08x twice", id)
			}
			seen[id] = true
			if steps[id-last]++; steps[id-last] > 8 {
				t.Fatalf("IDs are %08x apart again and again", id-last)
			}
			last = id
		}
	}
}

// TestSlotOfMessages looks at what an agent with a slot sends.
func TestSlotOfMessages(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	a := New(Config{Random: rng.Uint32, Shared: true, Slot: 9})
	p := Path{Local: netip.MustParseAddr("10.0.0.1"), Remote: netip.MustParseAddr("10.0.0.2")}
	if _, err := a.Connect(1, &ConnectRequest{Path: p, REQ: mad.REQ{PathMTU: 1, Primary: mad.Path{AckTimeout: 1}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Resolve(1, IdentityRequest(p, mad.ECE{VendorID: 1})); err != nil {
		t.Fatal(err)
	}
	var buf [mad.Len]byte
	for range 2 {
		if _, ok := a.Send(buf[:]); !ok {
			t.Fatal("nothing to send")
		}
		_, m, err := mad.Parse(buf[:])
		if err != nil {
			t.Fatal(err)
		}
		var id mad.CommID
		var transaction uint64
		switch m := m.(type) {
		case *mad.REQ:
			id, transaction = m.LocalID, m.TransactionID
		case *mad.SIDRREQ:
			id, transaction = m.RequestID, m.TransactionID
		}
		if uint8(id) != 9 || uint8(transaction) != 9 {
			t.Errorf("%T: ID %08x, transaction %016x", m, id, transaction)
		}
	}
}
