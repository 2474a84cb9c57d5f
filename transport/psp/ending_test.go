package psp_test

import (
	"errors"
	"testing"

	wire "github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/transport/psp"
)

// TestEndErases has associations end while both sides go on to new keys: their
// packets are refused from then on, and the number is free.
func TestEndErases(t *testing.T) {
	t.Parallel()
	a, b := ends(t, psp.Limits{Packets: 1})
	exchange(t, a, b)
	sent := a.packets(t, 1)
	b.EndAccept(a.to)
	if n := b.takes(t, sent...); n != 0 || b.Counters().Unknown != 1 {
		t.Errorf("%+v", b.Counters())
	}
	a.Rekey(a.peer, a.to)
	a.EndSeal(a.peer, a.to)
	a.EndSeal(a.peer, a.to)
	if err := a.Send(batch(a.path, 8)); !errors.Is(err, psp.ErrNoKey) {
		t.Errorf("%v", err)
	}
	check(t, errors.Join(b.Accept(addrC, a.to, key(t, wire.GCM256)), a.Seal(a.peer, a.to, key(t, wire.GCM256))))
}
