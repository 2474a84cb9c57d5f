package tcp

import (
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// A header is read as it was written, with each option, and one that is cut off
// is none.
func TestSegments(t *testing.T) {
	t.Parallel()
	for _, s := range []segment{
		{srcPort: 1, dstPort: 2, seq: 3, ack: 1<<32 - 1, flags: ack | fin, window: 65535},
		{srcPort: 65535, dstPort: 5001, flags: syn | ece | cwr, mss: 1460, scale: 7},
		{flags: ack | ece, n: 1, blocks: [mostBlocks]block{{5, 6}}},
		{flags: ack, n: 4, blocks: [mostBlocks]block{{5, 6}, {7, 8}, {9, 10}, {1<<32 - 1, 1}}},
	} {
		b := s.append(nil)
		var got segment
		if n, err := got.parse(b); err != nil || n != len(b) || n > mostHeader || got != s {
			t.Errorf("%+v: %d of %d bytes, %v, %+v", s, n, len(b), err, got)
		}
		for n := range b {
			if _, err := got.parse(b[:n]); err == nil {
				t.Errorf("%+v is one with %d of %d bytes, too", s, n, len(b))
			}
		}
	}
}

// Numbers of the wire stand for the nearest position, beyond 2^32 too.
func TestUnwrap(t *testing.T) {
	t.Parallel()
	for _, near := range []int64{0, 5, 1<<32 - 1, 1 << 32, 1<<40 + 17} {
		for _, away := range []int64{0, 1, -1, 1 << 30, -(1 << 30), 1<<31 - 1, -(1 << 31)} {
			for _, first := range []uint32{0, 1, 0xfffffff0} {
				if got := unwrap(first+uint32(near+away), first, near); got != near+away {
					t.Errorf("near %d, first %d: %d, want %d", near, first, got, near+away)
				}
			}
		}
	}
}

// Ranges agree with a set of bytes.
func TestRanges(t *testing.T) {
	t.Parallel()
	const size = 64
	for seed := range uint64(200) {
		rand := event.NewRand(seed, 3)
		below := func(n int) int64 { return int64(rand.Uint64n(uint64(n))) }
		var r ranges
		var set [size]bool
		for range 100 {
			if below(5) == 0 {
				pos := below(size)
				want := int64(0)
				for i := range pos {
					if set[i] {
						want++
					}
				}
				if got := r.forget(pos); got != want {
					t.Fatalf("seed %d: %d are below %d, want %d", seed, got, pos, want)
				}
				clear(set[:pos])
			} else {
				s := span{begin: below(size)}
				s.end = s.begin + below(min(9, size-int(s.begin)))
				want := int64(0)
				for i := s.begin; i < s.end; i++ {
					if !set[i] {
						want++
					}
					set[i] = true
				}
				if got := r.add(s); got != want {
					t.Fatalf("seed %d: %v adds %d, want %d", seed, s, got, want)
				}
			}
			pos := below(size)
			sum := int64(0)
			for i := range pos {
				if set[i] {
					sum++
				}
			}
			if got := r.within(0, pos); got != sum || r.above(pos) != r.total-sum {
				t.Fatalf("seed %d: %d of %v are below %d, and %d above; want %d", seed, got, r, pos, r.above(pos), sum)
			}
			for i := range r.len() {
				if k := r.get(i); k.begin >= k.end || i > 0 && r.get(i-1).end >= k.begin {
					t.Fatalf("seed %d: %v", seed, r)
				}
			}
			gap := span{pos, size}
			for gap.begin < size && set[gap.begin] {
				gap.begin++
			}
			if i := slices.Index(set[gap.begin:], true); i >= 0 {
				gap.end = gap.begin + int64(i)
			}
			if got := r.gap(pos, size); got != gap {
				t.Fatalf("seed %d: the first gap of %v from %d is %v, want %v", seed, r, pos, got, gap)
			}
		}
	}
}

// What is wrong with a Config is said by its name.
func TestConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{
		{MSS: 535}, {MSS: 4097}, {MSS: -1}, {InitialWindow: -1}, {InitialWindow: 1001}, {Window: 1}, {Window: -5}, {Window: 1<<30 + 1},
		{MinRTO: -1}, {MinRTO: 61 * event.Second}, {AckEvery: -1}, {AckEvery: 65}, {AckDelay: -1}, {AckDelay: event.Second}, {MinRTO: ms, AckDelay: ms}, {DSCP: 64},
	} {
		if err := c.Check(); err == nil {
			t.Errorf("%+v is none that is wrong", c)
		}
	}
	for _, c := range []Config{{}, {MinRTO: 1}, {MinRTO: 60 * event.Second}, {Window: 1 << 30}, {MSS: 536}, {AckEvery: 1}} {
		if err := c.Check(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Any bytes are a header or none, and one is the same when it is written again.
func FuzzSegment(f *testing.F) {
	f.Add((&segment{flags: syn, mss: 1460, scale: 7}).append(nil))
	f.Add((&segment{flags: ack, n: 3, blocks: [mostBlocks]block{{5, 6}, {7, 8}, {9, 10}}}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s, again segment
		if n, err := s.parse(b); err != nil || n > len(b) {
			return
		}
		if s.flags&syn == 0 {
			s.mss, s.scale = 0, 0
		} else {
			s.n, s.blocks = 0, [mostBlocks]block{}
		}
		if _, err := again.parse(s.append(nil)); err != nil || again != s {
			t.Errorf("%+v is %+v when it is read again: %v", s, again, err)
		}
	})
}

// A sender and a receiver that get any segments keep their books: what is in
// flight is never negative, nor more than what was sent.
func FuzzEnds(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Add([]byte{16, 200, 3, 40, 3, 80, 3, 120, 3, 255, 3, 7, 9, 9, 9, 1, 1, 1})
	f.Fuzz(func(t *testing.T, script []byte) {
		c, _ := Config{MSS: 536, ECN: len(script)%2 == 0, Control: Control(len(script) / 2 % 2)}.withDefaults()
		var st Stats
		snd, rcv := newSender(&c, 40*536, 5, &st), newReceiver(&c, 6, &st)
		now := event.Time(0)
		for i, b := range script {
			now += event.Time(b) * ms
			var h segment
			switch b % 8 {
			case 0, 1, 2:
				if n, kind := snd.next(now, &h); kind != nothing && b%16 < 8 {
					rcv.handle(now, &h, n, b%32 < 8)
				}
			case 3, 4:
				if rcv.next(&h) && b%16 < 8 && !snd.done() {
					snd.handle(now, &h)
				}
			case 5:
				snd.timeout()
			default:
				h = segment{seq: uint32(b) * 100, ack: uint32(b) * 77, flags: script[len(script)-1-i], window: uint16(b), n: int(b) % 5,
					blocks: [mostBlocks]block{{uint32(b), uint32(b) * 90}, {uint32(b) * 80, uint32(b) * 81}, {1 << 31, 1}, {1, 0}}}
				if !snd.done() {
					snd.handle(now, &h)
				}
				h.n = 0
				rcv.handle(now, &h, int(b)*50, b > 128)
			}
			if snd.una > snd.nxt || snd.nxt > snd.total || snd.pipe < 0 || snd.pipe > 2*(snd.nxt-snd.una)+snd.w.mss || snd.w.cwnd < snd.w.mss {
				t.Fatalf("step %d: %+v", i, snd)
			}
			for j := range snd.sacked.len() {
				k := snd.sacked.get(j)
				if k.begin < snd.una || k.end > snd.nxt || k.begin >= k.end || j > 0 && snd.sacked.get(j-1).end >= k.begin {
					t.Fatalf("step %d: %v of %d to %d", i, snd.sacked, snd.una, snd.nxt)
				}
			}
			if low := snd.sacked.within(snd.una, snd.rexmit); snd.open && (low != snd.low || snd.rexmit < snd.una) {
				t.Fatalf("step %d: %d bytes are below %d, and %d are counted: %+v", i, low, snd.rexmit, snd.low, snd)
			}
			if rcv.open && rcv.over.len() > 0 && rcv.over.get(0).begin <= rcv.nxt {
				t.Fatalf("step %d: %+v", i, rcv)
			}
		}
	})
}
