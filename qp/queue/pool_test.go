package queue

import (
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testshort"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// keeper is a queue pair as its reorder buffer sees it, and what should be
// kept.
type keeper struct {
	pool     *Pool
	buffer   Reorder
	expected rocev2.PSN
	want     map[rocev2.PSN]byte // content
	at       map[rocev2.PSN]clock.Time
}

// TestPoolModel: whatever queue pairs keep, lose, execute and forget in one
// pool, each finds what it has kept, in PSN order and across the wrap, and
// memory is neither lost nor used twice.
func TestPoolModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		limit := 1 + rng.IntN(40)
		s := NewPool(limit)
		keepers := make([]*keeper, 1+rng.IntN(50))
		for i := range keepers {
			keepers[i] = &keeper{pool: s, expected: rocev2.PSN(rng.Uint32N(1 << 24)),
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
				checkPool(t, s, keepers)
			}
		}
		for _, k := range keepers {
			k.buffer.Discard()
			clear(k.want)
		}
		checkPool(t, s, keepers)
		if s.buffers != 0 || s.ring != nil {
			t.Errorf("%d buffers are in use at the end", s.buffers)
		}
	}
}

func (k *keeper) step(rng *rand.Rand, now clock.Time) {
	l := &k.buffer
	switch rng.IntN(12) {
	default:
		distance := 1 + rng.IntN(300)
		if rng.IntN(3) == 0 {
			distance = 1 + rng.IntN(2*MaxReorder)
		} else if l.Len() > 0 && rng.IntN(2) == 0 {
			distance = int(l.end.Ahead(k.expected)) + rng.IntN(2*reorderGap)
		}
		p := &rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendMiddle, PSN: k.expected.Add(distance)},
			Payload: []byte{byte(rng.IntN(20) / 19)}}
		psn := p.BTH.PSN
		had, known := k.want[psn]
		switch l.Insert(k.pool, now, p, uint32(1+rng.IntN(3)), k.expected) {
		case Buffered:
			if known {
				panic("kept twice")
			}
			k.want[psn], k.at[psn] = p.Payload[0], now
		case Conflict:
			if !known || had == p.Payload[0] {
				panic("no conflict")
			}
			delete(k.want, psn)
		}
	case 0:
		k.expected = k.expected.Add(rng.IntN(200))
		k.trim()
	case 1: // executes what follows
		for l.Len() > 0 && rng.IntN(8) != 0 {
			psn := l.first
			if l.Lowest().Payload[0] != k.want[psn] {
				panic("not what was kept")
			}
			k.expected = psn.Next()
			delete(k.want, psn)
			l.pop()
		}
		l.Trim()
		k.trim()
	case 2:
		if l.Len() > 0 {
			until := now - clock.Time(rng.IntN(60))
			l.discardUntil(until)
			l.Trim()
			for psn := range k.want {
				if k.at[psn] <= until {
					delete(k.want, psn)
				}
			}
		}
	case 3:
		if rng.IntN(10) == 0 {
			l.Discard()
			clear(k.want)
		}
	}
}

// trim takes out what is not ahead of the expected PSN, as the next packet
// would.
func (k *keeper) trim() {
	if l := &k.buffer; l.Len() > 0 {
		l.discardBefore(k.expected)
		l.Trim()
	}
	for psn := range k.want {
		if psn.Before(k.expected) {
			delete(k.want, psn)
		}
	}
}

// follow records which packets another keeper has taken away: the newest ones.
func (k *keeper) follow() {
	l := &k.buffer
	if l.Len() == len(k.want) {
		return
	}
	newest := clock.Time(-1)
	if l.Len() > 0 {
		newest = l.newest.at
	}
	for psn := range k.want {
		if k.at[psn] >= newest && (l.Len() == 0 || l.find(psn) == nil) {
			delete(k.want, psn)
		}
	}
}

func checkPool(t *testing.T, s *Pool, keepers []*keeper) {
	t.Helper()
	used, buffers := 0, 0
	for i, k := range keepers {
		l := &k.buffer
		if l.Len() != len(k.want) {
			t.Fatalf("queue pair %d: %d are kept, want %d", i, l.Len(), len(k.want))
		}
		if l.Len() == 0 {
			if l.buffer != nil {
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
			if e.at < last || e.of != l.buffer {
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
	for _, e := range s.free {
		for ; e != nil; e = e.next {
			free++
		}
	}
	chained := 0
	for _, c := range s.index {
		for ; c != nil; c = c.next {
			chained++
		}
	}
	if s.made > s.Limit || used+free != s.made || chained != used || buffers != s.buffers {
		t.Fatalf("%d used, %d in the index, %d free of %d made, at most %d; %d buffers of %d", used, chained, free, s.made, s.Limit, buffers, s.buffers)
	}
}

// TestReorderBuffer does at random what is done to buffers that share a pool,
// and compares with a map.
func TestReorderBuffer(t *testing.T) {
	t.Parallel()
	for seed := range testshort.Rounds[uint64](50) {
		r := rand.New(rand.NewPCG(seed, 0))
		s := NewPool(1 + r.IntN(300))
		type model struct {
			l        Reorder
			expected rocev2.PSN
			at       map[rocev2.PSN]clock.Time
		}
		models := make([]*model, 1+r.IntN(5))
		for i := range models {
			models[i] = &model{expected: rocev2.PSN(r.Uint32()) & rocev2.PSNMask, at: map[rocev2.PSN]clock.Time{}}
		}
		models[0].expected = rocev2.MaxPSN - 100
		for now := range clock.Time(3000) {
			m := models[r.IntN(len(models))]
			switch r.IntN(20) {
			case 0:
				m.expected = m.expected.Add(r.IntN(300))
			case 1:
				if m.l.buffer != nil {
					limit := now - clock.Time(r.IntN(500))
					m.l.discardUntil(limit)
					for psn, at := range m.at {
						if at <= limit {
							delete(m.at, psn)
						}
					}
				}
			case 2:
				if m.l.buffer != nil && m.l.n > 0 {
					delete(m.at, m.l.first)
					m.l.Pop()
				}
			default:
				psn := m.expected.Add(1 + r.IntN(MaxReorder))
				if r.IntN(2) == 0 {
					psn = m.expected.Add(1 + r.IntN(50))
				}
				if _, there := m.at[psn]; there {
					break
				}
				if m.l.buffer == nil {
					m.l.buffer = s.open()
				}
				m.l.discardBefore(m.expected.Next())
				if k := s.take(m.l.buffer, 0); k != nil {
					k.at, k.psns, k.packet = now, 1, rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendOnly, PSN: psn}}
					m.l.insert(k)
					m.at[psn] = now
				}
			}
			if m.l.buffer != nil {
				m.l.discardBefore(m.expected.Next())
			}
			for psn := range m.at {
				if !psn.After(m.expected) {
					delete(m.at, psn)
				}
			}
			m.l.Trim()
			for _, o := range models { // what a full pool took for another one
				for psn := range o.at {
					if o.l.buffer == nil || o.l.find(psn) == nil {
						if o == m || s.made < s.Limit {
							t.Fatalf("seed %d: PSN %v is gone", seed, psn)
						}
						delete(o.at, psn)
					}
				}
				if err := o.l.Check(o.expected); err != nil {
					t.Fatal(err)
				}
				if o.l.Len() != len(o.at) {
					t.Fatalf("seed %d: %d packets, not %d", seed, o.l.Len(), len(o.at))
				}
			}
		}
		for _, m := range models {
			m.l.Discard()
		}
		if n, err := s.Held(); n != 0 || err != nil {
			t.Fatalf("seed %d: packets are left", seed)
		}
	}
}
