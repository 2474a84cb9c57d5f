//go:build linux && !portable

package udp

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// testPlacer gives places in a ring of memory, with a guard around each.
type testPlacer struct {
	t       *testing.T
	rng     *rand.Rand
	ring    [16][1<<16 + 2*guardLen]byte
	next    int
	in      bool
	current []byte // the whole entry, as it is in use
}

const (
	guardLen  = 64
	guardByte = 0xa5
)

func (p *testPlacer) Place(_ netip.AddrPort, h *[rocev2.BTHLen]byte, size, n int) []byte {
	if p.in {
		p.t.Error("Place before Placed")
	}
	if h[0] != byte(rocev2.RCWriteMiddle) || p.rng.IntN(8) == 0 {
		return nil
	}
	p.in = true
	n = 1 + p.rng.IntN(n)
	entry := p.ring[p.next%len(p.ring)][:]
	p.next++
	for i := range entry {
		entry[i] = guardByte
	}
	p.current = entry[:guardLen+n*size+guardLen]
	return entry[guardLen : guardLen+n*size : guardLen+n*size]
}

func (p *testPlacer) Placed() {
	if !p.in {
		p.t.Error("Placed without Place")
	}
	p.in = false
	guard := bytes.Repeat([]byte{guardByte}, guardLen)
	if !bytes.Equal(p.current[:guardLen], guard) || !bytes.Equal(p.current[len(p.current)-guardLen:], guard) {
		p.t.Error("something beside the place was written")
	}
}

// Runs of all kinds, with packets in them that do not belong there, arrive in
// order and as they were sent, some of them in their places.
func TestPlacing(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, v6 bool) {
		a, b, path := ends(t, v6, Config{}, transport.Path{})
		rng := rand.New(rand.NewPCG(5, 6))
		p := &testPlacer{t: t, rng: rng}
		b.SetPlacer(p)
		tx, rx := transport.NewTxBatch(1<<18), transport.NewRxBatch(8)
		psn, runs, damaged := 0, 0, 0
		for range 300 {
			tx.Reset()
			var sent [][]byte
			var bad []bool
			for range 1 + rng.IntN(3) {
				size := []int{1024, 2048, 4096}[rng.IntN(3)]
				n := 1 + rng.IntN(15)
				for i := range n {
					d := testPacket(rng, psn, size)
					switch {
					case rng.IntN(40) == 0:
						d[0] = byte(rocev2.RCWriteLast)
					case rng.IntN(40) == 0:
						d[8] |= 0x80 // AckReq
					case rng.IntN(40) == 0:
						psn += 3
						binary.BigEndian.PutUint32(d[8:], uint32(psn))
					case i == n-1 && rng.IntN(2) == 0:
						d = d[:len(d)-4*rng.IntN(size/4)]
					}
					psn++
					put(t, tx, path, d)
					damage := rng.IntN(60) == 0
					if damage {
						tx.Damage(tx.Len()-1, 0x10)
					}
					sent, bad = append(sent, bytes.Clone(d)), append(bad, damage)
				}
			}
			if err := a.Send(tx); err != nil {
				t.Fatal(err)
			}
			for at := 0; at < len(sent); {
				if err := b.Wait(); err != nil {
					t.Fatal(err)
				}
				places := rng.IntN(8) > 0
				n, err := recvInto(b, rx, places)
				if err != nil {
					t.Fatal(err)
				}
				runs += len(rx.Placed())
				if places && b.rx.place != nil && !b.rx.place.choice.places {
					damaged++
				}
				for _, d := range flatten(rx) {
					if !bytes.Equal(d.Data, sent[at]) || (d.ICRC == transport.ICRCBad) != bad[at] && b.Addr().Is6() ||
						d.ICRC == transport.ICRCVerified && bad[at] {
						t.Fatalf("packet %d is another, or damaged", at)
					}
					at, n = at+1, n-1
				}
				if n != 0 {
					t.Fatalf("Recv counts %d packets too many", n)
				}
			}
		}
		if runs == 0 && b.Capabilities().ReceiveOffload {
			t.Error("nothing was placed")
		}
		if damaged == 0 && b.Capabilities().ReceiveOffload {
			t.Error("packets that are damaged are still received into places")
		}
	})
}

// recvInto is Recv into places, or into buffers.
func recvInto(l *Link, b *transport.RxBatch, places bool) (int, error) {
	if l.rx.place != nil {
		l.rx.place.choice = choice{places: places, hold: minHold + 1}
	}
	return l.Recv(b)
}

// testPacket returns BTH to pad of a packet in the middle of a WRITE.
func testPacket(rng *rand.Rand, psn, n int) []byte {
	d := packet(psn, n)
	for i := rocev2.BTHLen; i < len(d); i += 4 {
		binary.LittleEndian.PutUint32(d[i:], rng.Uint32())
	}
	return d
}

// flatten returns the packets of a batch, without ICRC, in order.
func flatten(b *transport.RxBatch) (all []transport.RxPacket) {
	for _, r := range b.Placed() {
		size := len(r.Payload) / r.N
		for i := range r.N {
			d := r.First
			d.Data = append(bytes.Clone(r.First.Data), r.Payload[i*size:(i+1)*size]...)
			word := binary.BigEndian.Uint32(d.Data[8:])
			binary.BigEndian.PutUint32(d.Data[8:], word+uint32(i))
			all = append(all, d)
		}
	}
	for _, d := range b.Packets() {
		d.Data = bytes.Clone(d.Data[:len(d.Data)-rocev2.ICRCLen])
		all = append(all, d)
	}
	return all
}

// A large packet alone, between coalesced ones, is the end of a message among
// others. A small one, or a large one after that, is no bulk.
func TestLargeAmongCoalesced(t *testing.T) {
	t.Parallel()
	var p placement
	for i, step := range []struct {
		n, segment int
		large      bool
	}{
		{n: 4112},
		{n: 64 << 10, segment: 4112, large: true},
		{n: 4116, large: true},
		{n: 64 << 10, segment: placeSegment, large: true},
		{n: placeSegment, large: true},
		{n: placeSegment - 1},
		{n: 4112},
		{n: 64 << 10, segment: placeSegment - 1},
		{n: 64 << 10, segment: 4112, large: true},
		{n: 64 << 10, segment: 528},
	} {
		if p.takes(step.n, step.segment); p.large != step.large {
			t.Errorf("step %d: %d bytes in packets of %d: bulk is %v", i, step.n, step.segment, p.large)
		}
	}
}
