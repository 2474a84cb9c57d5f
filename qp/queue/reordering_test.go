package queue

import (
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
)

// lateBoard is a scoreboard with its path.
type lateBoard struct {
	t    *testing.T
	path Reordering
	*Scoreboard
}

func newLateBoard(t *testing.T) *lateBoard {
	b := &lateBoard{t: t}
	b.Scoreboard = NewPool(2048).OpenBoard(0, &b.path, 4096)
	b.path.Judge()
	b.path.Now, b.path.Soon, b.path.Missed, b.path.Late, b.path.Ripe = 1000, 900, -1, -1, 1000
	return b
}

// update tells the scoreboard what is kept after una.
func (b *lateBoard) update(una rocev2.PSN, wantLost, wantLate int, kept ...byte) {
	b.t.Helper()
	if lost, ok := b.Update(una, 1000, kept); lost != wantLost || !ok || b.Late() != wantLate {
		b.t.Fatalf("%d are lost, %v, %d late; want %d, %d", lost, ok, b.Late(), wantLost, wantLate)
	}
}

// TestFirstGapWaits: on a path of which nothing is known a packet that others
// have overtaken, however many, is lost when it has been missing for a while,
// and from then on the path keeps the order. If it comes before, the path does
// not.
func TestFirstGapWaits(t *testing.T) {
	t.Parallel()
	for _, comes := range []bool{false, true} {
		b := newLateBoard(t)
		b.path = Reordering{Now: 1000, Missed: -1, Late: -1, Ripe: 500}
		b.path.SetMost(100)
		b.update(0, 0, 1, 0xff)
		if !b.path.Waits() || b.path.Judged() {
			t.Fatal("the path is judged by a gap")
		}
		if comes {
			b.Advance(9)
			if !b.path.Seen() || b.path.window != 16 || b.path.TakeSpurious() != 0 {
				t.Errorf("the window is %d, want 16", b.path.window)
			}
			continue
		}
		b.path.Now, b.path.Soon, b.path.Ripe = 1600, 1600, 1100
		b.update(0, 1, 0, 0xff, 1)
		if b.path.Waits() {
			t.Error("a path that has lost something waits")
		}
		b.Sent(b.NextLost(), 1600, 100)
		b.Advance(10)
		b.path.Now, b.path.Ripe = 3000, 2500
		b.update(10, 1, 0, 1)
	}
}

// TestReorderingGrows: a packet that was taken for missing and comes by itself
// widens the window to twice the number of packets that had overtaken it. Then
// nothing is taken for lost before more packets than that have overtaken it.
func TestReorderingGrows(t *testing.T) {
	t.Parallel()
	b := newLateBoard(t)
	b.update(0, 1, 0, 0b111) // 0 is lost: 1, 2 and 3 have come
	b.Advance(4)             // and comes by itself
	if !b.path.Seen() || b.path.window != 6 {
		t.Fatalf("the window is %d, want 6", b.path.window)
	}
	b.update(4, 0, 1, 0b111111)
	b.update(4, 1, 0, 0b1111111) // a seventh
	b.Sent(b.NextLost(), 950, 100)
	b.Advance(12) // much sooner than its answer can come
	if n := b.path.TakeSpurious(); n != 1 || b.path.window != 14 {
		t.Errorf("%d were sent for nothing, the window is %d; want 1, 14", n, b.path.window)
	}
}

// TestReorderingShrinks: packets that are really lost narrow the window, until
// it is 0 again. It is never wider than its bound, whatever comes.
func TestReorderingShrinks(t *testing.T) {
	t.Parallel()
	o := Reordering{}
	o.SetMost(100)
	o.filled(&Hole{over: 60000}, false)
	if o.window != 100 {
		t.Errorf("the window is %d, want 100", o.window)
	}
	losses := 0
	for ; o.Seen() && losses < 10000; losses++ {
		o.Lost()
	}
	if losses < 16 || losses > 200 {
		t.Errorf("after %d losses the path keeps the order", losses)
	}
}

// TestReorderingOverdue: what has been missing for long is lost, though nothing
// more overtakes it.
func TestReorderingOverdue(t *testing.T) {
	t.Parallel()
	b := newLateBoard(t)
	b.path.judged, b.path.window = true, 100
	b.update(0, 0, 1, 0b11)
	if at, ok := b.FirstLate(); at != 1000 || !ok || b.LoseLate() != 0 {
		t.Fatalf("missed at %v, %v", at, ok)
	}
	b.path.Missed = 1000
	if n := b.LoseLate(); n != 1 || b.Late() != 0 || b.Lost() != 1 {
		t.Errorf("%d are lost, %d late", n, b.Late())
	}
}

// TestReorderedAcknowledgements: an acknowledgement that comes late, after one
// that was sent later, does not have sent again what has arrived meanwhile.
func TestReorderedAcknowledgements(t *testing.T) {
	t.Parallel()
	b := newLateBoard(t)
	b.update(0, 1, 0, 0b11111)
	b.update(0, 0, 0, 0b101)
	if b.Lost() != 1 || b.Kept(0) != 5 {
		t.Errorf("%d are lost, %d kept", b.Lost(), b.Kept(0))
	}
}

// TestPathsLearnFromEachOther: where a path of a pool has lost something, new
// ones do not wait for the first packet that is missing, and where something
// has come late, they do.
func TestPathsLearnFromEachOther(t *testing.T) {
	t.Parallel()
	pool := NewPool(64)
	path := func() *Reordering {
		o := &Reordering{}
		pool.OpenBoard(0, o, 4096)
		return o
	}
	if !path().Waits() {
		t.Fatal("a path of which nothing is known does not wait")
	}
	path().Lost()
	if path().Waits() {
		t.Error("one path has lost something, and others wait")
	}
	path().Passed()
	if !path().Waits() {
		t.Error("something has come late, and others do not wait")
	}
	for range 100 {
		path().Passed()
	}
	n := 0
	for ; path().Waits() && n < 20; n++ {
		path().Lost()
	}
	if n > mostOrder+1 {
		t.Errorf("a network that keeps the order again is not learned after %d losses", n)
	}
}
