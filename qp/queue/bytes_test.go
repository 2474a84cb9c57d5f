package queue

import (
	"math/rand/v2"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// accounts says what is wrong with what a pool says of its memory: all of it is
// in a buffer, or lies unused, and is within the limit.
func accounts(t *testing.T, s *Pool, buffers []Reorder) {
	t.Helper()
	made, packets, open := 0, 0, 0
	for i, r := range buffers {
		if r.buffer == nil {
			continue
		}
		used := s.opening
		for k := r.oldest; k != nil; k = k.newer {
			used += s.costs[k.class]
			packets++
			if room := rooms[k.class]; len(k.packet.Payload) > room || !s.Lengths && cap(k.payload) != room {
				t.Fatalf("%d bytes lie in room for %d of %d", len(k.packet.Payload), cap(k.payload), room)
			}
		}
		if r.used != used {
			t.Fatalf("buffer %d has used %d, not %d", i, used, r.used)
		}
		made += used
		open++
	}
	for class, k := range s.free {
		for ; k != nil; k = k.next {
			made += s.costs[class]
			packets++
		}
	}
	for b := s.spare; b != nil; b = b.right {
		made += s.opening
	}
	if made != s.made || packets != s.packets || open != s.buffers || made > s.Limit {
		t.Fatalf("%d bytes in %d packets and %d buffers, not %d in %d and %d; the limit is %d",
			made, packets, open, s.made, s.packets, s.buffers, s.Limit)
	}
}

// TestPoolAccounts: a pool that is bounded in bytes knows what it has made,
// whatever sizes come and go, and never has more than its limit. What lies
// unused serves other sizes.
func TestPoolAccounts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 2))
		s := MakePool(PoolConfig{Limit: rng.IntN(200_000), Reach: 1 + rng.IntN(2*MostReorder), Lengths: seed%4 == 3})
		buffers := make([]Reorder, 1+rng.IntN(40))
		kept := 0
		for now := range clock.Time(3000) {
			r := &buffers[rng.IntN(len(buffers))]
			switch rng.IntN(30) {
			case 0:
				r.Discard()
			case 1:
				r.Expire(now - clock.Time(rng.IntN(500)))
			case 2:
				for r.Len() > 0 && rng.IntN(4) > 0 {
					r.Pop()
				}
				r.Trim()
			default:
				p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendMiddle, PSN: rocev2.MaxPSN.Add(1 + rng.IntN(300))},
					Payload: make([]byte, rng.IntN(2)*rng.IntN(1+4096>>rng.IntN(13)))}
				if r.Insert(s, now, &p, uint32(1+rng.IntN(3)), rocev2.MaxPSN) == Buffered {
					kept++
				}
			}
			if now%16 == 0 {
				accounts(t, s, buffers)
			}
		}
		if kept == 0 && s.Limit > 20_000 {
			t.Errorf("seed %d: nothing was kept in %d bytes", seed, s.Limit)
		}
		for i := range buffers {
			buffers[i].Discard()
		}
		accounts(t, s, buffers)
		if s.forget(-1); s.made != 0 {
			t.Errorf("%d bytes are left of nothing", s.made)
		}
	}
}

// TestReclaimLooksAtFew: in a full pool of many queue pairs that have their
// share or less, a packet does not cost a look at all of them; and one that has
// more is found nevertheless.
func TestReclaimLooksAtFew(t *testing.T) {
	t.Parallel()
	s := MakePool(PoolConfig{Limit: 1 << 20})
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendMiddle}}
	var buffers []*Reorder
	keep := func(r *Reorder, psn rocev2.PSN) bool {
		p.BTH.PSN = psn
		return r.Insert(s, 0, &p, 1, 0) == Buffered
	}
	for more := true; more; {
		r := new(Reorder)
		if more = keep(r, 2); more {
			buffers = append(buffers, r)
		}
	}
	from := s.ring
	if keep(new(Reorder), 2) {
		t.Fatal("a full pool keeps another packet")
	}
	looks := 0
	for b := from; b != s.ring; b = b.right {
		looks++
	}
	if looks != reclaimLooks || len(buffers) <= 2*reclaimLooks {
		t.Errorf("a packet costs a look at %d of %d buffers", looks, len(buffers))
	}
	for _, r := range buffers[len(buffers)/2:] { // half of the pool is for one
		r.Discard()
	}
	for psn := rocev2.PSN(3); keep(buffers[len(buffers)/4], psn); psn++ {
	}
	tries := 1
	for !keep(new(Reorder), 2) {
		tries++
	}
	if most := len(buffers)/2/reclaimLooks + 2; tries > most {
		t.Errorf("what one queue pair has beyond its share is found after %d tries, want %d at the most", tries, most)
	}
}
