package queue

import (
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
)

// What is told to be lost is to be sent, once, and what is before it may come
// yet. A selective acknowledgement fills what has come.
func TestLoseAt(t *testing.T) {
	t.Parallel()
	var o Reordering
	o.Judge()
	pool := NewPool(4096)
	const una, end = rocev2.PSN(0xfffffe), rocev2.PSN(8) // 10 packets in flight
	b := pool.OpenBoard(una, &o, 1024)
	if !b.LoseAt(1, una) || b.LoseAt(1, una) || b.Lost() != 1 || b.Late() != 3 || b.End() != 2 {
		t.Errorf("lost %d, late %d, up to %v: want PSN 1 lost, and 3 before it late", b.Lost(), b.Late(), b.End())
	}
	if h := b.NextLost(); h == nil || h.PSN != 1 {
		t.Fatalf("the next one is %+v, want 1", h)
	} else {
		b.Sent(h, 5, end)
	}
	if !b.LoseAt(0, una) || b.Lost() != 1 || b.Late() != 2 || b.Pending() != 1 {
		t.Errorf("lost %d, late %d, pending %d: want 1, 2, 1", b.Lost(), b.Late(), b.Pending())
	}
	if !b.LoseAt(1, una) || b.Lost() != 2 || b.Pending() != 0 {
		t.Errorf("lost again: lost %d, pending %d", b.Lost(), b.Pending())
	}
	// The peer has 0xffffff, and after it 2 and 3.
	if _, ok := b.Update(una, end, []byte{0b11001}); !ok {
		t.Error("the acknowledgement is not believed")
	}
	if b.Has(0xffffff, una) == false || b.Kept(una) != 3 || b.LoseAt(2, una) || b.LoseAt(0xffffff, una) {
		t.Errorf("kept %d, want 3", b.Kept(una))
	}
	if b.Advance(4); b.Lost() != 0 || b.Late() != 0 {
		t.Errorf("lost %d, late %d when all is acknowledged", b.Lost(), b.Late())
	}
}

// However far ahead a loss is told of, memory is bounded.
func TestLoseAtFarAhead(t *testing.T) {
	t.Parallel()
	var o Reordering
	b := NewPool(4096).OpenBoard(0, &o, 1024)
	if b.LoseAt(MaxHoles+10, 0) || len(b.holes) != MaxHoles || b.Late() != MaxHoles {
		t.Errorf("%d holes, want %d", len(b.holes), MaxHoles)
	}
}
