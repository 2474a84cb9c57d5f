package queue

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

// sink is a CompletionSink that is only compared.
type sink struct{ name string }

func (*sink) Complete(*ib.WC) bool { return true }

// srqModel is what a shared receive queue is to do.
type srqModel struct {
	list  []ib.RecvWR
	depth int
	limit int
}

// TestSRQModel: whatever is done with it, a queue hands out what was posted, in
// order and once, keeps it when it is resized, and tells of its limit once.
func TestSRQModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		const sge = 3
		own, pd := &sink{"queue pair"}, &memreg.PD{}
		m := srqModel{depth: rng.IntN(20)}
		var s SRQ
		s.Init(m.depth, sge, pd, nil)
		r := Recv{SGList: make([]ib.SGE, 0, sge)}
		for step := range 2000 {
			at := fmt.Sprintf("seed %d step %d: ", seed, step)
			switch n := rng.IntN(20); {
			case n < 9:
				wr := ib.RecvWR{ID: rng.Uint64(), SGList: make([]ib.SGE, rng.IntN(sge+1))}
				for i := range wr.SGList {
					wr.SGList[i] = ib.SGE{Addr: rng.Uint64(), Length: uint32(rng.IntN(1000)), LKey: ib.Key(rng.Uint32())}
				}
				err := s.Post(&wr)
				if full := len(m.list) == m.depth; full != errors.Is(err, ib.ErrQueueFull) || !full && err != nil {
					t.Fatal(at, err)
				}
				if err == nil {
					m.list = append(m.list, wr)
				}
			case n < 17:
				r.CQ = own
				ok, limit := s.Next(&r)
				if ok != (len(m.list) > 0) {
					t.Fatal(at, "taken: ", ok)
				}
				if ok {
					if r.ID != m.list[0].ID || !slices.Equal(r.SGList, m.list[0].SGList) || r.PD != pd {
						t.Fatal(at, r)
					}
					m.list = m.list[1:]
				}
				if r.CQ != own {
					t.Fatal(at, "another queue")
				}
				if limit != (len(m.list) < m.limit) {
					t.Fatal(at, "limit reached: ", limit)
				}
				if limit {
					m.limit = 0
				}
			case n < 19:
				depth := rng.IntN(25)
				ok := s.Resize(depth)
				if ok != (depth >= len(m.list)) {
					t.Fatal(at, "resized: ", ok)
				}
				if ok {
					m.depth = depth
				}
			default:
				m.limit = rng.IntN(m.depth + 1)
				s.SetLimit(m.limit)
			}
			if s.Len() != len(m.list) || s.Cap() != m.depth || s.Limit() != m.limit || s.MaxSGE() != sge {
				t.Fatal(at, s.Len(), s.Cap(), s.Limit())
			}
		}
	}
}

// Receives of a queue with a completion queue of its own complete there.
func TestSRQWithCompletionQueue(t *testing.T) {
	t.Parallel()
	own, other := &sink{"its own"}, &sink{"queue pair"}
	var s SRQ
	s.Init(1, 1, nil, own)
	r := Recv{CQ: other}
	if ok, _ := s.Next(&r); ok || r.CQ != other {
		t.Error("an empty queue has a receive")
	}
	if err := s.Post(&ib.RecvWR{}); err != nil {
		t.Fatal(err)
	}
	if ok, _ := s.Next(&r); !ok || r.CQ != own {
		t.Errorf("it completes to the queue of the %v", r.CQ)
	}
}

// A queue tells of its limit also where a message finds nothing to take.
func TestSRQLimitOfAnEmptyQueue(t *testing.T) {
	t.Parallel()
	var s SRQ
	s.Init(4, 1, nil, nil)
	s.SetLimit(1)
	if ok, limit := s.Next(new(Recv)); ok || !limit {
		t.Error(ok, limit)
	}
	if _, limit := s.Next(new(Recv)); limit {
		t.Error("a limit was reached twice")
	}
}

func TestSRQRefusals(t *testing.T) {
	t.Parallel()
	var s SRQ
	s.Init(4, 2, nil, nil)
	for want, list := range map[error][]ib.SGE{
		ib.ErrTooManySGE: make([]ib.SGE, 3),
		ib.ErrTooLong:    {{Length: 1<<32 - 1}, {Length: 1}},
		ib.ErrRange:      {{Addr: uint64(ib.BadEnd), Length: math.MaxUint32}},
	} {
		if err := s.Post(&ib.RecvWR{SGList: list}); !errors.Is(err, want) || s.Len() > 0 {
			t.Errorf("%v: %v", list, err)
		}
	}
}
