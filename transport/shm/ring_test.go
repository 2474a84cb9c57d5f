package shm

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// newRing returns both ends of one direction of some memory.
func newRing() (*producer, *consumer) {
	h := half{make([]byte, ringLen)}
	c := &consumer{ring: h, src: netip.MustParseAddr("127.0.0.1"), dst: netip.MustParseAddr("127.0.0.2")}
	return newProducer(h), c
}

// run returns a run of packets, with some random bytes: n of size bytes, and
// one of last bytes if last is not 0.
func run(r *rand.Rand, n, size, last int) []byte {
	b := make([]byte, n*size+last)
	for i := 0; i < len(b); i += 31 {
		b[i] = byte(r.Uint32())
	}
	return b
}

// want is what a packet should come out as; without its ICRC if it lies in a
// descriptor.
type want struct {
	data []byte
	m    meta
}

// Whatever runs go in come out, in order, with what was said of them, while the
// ring is filled and emptied in all places.
func TestRing(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	p, c := newRing()
	b := transport.NewRxBatch(64)
	var queue []want
	full, inline := 0, 0
	for range 8000 {
		if r.IntN(16) > 0 {
			size := (minPacketLen + r.IntN(4100)) &^ 3
			if r.IntN(2) == 0 {
				size = (minPacketLen + r.IntN(40)) &^ 3
			}
			n, last := 1+r.IntN(min(maxSegments-1, 65000/size)), 0
			if size > minPacketLen+4 && r.IntN(2) == 0 {
				last = minPacketLen
			}
			if r.IntN(3) == 0 {
				n, last = 1, 0
			}
			data := run(r, n, size, last)
			m := meta{segment: size, srcPort: uint16(r.Uint32()), trafficClass: uint8(r.Uint32()), hopLimit: uint8(r.Uint32()), flowLabel: r.Uint32N(1 << 20)}
			if r.IntN(4) == 0 {
				m.flags |= flagDamaged
			}
			if _, err := p.refresh(); err != nil {
				t.Fatal(err)
			}
			if !p.put(data, m) {
				full++
			} else {
				for rest := data; len(rest) > 0; {
					k := min(size, len(rest))
					queue = append(queue, want{rest[:k], m})
					rest = rest[k:]
				}
			}
			continue
		}
		c.release()
		b.Reset()
		if _, err := c.take(b, 1+r.IntN(20), 1+r.IntN(200_000)); err != nil {
			t.Fatal(err)
		}
		for _, got := range b.Packets() {
			w := queue[0]
			queue = queue[1:]
			n := len(w.data)
			if len(w.data) <= inlineLen+rocev2.ICRCLen {
				inline++
				n -= rocev2.ICRCLen
			}
			icrc := transport.ICRCAbsent
			if w.m.flags&flagDamaged != 0 {
				icrc = transport.ICRCBad
			}
			if len(got.Data) != len(w.data) || !bytes.Equal(got.Data[:n], w.data[:n]) ||
				got.Src != c.src || got.Dst != c.dst || got.SrcPort != w.m.srcPort || got.TrafficClass != w.m.trafficClass ||
				got.HopLimit != w.m.hopLimit || got.FlowLabel != w.m.flowLabel || got.ICRC != icrc {
				t.Fatalf("%d bytes, %+v came as %d bytes, %+v", len(w.data), w.m, len(got.Data), got)
			}
		}
	}
	if full == 0 || inline == 0 {
		t.Errorf("the ring was full %d times, and had %d packets in descriptors: this tests too little", full, inline)
	}
}

// A ring that is full takes nothing, until something was given back.
func TestRingFull(t *testing.T) {
	t.Parallel()
	for _, size := range []int{40, 4096} { // out of descriptors, out of data
		p, c := newRing()
		data := make([]byte, size)
		n := 0
		for p.put(data, meta{segment: size}) {
			n++
		}
		if want := min(descCount, dataLen/size); n != want {
			t.Errorf("%d bytes: it took %d, not %d", size, n, want)
		}
		b := transport.NewRxBatch(64)
		if _, err := c.take(b, 1, 1); err != nil || b.Len() != 1 {
			t.Fatal(b.Len(), err)
		}
		if moved, err := p.refresh(); moved || err != nil || p.put(data, meta{segment: size}) {
			t.Errorf("%d bytes: what a batch lies in was given back", size)
		}
		c.release()
		if moved, err := p.refresh(); !moved || err != nil || !p.put(data, meta{segment: size}) {
			t.Errorf("%d bytes: nothing was given back", size)
		}
	}
}

// What went by UDP comes before a descriptor that says so.
func TestRingAfterUDP(t *testing.T) {
	t.Parallel()
	p, c := newRing()
	b := transport.NewRxBatch(1)
	p.put(make([]byte, 64), meta{segment: 64})
	p.put(make([]byte, 64), meta{segment: 64, flags: flagAfterUDP})
	p.put(make([]byte, 64), meta{segment: 64, flags: flagAfterUDP})
	for want := 1; want <= 3; want++ {
		if _, err := c.take(b, 10, 1000); err != nil || b.Len() != want {
			t.Fatalf("%d packets, %v; want %d", b.Len(), err, want)
		}
		if c.behind != (want < 3) {
			t.Fatalf("behind %v after %d", c.behind, want)
		}
		c.behind, c.passUDP = false, true
	}
}

