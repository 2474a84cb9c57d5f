package ring

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/gosoftroce/rocev2/ib"
)

// aligned returns n bytes of 0xa5 that are aligned as a mapping is.
func aligned(n uint64) []byte {
	words := make([]uint64, (n+7)/8)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), n)
	for i := range b {
		b[i] = 0xa5
	}
	return b
}

func newConsumer(t testing.TB, s Shape) (*Consumer, []byte) {
	t.Helper()
	mem := aligned(s.Size())
	c := new(Consumer)
	if err := c.Init(mem, s); err != nil {
		t.Fatal(err)
	}
	return c, mem
}

func newProducer(t testing.TB, s Shape) (*Producer, []byte) {
	t.Helper()
	mem := aligned(s.Size())
	p := new(Producer)
	if err := p.Init(mem, s); err != nil {
		t.Fatal(err)
	}
	return p, mem
}

func setIndex(mem []byte, at int, v uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&mem[at])), v)
}

func getIndex(mem []byte, at int) uint32 {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&mem[at])))
}

func TestShapes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		entries, elem int
		want          Shape
	}{
		{1, 64, Shape{2, 64}},
		{2, 64, Shape{4, 64}}, // one slot stays empty
		{3, 65, Shape{4, 128}},
		{4, 208, Shape{8, 256}},
		{255, 300, Shape{256, 512}},
		{0, 0, Shape{2, 1}},
	} {
		s := ShapeFor(c.entries, c.elem)
		if s != c.want || s.Cap() < c.entries {
			t.Errorf("ShapeFor(%d, %d) is %v, want %v", c.entries, c.elem, s, c.want)
		}
	}
}

func TestHeader(t *testing.T) {
	t.Parallel()
	_, mem := newConsumer(t, Shape{Slots: 8, Elem: 256})
	for at, want := range map[int]uint32{0: 8, 4: 7, 128: 0, 256: 0} {
		if got := binary.NativeEndian.Uint32(mem[at:]); got != want {
			t.Errorf("word at %d is %d, want %d", at, got, want)
		}
	}
	if len(mem) != 384+8*256 {
		t.Errorf("the ring has %d bytes", len(mem))
	}
}

