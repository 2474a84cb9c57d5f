package uverbs

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/uverbs/ring"
	fake "github.com/gosoftroce/rocev2/uverbs/uverbstest"
)

// A program is told once for each time that it has asked (IBTA 11.4.2.2).
func TestArming(t *testing.T) {
	t.Parallel()
	q := (&program{t: t}).newCQ(15)
	plain, solicited, failed := &ib.WC{}, &ib.WC{Solicited: true}, &ib.WC{Status: ib.StatusRetryExcErr}
	for _, c := range []struct {
		why  string
		arm  uint32
		wc   *ib.WC
		told bool
	}{
		{"not armed", 0, plain, false},
		{"not armed, solicited", 0, solicited, false},
		{"not armed, an error", 0, failed, false},
		{"any", 2, plain, true},
		{"solicited, and it is not", 1, plain, false},
		{"solicited", 1, solicited, true},
		{"solicited, an error", 1, failed, true},
		{"whatever is written there", 77, plain, true},
	} {
		atomic.StoreUint32(q.arm, c.arm)
		q.complete(c.wc, 0, 0)
		if told := len(q.events) == 1; told != c.told {
			t.Errorf("%s: told %v", c.why, told)
		}
		if armed := atomic.LoadUint32(q.arm); c.told && armed != 0 || !c.told && armed != c.arm {
			t.Errorf("%s: the word is %d", c.why, armed)
		}
		if c.told && <-q.events != 0xc0ffee {
			t.Errorf("%s: not its own name", c.why)
		}
		q.complete(c.wc, 0, 0)
		if c.told && len(q.events) != 0 {
			t.Errorf("%s: told twice", c.why)
		}
		q.wait(2)
	}
}

// What finds no room in the channel is told later.
func TestFullChannel(t *testing.T) {
	t.Parallel()
	q := (&program{t: t}).newCQ(15)
	q.room.Store(0)
	for range 3 {
		atomic.StoreUint32(q.arm, 2)
		q.complete(&ib.WC{}, 0, 0)
	}
	if len(q.events) != 0 || !q.Retry() {
		t.Fatalf("%d events in a channel that is full", len(q.events))
	}
	q.room.Store(2)
	if !q.Retry() || len(q.events) != 2 {
		t.Errorf("%d events, not 2", len(q.events))
	}
	q.room.Store(5)
	if q.Retry() || len(q.events) != 3 {
		t.Errorf("%d events, not 3", len(q.events))
	}
}

func TestOverflow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why  string
		full func(q *compQueue)
	}{
		{"full", func(q *compQueue) {
			for q.complete(&ib.WC{}, 0, 0) {
			}
		}},
		{"an index that cannot be", func(q *compQueue) { q.SetConsumer(4) }},
		{"another one", func(q *compQueue) { q.SetConsumer(1 << 31) }},
	} {
		q := (&program{t: t}).newCQ(3)
		c.full(q)
		for range 2 {
			if q.complete(&ib.WC{}, 0, 0) || q.overflow.Load() != 1 {
				t.Errorf("%s: the event came %d times", c.why, q.overflow.Load())
			}
		}
		q.SetConsumer(q.Producer())
		if !q.complete(&ib.WC{ID: 5}, 0, 0) {
			t.Errorf("%s: there is room again", c.why)
		}
	}
}

// An overflow ends the queue pairs that meet it, not those of others.
func TestOverflowEndsQueuePair(t *testing.T) {
	t.Parallel()
	pa, pb := programs(t)
	small := pa.newCQ(3)
	a, b := pa.newQP(pairOptions{cq: small}), pb.newQP(pairOptions{})
	c, d := pa.newQP(pairOptions{}), pb.newQP(pairOptions{})
	for _, p := range [][2]*queuePair{{a, b}, {b, a}, {c, d}, {d, c}} {
		p[0].connect(p[1])
	}
	at, key := pb.remote(0)
	for i := range uint64(5) {
		a.post(fake.SendWR{ID: i, Opcode: fake.Write, Flags: fake.Signaled, Remote: at, RKey: key})
	}
	a.untilErr()
	if small.overflow.Load() != 1 {
		t.Errorf("the event came %d times", small.overflow.Load())
	}
	c.post(fake.SendWR{ID: 1, Opcode: fake.Write, Flags: fake.Signaled, Remote: at, RKey: key})
	c.cq.expect(ib.StatusSuccess, 1)
}

func TestResizeCompletions(t *testing.T) {
	t.Parallel()
	q := (&program{t: t}).newCQ(7)
	for i := range uint64(7) {
		q.complete(&ib.WC{ID: i}, 0, 0)
	}
	for _, c := range []struct {
		entries int
		want    error
	}{{3, ring.ErrFull}, {15, nil}, {7, nil}} {
		shape := ring.ShapeFor(c.entries, ring.CQElem)
		mem := fake.Memory(shape.Size())
		if err := q.Resize(mem, shape); !errors.Is(err, c.want) {
			t.Errorf("to %d: %v", c.entries, err)
		} else if err == nil {
			q.Ring.Mem = mem
		}
	}
	if n, err := q.Len(); n != 7 || err != nil {
		t.Errorf("%d completions, %v", n, err)
	}
	q.expect(ib.StatusSuccess, 0, 1, 2, 3, 4, 5, 6)
	if q.complete(&ib.WC{ID: 9}, 0, 0); q.expect(ib.StatusSuccess, 9) == nil {
		t.Error("nothing")
	}
	if err := q.Resize(make([]byte, 8), ring.Shape{Slots: 4, Elem: 32}); !errors.Is(err, ring.ErrShape) {
		t.Errorf("to elements that are too small: %v", err)
	}
}

func TestClosedCompletions(t *testing.T) {
	t.Parallel()
	q := (&program{t: t}).newCQ(7)
	atomic.StoreUint32(q.arm, 2)
	q.Close()
	if q.complete(&ib.WC{}, 0, 0) || len(q.events) > 0 || q.overflow.Load() > 0 || q.Retry() {
		t.Error("a queue that is closed takes completions")
	}
}
