package uverbs

import (
	"errors"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/ring"
	fake "github.com/gosoftroce/rocev2/programs/uverbs/uverbstest"
)

// bareCQ is a completion queue without a device, and what was told of it.
type bareCQ struct {
	appCQ
	told, lost int
}

// space is memory for a ring.
func space(entries, elem int) *ringSpace {
	shape := ring.ShapeFor(entries, elem)
	return &ringSpace{mem: fake.Memory(shape.Size()), shape: shape}
}

func newBareCQ(t testing.TB, n int) *bareCQ {
	t.Helper()
	mem := space(n, ring.CQElem)
	q := &bareCQ{appCQ: appCQ{p: &app{t: t}, Ring: fake.Ring{Mem: mem.mem}}}
	var err error
	q.CompQueue, err = newCompQueue(mem, func() { q.told++ }, func() { q.lost++ })
	q.p.must(err)
	return q
}

// A program is told once for each time that it has asked (IBTA 11.4.2.2).
func TestArming(t *testing.T) {
	t.Parallel()
	q := newBareCQ(t, 15)
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
	} {
		q.told = 0
		q.armed.Store(c.arm)
		q.complete(c.wc, c.wc.ID, 0)
		if told := q.told == 1; told != c.told {
			t.Errorf("%s: told %v", c.why, told)
		}
		if armed := q.armed.Load(); c.told && armed != 0 || !c.told && armed != c.arm {
			t.Errorf("%s: it is armed %d", c.why, armed)
		}
		q.complete(c.wc, c.wc.ID, 0)
		if q.told > 1 {
			t.Errorf("%s: told twice", c.why)
		}
		q.wait(2)
	}
}

func TestOverflow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why  string
		full func(q *bareCQ)
	}{
		{"full", func(q *bareCQ) {
			for q.complete(&ib.WC{}, 0, 0) {
			}
		}},
		{"an index that cannot be", func(q *bareCQ) { q.SetConsumer(4) }},
		{"another one", func(q *bareCQ) { q.SetConsumer(1 << 31) }},
	} {
		q := newBareCQ(t, 3)
		c.full(q)
		for range 2 {
			if q.complete(&ib.WC{}, 0, 0) || q.lost != 1 {
				t.Errorf("%s: the event came %d times", c.why, q.lost)
			}
		}
		q.SetConsumer(q.Producer())
		if !q.complete(&ib.WC{}, 5, 0) {
			t.Errorf("%s: there is room again", c.why)
		}
	}
}

// An overflow ends the queue pairs that meet it, not those of others.
func TestOverflowEndsQueuePair(t *testing.T) {
	t.Parallel()
	pa, pb := programs(t)
	small := pa.newCQ(3)
	a, b := pa.newQP(options{cq: small}), pb.newQP(options{})
	c, d := pa.newQP(options{}), pb.newQP(options{})
	for _, p := range [][2]*appQP{{a, b}, {b, a}, {c, d}, {d, c}} {
		p[0].connect(p[1])
	}
	for i := range uint64(5) {
		a.post(a.write(i, 0, pb, 0))
	}
	a.untilErr()
	pa.wantAsync(ib.EventCQError, small.user)
	c.post(c.write(1, 0, pb, 0))
	c.cq.expect(ib.StatusSuccess, 1)
}

func TestResizeCompletions(t *testing.T) {
	t.Parallel()
	q := newBareCQ(t, 7)
	for i := range uint64(7) {
		q.complete(&ib.WC{}, i, 0)
	}
	for _, c := range []struct {
		entries int
		want    error
	}{{3, ring.ErrFull}, {15, nil}, {7, nil}} {
		to := space(c.entries, ring.CQElem)
		if err := q.Resize(to); !errors.Is(err, c.want) {
			t.Errorf("to %d: %v", c.entries, err)
		} else if err == nil {
			q.Ring.Mem = to.mem
		}
	}
	if n, err := q.Len(); n != 7 || err != nil {
		t.Errorf("%d completions, %v", n, err)
	}
	q.expect(ib.StatusSuccess, 0, 1, 2, 3, 4, 5, 6)
	if q.complete(&ib.WC{}, 9, 0); q.expect(ib.StatusSuccess, 9) == nil {
		t.Error("nothing")
	}
}

func TestClosedCompletions(t *testing.T) {
	t.Parallel()
	q := newBareCQ(t, 7)
	q.Arm(false)
	q.Close()
	if q.complete(&ib.WC{}, 0, 0) || q.told > 0 || q.lost > 0 {
		t.Error("a queue that is closed takes completions")
	}
}