func TestBadMemory(t *testing.T) {
	t.Parallel()
	mem := aligned(1 << 16)
	for what, err := range map[string]error{
		"no power of two": new(Consumer).Init(mem, Shape{Slots: 7, Elem: 64}),
		"no elements":     new(Consumer).Init(mem, Shape{Slots: 1, Elem: 64}),
		"odd elements":    new(Producer).Init(mem, Shape{Slots: 8, Elem: 63}),
		"too large":       new(Producer).Init(mem, Shape{Slots: 1 << 30, Elem: 1 << 30}),
		"too short":       new(Consumer).Init(mem[:383+8*64], Shape{Slots: 8, Elem: 64}),
		"not aligned":     new(Consumer).Init(mem[4:], Shape{Slots: 8, Elem: 64}),
		"nothing":         new(Consumer).Init(nil, Shape{Slots: 8, Elem: 64}),
	} {
		if !errors.Is(err, ErrShape) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The description of a ring is there for the program. What the program writes
// over it changes nothing.
func TestHeaderIsNotReadBack(t *testing.T) {
	t.Parallel()
	c, mem := newConsumer(t, Shape{Slots: 4, Elem: 64})
	copy(mem[:8], bytes.Repeat([]byte{0xff}, 8))
	copy(mem[384+64:], "one")
	setIndex(mem, 128, 2)
	var e [64]byte
	for range 2 {
		if n, err := c.Waiting(); n == 0 || err != nil {
			t.Fatalf("%d waiting, %v", n, err)
		}
		c.Take(e[:])
	}
	if string(e[:3]) != "one" || c.Taken() != 2 {
		t.Errorf("took %q", e[:3])
	}
	setIndex(mem, 256, 77)
	c.Release(1)
	if got := getIndex(mem, 256); got != 1 {
		t.Errorf("the consumer's index is %d", got)
	}
}

func TestConsumerIndices(t *testing.T) {
	t.Parallel()
	var e [64]byte
	for _, c := range []struct {
		why             string
		taken, released uint64
		producer        uint32
		want            int
		err             error
	}{
		{"empty", 0, 0, 0, 0, nil},
		{"full", 0, 0, 3, 3, nil},
		{"behind the ring", 0, 0, 4, 0, ErrIndex},
		{"far behind the ring", 0, 0, 1 << 31, 0, ErrIndex},
		{"wrapped around", 3, 3, 1, 2, nil},
		{"into what is being used", 3, 0, 0, 0, ErrIndex},
		{"back", 3, 2, 2, 0, ErrIndex},
		{"as much as was given back", 3, 2, 1, 2, nil},
	} {
		r, mem := newConsumer(t, Shape{Slots: 4, Elem: 64})
		for range c.taken {
			r.Take(e[:])
		}
		r.Release(c.released)
		setIndex(mem, 128, c.producer)
		if n, err := r.Waiting(); n != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %d waiting, %v", c.why, n, err)
		}
	}
}

func TestReturnAndClear(t *testing.T) {
	t.Parallel()
	r, mem := newConsumer(t, Shape{Slots: 4, Elem: 64})
	var e [64]byte
	setIndex(mem, 128, 3)
	r.Take(e[:])
	r.Take(e[:])
	r.Return(1)
	if n, err := r.Waiting(); n != 2 || err != nil {
		t.Errorf("%d waiting after one was returned, %v", n, err)
	}
	r.Release(1)
	if r.Return(0); r.Taken() != 1 {
		t.Errorf("what was released is returned: the next one is %d", r.Taken())
	}
	r.Clear()
	if n, err := r.Waiting(); n != 0 || err != nil || getIndex(mem, 256) != 3 {
		t.Errorf("%d waiting after Clear, %v, consumer's index %d", n, err, getIndex(mem, 256))
	}
	setIndex(mem, 128, 99)
	r.Clear()
	if n, err := r.Waiting(); n != 0 || err != nil {
		t.Errorf("%d waiting after Clear of a ring with a bad index, %v", n, err)
	}
	setIndex(mem, 128, (getIndex(mem, 128)+1)&3)
	if n, err := r.Waiting(); n != 1 || err != nil {
		t.Errorf("%d waiting in a ring that was cleared, %v", n, err)
	}
}

func TestProducer(t *testing.T) {
	t.Parallel()
	p, mem := newProducer(t, Shape{Slots: 4, Elem: 64})
	for i := range 3 {
		if err := p.Put([]byte{byte(i + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Put([]byte{9}); !errors.Is(err, ErrFull) || getIndex(mem, 128) != 3 {
		t.Errorf("a full ring: %v, index %d", err, getIndex(mem, 128))
	}
	setIndex(mem, 256, 2)
	for range 2 {
		if err := p.Put([]byte{9}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := p.Len(); n != 3 || err != nil || getIndex(mem, 128) != 1 {
		t.Errorf("%d elements, %v, index %d", n, err, getIndex(mem, 128))
	}
	setIndex(mem, 256, 4)
	if err := p.Put(nil); !errors.Is(err, ErrIndex) {
		t.Errorf("an index behind the ring: %v", err)
	}
}

// However many completions a program claims not to have taken, a call of Forget
// looks at few. All calls together look at all.
func TestForgetLooksAtFew(t *testing.T) {
	t.Parallel()
	const slots = 1 << 12
	p, mem := newProducer(t, Shape{Slots: slots, Elem: 64})
	var e [CQElem]byte
	EncodeWC(&e, &ib.WC{QPN: 7}, 0, 0)
	for range slots - 1 {
		if err := p.Put(e[:]); err != nil {
			t.Fatal(err)
		}
	}
	marked := func() (n uint64) {
		for i := range slots {
			if binary.NativeEndian.Uint32(mem[384+64*i+wcVendorErr:]) == Forgotten {
				n++
			}
		}
		return n
	}
	for from, calls := uint64(0), uint64(1); from < p.Next(); calls++ {
		from = p.Forget(7, from, p.Next())
		if n := marked(); n != min(calls*AtOnce, slots-1) {
			t.Fatalf("%d calls have marked %d", calls, n)
		}
	}
	setIndex(mem, 256, slots) // an impossible index
	if got := p.Forget(7, 0, p.Next()); got != p.Next() {
		t.Errorf("it goes on at %d", got)
	}
}

// moveAll moves what the program has not taken, as completion queues do.
func moveAll(p, to *Producer) (calls int, err error) {
	at, err := p.Unread()
	for err == nil && at < p.Next() {
		at, err = p.CopyTo(to, at)
		calls++
	}
	return calls, err
}

// What was not taken moves to a larger ring, in order, from wherever it is.
func TestMove(t *testing.T) {
	t.Parallel()
	p, mem := newProducer(t, Shape{Slots: 4, Elem: 64})
	large, largeMem := newProducer(t, Shape{Slots: 8, Elem: 64})
	small, _ := newProducer(t, Shape{Slots: 2, Elem: 64})
	other, _ := newProducer(t, Shape{Slots: 8, Elem: 128})
	for i := range 6 {
		setIndex(mem, 256, uint32(max(i-2, 0)&3))
		if err := p.Put([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	setIndex(mem, 256, 3)
	for what, to := range map[string]*Producer{"too small": small, "of other elements": other} {
		if _, err := moveAll(p, to); !errors.Is(err, ErrFull) {
			t.Errorf("to one that is %s: %v", what, err)
		}
	}
	if _, err := moveAll(p, large); err != nil || getIndex(largeMem, 128) != 3 {
		t.Fatalf("%v, index %d", err, getIndex(largeMem, 128))
	}
	for i := range 3 {
		if got := largeMem[384+64*i]; got != byte(i+3) {
			t.Errorf("element %d is %d", i, got)
		}
	}
	if err := large.Put([]byte{77}); err != nil || largeMem[384+64*3] != 77 {
		t.Errorf("the next one: %v, %d", err, largeMem[384+64*3])
	}
	setIndex(mem, 256, 4) // an impossible index
	if _, err := p.Unread(); !errors.Is(err, ErrIndex) {
		t.Errorf("%v", err)
	}
}

// Receives move in order; those that are taken meanwhile count as taken.
func TestMoveReceives(t *testing.T) {
	t.Parallel()
	c, mem := newConsumer(t, Shape{Slots: 4, Elem: 64})
	wide, wideMem := newConsumer(t, Shape{Slots: 8, Elem: 64})
	small, _ := newConsumer(t, Shape{Slots: 2, Elem: 64})
	var e [64]byte
	setIndex(mem, 128, 3)
	mem[384+64*2] = 42
	first := c.Take(e[:]) + 1
	if _, _, err := c.CopyTo(small, first, first); !errors.Is(err, ErrFull) {
		t.Errorf("to one that is too small: %v", err)
	}
	if at, more, err := c.CopyTo(wide, first, first); at != 3 || more || err != nil || wideMem[384+64] != 42 {
		t.Errorf("receives: %d, %v, %v, %d", at, more, err, wideMem[384+64])
	}
	if n, err := wide.Waiting(); n != 2 || err != nil {
		t.Errorf("%d receives after the move, %v", n, err)
	}
	c.Take(e[:]) // between two calls
	again, againMem := newConsumer(t, Shape{Slots: 8, Elem: 64})
	if _, more, err := c.CopyTo(again, first, first); more || err != nil {
		t.Errorf("%v, %v", more, err)
	}
	if n, err := again.Waiting(); n != 1 || err != nil || again.Released() != 1 || getIndex(againMem, 256) != 1 {
		t.Errorf("%d receives after the move, %v, %d are given back", n, err, again.Released())
	}
	if again.Take(e[:]); e[0] != 42 {
		t.Errorf("it is %d", e[0])
	}
	setIndex(mem, 128, 4) // an impossible index
	if _, _, err := c.CopyTo(wide, first, first); !errors.Is(err, ErrIndex) {
		t.Errorf("%v", err)
	}
}

// However much a program claims to be in a ring, a call copies little of it.
func TestMoveCopiesFew(t *testing.T) {
	t.Parallel()
	const slots = 1 << 12
	s := Shape{Slots: slots, Elem: 64}
	p, _ := newProducer(t, s)
	for range slots - 1 {
		if err := p.Put([]byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	to, toMem := newProducer(t, s)
	if at, err := p.CopyTo(to, 0); at != AtOnce || err != nil || toMem[384+64*AtOnce] == 1 {
		t.Errorf("it goes on at %d, %v", at, err)
	}
	c, mem := newConsumer(t, s)
	setIndex(mem, 128, slots-1)
	other, otherMem := newConsumer(t, s)
	if at, more, err := c.CopyTo(other, 0, 0); at != AtOnce || !more || err != nil || otherMem[384+64*AtOnce] != 0xa5 {
		t.Errorf("it goes on at %d, %v, %v", at, more, err)
	}
	if n, err := other.Waiting(); n != 0 || err != nil {
		t.Errorf("%d receives before the end, %v", n, err)
	}
}

// An element is whole when the index says that it is there, in both directions.
func TestOrder(t *testing.T) {
	t.Parallel()
	const rounds = 20_000
	s := Shape{Slots: 8, Elem: 64}
	mem := aligned(s.Size())
	var p Producer
	var c Consumer
	for _, err := range []error{p.Init(mem, s), c.Init(mem, s)} { // the one stands for the program
		if err != nil {
			t.Fatal(err)
		}
	}
	go func() {
		for i := uint64(0); i < rounds; {
			var e [64]byte
			for at := 0; at < 64; at += 8 {
				binary.NativeEndian.PutUint64(e[at:], i)
			}
			if p.Put(e[:]) == nil {
				i++
			} else {
				runtime.Gosched()
			}
		}
	}()
	var e [64]byte
	for i := uint64(0); i < rounds; {
		n, err := c.Waiting()
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			runtime.Gosched()
		}
		for range n {
			pos := c.Take(e[:])
			for at := 0; at < 64; at += 8 {
				if got := binary.NativeEndian.Uint64(e[at:]); got != i {
					t.Fatalf("element %d has %d at %d", i, got, at)
				}
			}
			c.Release(pos + 1)
			i++
		}
	}
}

// FuzzIndices has a program write indices as it likes, between what this side
// does. Never is more taken than has room.
func FuzzIndices(f *testing.F) {
	f.Add([]byte{0, 3, 1, 0, 1, 0, 2, 1, 0, 0, 3, 0})
	f.Add([]byte{0, 255, 1, 0, 4, 0, 0, 7, 1, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		s := Shape{Slots: 8, Elem: 64}
		c, cmem := newConsumer(t, s)
		p, pmem := newProducer(t, s)
		var e [64]byte
		for ; len(ops) > 1; ops = ops[2:] {
			arg := uint32(ops[1])
			if arg > 200 {
				arg = ^uint32(0) - arg
			}
			switch ops[0] % 6 {
			case 0:
				setIndex(cmem, 128, arg)
				setIndex(pmem, 256, arg)
			case 1:
				n, err := c.Waiting()
				if err != nil && n != 0 {
					t.Fatalf("%d waiting with %v", n, err)
				}
				for range n {
					c.Take(e[:])
				}
			case 2:
				c.Release(min(c.Released()+uint64(arg), c.Taken()))
			case 3:
				c.Return(c.Taken() - min(uint64(arg), c.Taken()))
			case 4:
				c.Clear()
			case 5:
				if err := p.Put(e[:]); err == nil {
					if n, err := p.Len(); err == nil && n == 0 {
						t.Fatal("a ring that was put to is empty")
					}
				}
			}
			if held := c.Taken() - c.Released(); held > uint64(s.Cap()) {
				t.Fatalf("%d taken and not released", held)
			}
		}
	})
}
