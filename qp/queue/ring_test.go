package queue

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

func TestRingSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{0: 0, 1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 128: 128, 129: 256} {
		if got := RingSize(n); got != want {
			t.Errorf("RingSize(%d) = %d, want %d", n, got, want)
		}
	}
}

// A ring that grows holds in order what was posted, wherever it wraps.
func TestRingsGrow(t *testing.T) {
	t.Parallel()
	for depth := 1; depth <= 20; depth++ {
		rng := rand.New(rand.NewPCG(1, uint64(depth)))
		var s SendRing
		s.Init(depth, 2, 8)
		s.Head, s.Tail = ^uint32(0)-5, ^uint32(0)-5 // indices wrap
		var r RecvRing
		r.Init(depth, 2, nil, nil)
		var posted, done uint64
		for range 500 {
			if rng.IntN(2) == 0 {
				list := []ib.SGE{{Addr: posted, Length: 1}, {Addr: posted + 1, Length: 2}}
				full := posted-done == uint64(depth)
				if s.Full() != full {
					t.Fatalf("depth %d with %d requests: Full = %v", depth, posted-done, !full)
				}
				if r.Push(&ib.RecvWR{ID: posted, SGList: list}) == full {
					t.Fatalf("depth %d with %d receives: Push = %v", depth, posted-done, full)
				}
				if full {
					continue
				}
				wr := ib.SendWR{ID: posted, Opcode: ib.OpSend, SGList: list}
				if posted%2 == 1 {
					wr.SGList, wr.Inline = nil, binary.BigEndian.AppendUint64(nil, posted)
				}
				s.Push(&wr, 3, true)
				posted++
				continue
			}
			var got Recv
			if r.Next(&got) != (posted > done) {
				t.Fatalf("depth %d with %d receives: Next finds the opposite", depth, posted-done)
			}
			if posted == done {
				continue
			}
			if got.ID != done || len(got.SGList) != 2 || got.SGList[1].Addr != done+1 {
				t.Fatalf("depth %d: receive %d is %+v", depth, done, got)
			}
			w := s.At(s.Head)
			list := s.List(s.Head, w)
			switch {
			case w.ID != done:
				t.Fatalf("depth %d: request %d has ID %d", depth, done, w.ID)
			case done%2 == 1 && binary.BigEndian.Uint64(s.Data(s.Head)) != done:
				t.Fatalf("depth %d: request %d has inline data %x", depth, done, s.Data(s.Head))
			case done%2 == 0 && (len(list) != 2 || list[1].Addr != done+1):
				t.Fatalf("depth %d: request %d has the list %+v", depth, done, list)
			}
			s.Head++
			done++
		}
		if len(s.requests) > RingSize(depth) || len(r.ids) > RingSize(depth) {
			t.Errorf("depth %d: %d and %d slots", depth, len(s.requests), len(r.ids))
		}
	}
}

// An idle queue pair takes no memory for requests that are not posted.
func TestRingsAreEmptyAtFirst(t *testing.T) {
	t.Parallel()
	var s SendRing
	s.Init(1024, 4, 64)
	s.Push(&ib.SendWR{Opcode: ib.OpSend}, 0, true)
	if n := len(s.requests); n != firstRequests {
		t.Errorf("a queue of 1024 with one request has %d slots, want %d", n, firstRequests)
	}
}
