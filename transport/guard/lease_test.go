package guard_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/transport"
)

// TestKeyOfALease: leases of a slot have keys of their own, so that what those
// seal does not add up. An earlier one is not heard any more.
func TestKeyOfALease(t *testing.T) {
	t.Parallel()
	b := newSide(addrB, 0, 0, nil)
	s := secret(1, 1, 1)
	keys := new(psp.MasterKeys)
	keys.Rotate(&s.Master)
	keys.Rotate(&s.Master)
	var first datagram
	for serial := range uint32(3) {
		a := newSide(addrA, 9, serial, nil)
		agree(a, b, 1, 256, 1)
		sent := a.sends(t, addrB, packet(7, 1, 40), packet(7, 2, 40))
		d := sent[0]
		d.data, d.segment = d.data[:len(d.data)/2], 0
		bytes, _ := keys.Derive(s.Version, binary.BigEndian.Uint32(d.data[4:]))
		key, err := psp.NewKey(s.Version, bytes)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := key.Open(nil, d.data); !errors.Is(err, psp.ErrICV) {
			t.Errorf("serial %d: the key of all leases opens a packet: %v", serial, err)
		}
		if n := len(b.take(t, sent...)); n != 2 {
			t.Errorf("serial %d: %d packets", serial, n)
		}
		if serial == 0 {
			first = d
		}
	}
	b.take(t, first)
	counter(t, b, "guard_stale", 1)
}

// TestWaitedFails: what has waited, and then fails, is no error of the caller
// whose packets leave after it, and is counted.
func TestWaitedFails(t *testing.T) {
	t.Parallel()
	a := newSide(addrA, 0, 0, nil)
	defer a.Close()
	a.cable.fails = 1
	a.sends(t, addrB, packet(7, 1, 40), packet(7, 2, 40))
	agree(a, newSide(addrB, 0, 0, nil), 1, 1, 1)
	if n := len(a.sends(t, addrB, packet(7, 3, 40))); n != 1 {
		t.Errorf("%d datagrams", n)
	}
	counter(t, a, "guard_no_keys", 2)
	counter(t, a, "guard_sealed", 1)
	a.cable.fails = 1
	b := transport.NewTxBatch(1 << 16)
	b.Commit(copy(b.Room(), packet(7, 4, 40)), transport.NewPath(addrA, transport.Path{Dst: addrB}))
	if err := a.Send(b); err == nil {
		t.Error("no error")
	}
	counter(t, a, "guard_sealed", 1)
}
