package queue

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/gosoftroce/rocev2/rocev2"
)

// A pool of lengths gives back what was kept, with 0 for each byte of the
// payload, and takes little for it. Twins are no conflict.
func TestLengthPool(t *testing.T) {
	t.Parallel()
	s := MakePool(PoolConfig{Limit: 1 << 20, Lengths: true})
	var r Reorder
	const expected = rocev2.PSNMask - 100
	at := func(i int) *rocev2.Packet {
		return &rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCWriteOnly, PSN: rocev2.PSN(expected).Add(i)},
			RETH: rocev2.RETH{VA: uint64(i)}, Payload: make([]byte, 16*i)}
	}
	for i := 200; i > 100; i-- {
		r.Insert(s, 1, at(i/2), 1, expected)
	}
	for i := 50; i <= 200; i++ {
		want := Buffered
		if i <= 100 {
			want = Refused // it is kept already
		}
		if got := r.Insert(s, 1, at(i), 1, expected); got != want {
			t.Fatalf("packet %d: %v", i, got)
		}
	}
	if err := r.Check(expected); err != nil {
		t.Error(err)
	}
	if n, err := s.Held(); n != 151 || err != nil {
		t.Errorf("%d are held: %v", n, err)
	}
	for i := 50; r.Len() > 0; i++ {
		p := r.Lowest()
		if p.RETH.VA != uint64(i) || !bytes.Equal(p.Payload, make([]byte, 16*i)) {
			t.Fatalf("packet %d: %+v", i, p)
		}
		r.Pop()
		r.Trim()
	}
	if n := unsafe.Sizeof(heldPacket{}); n > 512 {
		t.Errorf("a packet takes %d bytes", n)
	}
}