// A consumer that is about to sleep is told of what is there, even if it was
// told before and has left some: the producer wakes it only for what comes
// later.
func TestRingIsNotLeft(t *testing.T) {
	t.Parallel()
	p, c := newRing()
	b := transport.NewRxBatch(1)
	for range 3 {
		p.put(make([]byte, 64), meta{segment: 64})
	}
	for left := 3; left > 0; left-- {
		if !c.arm() {
			t.Fatalf("it sleeps, and %d runs are there", left)
		}
		if _, err := c.take(b, 1, 1); err != nil {
			t.Fatal(err)
		}
	}
	if c.arm() || !p.wanted() || p.wanted() {
		t.Error("it does not sleep until it is woken, once")
	}
}

// A consumer that gives back what it never got is found out, and cannot have
// anything overwritten.
func TestProducerDistrusts(t *testing.T) {
	t.Parallel()
	for _, head := range []uint32{6, 1 << 31, ^uint32(0)} {
		p, _ := newRing()
		for range 5 {
			p.put(make([]byte, 4096), meta{segment: 4096})
		}
		p.ring.head().Store(head)
		if _, err := p.refresh(); err == nil {
			t.Errorf("head %d of 5 is taken", head)
		}
	}
	p, _ := newRing()
	p.put(make([]byte, 64), meta{segment: 64})
	p.put(make([]byte, 64), meta{segment: 64})
	p.ring.head().Store(2)
	if _, err := p.refresh(); err != nil {
		t.Fatal(err)
	}
	p.ring.head().Store(1) // backwards
	if _, err := p.refresh(); err == nil {
		t.Error("what was given back is taken back")
	}
}

// forge fills the first descriptors of a ring with the words of script, 24
// bytes for each.
func forge(h half, script []byte) {
	for i := uint32(0); i < 8 && len(script) >= 24; i++ {
		copy(h.desc(i)[:], script[:24])
		h.state(i).Store(lap(i))
		script = script[24:]
	}
}

// Whatever the producer writes, the consumer neither fails nor hands out
// anything that does not lie in the ring and is not as long as a packet.
func FuzzConsumer(f *testing.F) {
	p, _ := newRing()
	p.put(make([]byte, 40), meta{segment: 40})
	p.put(make([]byte, 3*4112), meta{segment: 4112})
	p.put(make([]byte, 4112+20), meta{segment: 4112, flags: flagDamaged})
	var good []byte
	for i := range uint32(3) {
		good = append(good, p.ring.desc(i)[:24]...)
	}
	f.Add(good)
	for _, at := range []int{4, 8, 12, 14} {
		bad := bytes.Clone(good)
		copy(bad[at:], []byte{0xff, 0xff, 0xff, 0xff})
		f.Add(bad)
		f.Add(bad[24:])
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		_, c := newRing()
		forge(c.ring, script)
		b := transport.NewRxBatch(4)
		for range 10 {
			c.release()
			b.Reset()
			got, err := c.take(b, 16, 1<<20)
			if err != nil && got.runs > 8 {
				t.Fatal(got)
			}
			for _, p := range b.Packets() {
				if len(p.Data) < minPacketLen || len(p.Data) > rocev2.MaxPacketLen || cap(p.Data) != len(p.Data) {
					t.Fatalf("a packet of %d bytes, capacity %d", len(p.Data), cap(p.Data))
				}
				var packet rocev2.Packet
				_ = packet.Parse(p.Data)
			}
			if err != nil {
				return
			}
			c.behind, c.passUDP = false, true
		}
	})
}

// Each impossible descriptor is found out by itself.
func TestConsumerDistrusts(t *testing.T) {
	t.Parallel()
	const seg = 4112
	for name, words := range map[string][6]uint32{
		"beyond the data":        {0, 2 * seg, dataLen - seg, seg},
		"far beyond":             {0, seg, 1 << 31, seg},
		"longer than the data":   {0, dataLen + 4, 0, seg},
		"a huge length":          {0, 1<<32 - 4, 0, seg},
		"no length":              {0, 0, 0, seg},
		"no segments":            {0, seg, 0, 0},
		"tiny segments":          {0, seg, 0, 4},
		"giant segments":         {0, 8192, 0, 8192},
		"many segments":          {0, 65 * 40, 0, 40},
		"a tiny last packet":     {0, seg + 4, 0, seg},
		"unknown flags":          {0, seg, 0, seg | 1<<30},
		"too long for its place": {0, 48, 0, 48 | flagInline<<16},
		"too short inline":       {0, 12, 0, 12 | flagInline<<16},
	} {
		_, c := newRing()
		for i, w := range words {
			put(c.ring.desc(0), i, w)
		}
		c.ring.state(0).Store(lap(0))
		b := transport.NewRxBatch(4)
		if _, err := c.take(b, 4, 1<<20); err == nil {
			t.Errorf("%s: it is taken, as %d packets", name, b.Len())
		}
	}
}

// Neither side allocates.
func TestRingAllocates(t *testing.T) {
	p, c := newRing()
	b := transport.NewRxBatch(64)
	long, short := make([]byte, 16*4112), make([]byte, 40)
	step := func() {
		_, _ = p.refresh()
		p.put(long, meta{segment: 4112})
		p.put(short, meta{segment: 40})
		c.release()
		b.Reset()
		_, _ = c.take(b, 10, 1<<20)
		if b.Len() != 17 {
			t.Fatal(b.Len())
		}
	}
	step()
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
