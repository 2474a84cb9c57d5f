package guard_test

import (
	"bytes"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
)

// TestCoalesced: what a peer's kernel makes of packets to several slots, one
// buffer of all packets of a flow, which the slot of the first one gets, has no
// packet astray. The port that the packets come out with is that of the queue
// pair.
func TestCoalesced(t *testing.T) {
	t.Parallel()
	const slots = 8
	a := newSide(addrA, 9, 5, nil)
	var b [slots]*side
	for i := range b {
		b[i] = newSide(addrB, uint8(i), 1, nil)
		agree(a, b[i], 1, 256, slots)
	}
	var packets [][]byte
	for i := range 100 {
		packets = append(packets, packet(0x10000+i*5, i, 100))
	}
	type buffer struct {
		datagram
		slot byte
	}
	var buffers []*buffer
	flows := map[uint16]*buffer{}
	for _, d := range a.sends(t, addrB, packets...) {
		f := flows[d.src.Port()]
		if f == nil {
			f = &buffer{datagram{src: d.src, segment: len(packets[0]) + rocev2.ICRCLen + 40}, d.data[7]}
			flows[d.src.Port()] = f
			buffers = append(buffers, f)
		}
		f.data = append(f.data, bytes.Clone(d.data)...)
	}
	if len(buffers) != slots {
		t.Errorf("%d flows for %d slots", len(buffers), slots)
	}
	n := 0
	for _, f := range buffers {
		for _, p := range b[f.slot].take(t, f.datagram) {
			if n++; p.SrcPort != rocev2.UDPPort {
				t.Fatalf("from port %d", p.SrcPort)
			}
		}
	}
	if n != len(packets) {
		t.Errorf("%d of %d packets open", n, len(packets))
	}
}

// TestNoSourcePorts: where there are none, packets leave all the same.
func TestNoSourcePorts(t *testing.T) {
	t.Parallel()
	a, b := newSide(addrA, 9, 5, nil), newSide(addrB, 4, 1, nil)
	a.cable.noPorts = true
	agree(a, b, 1, 256, 8)
	if n := len(b.take(t, a.sends(t, addrB, packet(0x10004, 1, 100))...)); n != 1 {
		t.Errorf("%d packets", n)
	}
}
