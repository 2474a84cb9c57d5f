package guard_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
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

// TestForgedLease: a packet that is forged as one of another lease, again and
// again, has keys derived once; one of a new lease opens beside it.
func TestForgedLease(t *testing.T) { // not parallel: it counts allocations
	a, later, b := newSide(addrA, 0, 1, nil), newSide(addrA, 0, 900, nil), newSide(addrB, 0, 0, nil)
	agree(a, b, 1, 1, 1)
	agree(later, b, 1, 1, 1)
	sent := a.sends(t, addrB, packet(7, 1, 100))
	forged := bytes.Clone(sent[0].data)
	binary.BigEndian.PutUint32(forged[8:], 500) // the high half of the initialization vector
	b.take(t, sent...)
	from := netip.AddrPortFrom(addrA, rocev2.UDPPort)
	const runs = 100
	work := make([]byte, len(forged))
	receive := func() {
		b.cable.arrived = append(b.cable.arrived[:0], datagram{data: append(work[:0], forged...), src: from})
		if n, err := b.Recv(b.rx); n != 0 || err != nil {
			t.Fatal(n, err)
		}
	}
	unknown := bytes.Clone(forged)
	unknown[5] ^= 0x55 // of the number of the secret
	known := testing.AllocsPerRun(runs, receive)
	counter(t, b, "guard_forged", runs+1)
	forged = unknown
	if n := testing.AllocsPerRun(runs, receive); n != known {
		t.Errorf("a packet of another lease has %v allocations, one with an unknown SPI %v", known, n)
	}
	if n := len(b.take(t, later.sends(t, addrB, packet(7, 2, 100))...)); n != 1 {
		t.Errorf("%d packets of a new lease came out", n)
	}
	counter(t, b, "guard_forged", runs+1)
	counter(t, b, "guard_unknown_spi", runs+1)
}

// BenchmarkRefused is what forged packets cost: with an unknown SPI, with the
// key of the present lease, and each as of another lease, for which keys are
// derived.
func BenchmarkRefused(b *testing.B) {
	one, two := newSide(addrA, 0, 1, nil), newSide(addrB, 0, 0, nil)
	agree(one, two, 1, 1, 1)
	sent := one.sends(b, addrB, packet(7, 1, 1024))
	two.take(b, sent...)
	for _, c := range []struct {
		name   string
		change func(data []byte, i uint32)
	}{
		{"unknown SPI", func(data []byte, _ uint32) { data[5] ^= 0x55 }},
		{"same lease", func(data []byte, _ uint32) { data[12] ^= 0x55 }},
		{"other leases", func(data []byte, i uint32) { binary.BigEndian.PutUint32(data[8:], 2+i) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			work := make([]byte, len(sent[0].data))
			for i := uint32(0); b.Loop(); i++ {
				c.change(append(work[:0], sent[0].data...), i)
				two.cable.arrived = append(two.cable.arrived[:0], datagram{data: work, src: sent[0].src})
				if n, err := two.Recv(two.rx); n != 0 || err != nil {
					b.Fatal(n, err)
				}
			}
		})
	}
}
