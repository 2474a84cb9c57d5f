package qp

import (
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// keeper is a queue pair as its reorder buffer sees it, and what should be kept.
type keeper struct {
	q        *QP
	expected rocev2.PSN
	want     map[rocev2.PSN]byte // content
	at       map[rocev2.PSN]clock.Time
}

// TestStoreModel: whatever queue pairs keep, lose, execute and forget in one store, each finds what it has kept, in PSN
// order and across the wrap, and memory is neither lost nor used twice.
func TestStoreModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		limit := 1 + rng.IntN(40)
		s := NewStore(limit)
		keepers := make([]*keeper, 1+rng.IntN(50))
		for i := range keepers {
			keepers[i] = &keeper{q: &QP{store: s, mtu: 4096, state: ib.StateRTS}, expected: rocev2.PSN(rng.Uint32N(1 << 24)),
				want: map[rocev2.PSN]byte{}, at: map[rocev2.PSN]clock.Time{}}
		}
		now := clock.Time(1)
		for range 3000 {
			k := keepers[rng.IntN(min(len(keepers), 1+rng.IntN(len(keepers))))]
			k.step(rng, now)
			now += clock.Time(rng.IntN(3))
			for _, k := range keepers {
				k.follow()
			}
			if rng.IntN(20) == 0 {
				checkStore(t, s, keepers)
			}
		}
		for _, k := range keepers {
			k.q.resp.kept.discard()
			clear(k.want)
		}
		checkStore(t, s, keepers)
		if s.buffers != 0 || s.ring != nil {
			t.Errorf("%d buffers are in use at the end", s.buffers)
		}
	}
}

func (k *keeper) step(rng *rand.Rand, now clock.Time) {
	l := &k.q.resp.kept
	switch rng.IntN(12) {
	default:
		distance := 1 + rng.IntN(300)
		if rng.IntN(3) == 0 {
			distance = 1 + rng.IntN(2*MaxReorder)
		} else if l.len() > 0 && rng.IntN(2) == 0 {
			distance = int(ahead(l.end, k.expected)) + rng.IntN(2*reorderGap)
		}
		p := &rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendMiddle, PSN: k.expected.Add(distance)},
			Payload: []byte{byte(rng.IntN(20) / 19)}}
		psn := p.BTH.PSN
		had, known := k.want[psn]
		switch k.q.keep(now, l, p, uint32(1+rng.IntN(3)), k.expected, DropOutOfOrder) {
		case DropNone:
			if known {
				panic("kept twice")
			}
			k.want[psn], k.at[psn] = p.Payload[0], now
		case DropConflict:
			if !known || had == p.Payload[0] {
				panic("no conflict")
			}
			delete(k.want, psn)
		}
	case 0:
		k.expected = k.expected.Add(rng.IntN(200))
		k.trim()
	case 1: // executes what follows
		for l.len() > 0 && rng.IntN(8) != 0 {
			psn := l.first
			if l.lowest().packet.Payload[0] != k.want[psn] {
				panic("not what was kept")
			}
			k.expected = psn.Next()
			delete(k.want, psn)
			l.pop()
		}
		l.trim()
		k.trim()
	case 2:
		if l.len() > 0 {
			until := now - clock.Time(rng.IntN(60))
			l.discardUntil(until)
			l.trim()
			for psn := range k.want {
				if k.at[psn] <= until {
					delete(k.want, psn)
				}
			}
		}
	case 3:
		if rng.IntN(10) == 0 {
			l.discard()
			clear(k.want)
		}
	}
}

// trim takes out what is not ahead of the expected PSN, as the next packet would.
func (k *keeper) trim() {
	if l := &k.q.resp.kept; l.len() > 0 {
		l.discardBefore(k.expected)
		l.trim()
	}
	for psn := range k.want {
		if psn.Before(k.expected) {
			delete(k.want, psn)
		}
	}
}

// follow takes note of what another one has taken away, which are the newest.
func (k *keeper) follow() {
	l := &k.q.resp.kept
	if l.len() == len(k.want) {
		return
	}
	newest := clock.Time(-1)
	if l.len() > 0 {
		newest = l.newest.at
	}
	for psn := range k.want {
		if k.at[psn] >= newest && (l.len() == 0 || l.find(psn) == nil) {
			delete(k.want, psn)
		}
	}
}

func checkStore(t *testing.T, s *Store, keepers []*keeper) {
	t.Helper()
	used, buffers := 0, 0
	for i, k := range keepers {
		l := &k.q.resp.kept
		if l.len() != len(k.want) {
			t.Fatalf("queue pair %d: %d are kept, want %d", i, l.len(), len(k.want))
		}
		if l.len() == 0 {
			if l.reorderBuffer != nil {
				t.Fatalf("queue pair %d has an empty buffer", i)
			}
			continue
		}
		buffers++
		used += l.n
		set := 0
		for _, w := range l.have {
			set += bits.OnesCount64(w)
		}
		first, end := l.first, l.first
		for psn, c := range k.want {
			e := l.find(psn)
			if e == nil || e.packet.Payload[0] != c || e.at != k.at[psn] {
				t.Fatalf("queue pair %d: PSN %v is not what was kept", i, psn)
			}
			if psn.Before(first) {
				first = psn
			}
			if e.end().After(end) {
				end = e.end()
			}
		}
		if set != l.n || first != l.first || l.find(first) == nil || l.end.Before(end) {
			t.Fatalf("queue pair %d: %d bits, from %v to %v, want %d, %v to %v", i, set, l.first, l.end, l.n, first, end)
		}
		var last clock.Time
		n := 0
		for e := l.oldest; e != nil; e = e.newer {
			if e.at < last || e.of != l.reorderBuffer {
				t.Fatalf("queue pair %d: not in the order of arrival", i)
			}
			last = e.at
			n++
		}
		if n != l.n {
			t.Fatalf("queue pair %d: %d in the list of %d", i, n, l.n)
		}
	}
	free := 0
	for e := s.free; e != nil; e = e.next {
		free++
	}
	chained := 0
	for _, c := range s.index {
		for ; c != nil; c = c.next {
			chained++
		}
	}
	if s.made > s.limit || used+free != s.made || chained != used || buffers != s.buffers {
		t.Fatalf("%d used, %d in the index, %d free of %d made, at most %d; %d buffers of %d", used, chained, free, s.made, s.limit, buffers, s.buffers)
	}
}
