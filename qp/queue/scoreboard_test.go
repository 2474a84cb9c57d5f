package queue

import (
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// TestScoreboard: a hole is lost once when it shows, and again when something
// younger than its retransmission has arrived, or when it is late (RFC 8985,
// section 6.2). An acknowledgement of what was never sent is refused.
func TestScoreboard(t *testing.T) {
	t.Parallel()
	const una, end = rocev2.PSN(0xfffffa), rocev2.PSN(20) // PSNs come again at 2^24
	p := NewPool(1)
	path := &Reordering{}
	s := p.OpenBoard(una, path, 4096)
	update := func(why string, una rocev2.PSN, late clock.Time, want, wantLost, wantKept int, kept ...byte) {
		t.Helper()
		path.Late = late
		if lost, ok := s.Update(una, end, kept); lost != want || !ok || s.Lost() != wantLost || int(s.Kept(una)) != wantKept {
			t.Errorf("%s: %d are lost, %v, %d to be sent, %d kept; want %d, %d, %d", why, lost, ok, s.Lost(), s.Kept(una), want, wantLost, wantKept)
		}
	}
	update("una and the third after it are missing", una, 0, 2, 2, 4, 0b11011)
	if s.Has(una, una) || !s.Has(una.Add(1), una) || s.Has(una.Add(3), una) || s.Has(una.Add(6), una) || !s.Has(una.Add(-1), una) {
		t.Error("it does not know what has arrived")
	}
	for s.Lost() > 0 {
		s.Sent(s.NextLost(), 1000, 2)
	}
	update("the same once more", una, 0, 0, 0, 4, 0b11011)
	update("what was sent before the retransmissions has come", una, 0, 0, 0, 6, 0b1111011)
	update("something younger has come", una, 0, 2, 2, 8, 0b11111011, 0b1)
	for s.Lost() > 0 {
		s.Sent(s.NextLost(), 2000, end)
	}
	update("they are late", una, 2000, 2, 2, 8, 0b11111011, 0b1)
	update("the peer has given up what it kept, which was not lost", una, 0, 0, 3, 7, 0b11111010, 0b1)
	if _, ok := s.Update(una, end, []byte{0, 0, 0, 0x80}); ok {
		t.Error("what was never sent has arrived")
	}
	if !s.Advance(una.Add(2)) || s.Lost() != 1 {
		t.Errorf("%d are lost after what is acknowledged, want 1", s.Lost())
	}
	if s.Advance(una.Add(10)) || s.Lost() != 0 {
		t.Error("it is of use though all is acknowledged")
	}
	p.CloseBoard(s)
	if p.OpenBoard(una, path, 4096) != s {
		t.Error("the memory is not used again")
	}
}

// TestScoreboardAnswers: the PSNs of the responses to a READ are no packets.
// They are never lost, and never sent, whatever comes.
func TestScoreboardAnswers(t *testing.T) {
	t.Parallel()
	const end = rocev2.PSN(100)
	s := NewPool(1).OpenBoard(0, &Reordering{}, 4096)
	check := func(why string, lost, pending, kept int) {
		t.Helper()
		if s.Lost() != lost || s.Pending() != pending || int(s.Kept(0)) != kept {
			t.Errorf("%s: %d are lost, %d pending, %d kept; want %d, %d, %d", why, s.Lost(), s.Pending(), s.Kept(0), lost, pending, kept)
		}
	}
	// A READ from 2 on, in requests for 4 responses each: its first request
	// is kept, the second and the third are not, and what follows at 12 is.
	if lost, ok := s.Update(0, end, []byte{1 << 1, 1 << 3}); !ok || lost != 11 {
		t.Fatalf("%d are lost, %v", lost, ok)
	}
	if n := s.Answers(2, 10, 4); n != 7 || s.Answers(2, 10, 4) != 0 {
		t.Errorf("%d of the lost were responses", n)
	}
	check("two packets and two requests", 4, 0, 2)
	for _, want := range []rocev2.PSN{0, 1, 6, 10} {
		h := s.NextLost()
		if h.PSN != want {
			t.Fatalf("%v is sent, want %v", h.PSN, want)
		}
		s.Sent(h, 1000, end)
	}
	check("all are sent again", 0, 4, 2)
	s.path.Late = 1000
	if lost, ok := s.Update(0, end, []byte{1 << 1, 1 << 3}); !ok || lost != 4 {
		t.Errorf("%d are late, %v; want 4", lost, ok)
	}
	s.Resend()
	check("the peer is silent", 4, 0, 2)
	if !s.Advance(6) || s.Lost() != 2 || s.Pending() != 0 {
		t.Errorf("after the first request %d are lost, %d pending", s.Lost(), s.Pending())
	}
}

// TestScoreboardIsBounded: holes without end make a scoreboard forget those
// that are farthest, and what is after them.
func TestScoreboardIsBounded(t *testing.T) {
	t.Parallel()
	s := NewPool(1).OpenBoard(0, &Reordering{}, 4096)
	every := make([]byte, 2*MaxHoles/8+100)
	for i := range every {
		every[i] = 0x55
	}
	if lost, ok := s.Update(0, 1<<20, every); lost != MaxHoles || !ok || s.Kept(0) != MaxHoles {
		t.Errorf("%d holes, %v, %d kept", lost, ok, s.Kept(0))
	}
}

// TestRowsOfHoles: a row ends before what was sent already, unless all must be
// sent.
func TestRowsOfHoles(t *testing.T) {
	t.Parallel()
	s := NewPool(1).OpenBoard(0, &Reordering{}, 4096)
	s.Update(0, 100, []byte{0b10000000}) // 0 to 7 are missing
	s.Sent(&s.holes[4], 1, 50)
	if n := s.SendRow(2, 8, false, 1, 50); n != 2 || s.Lost() != 5 {
		t.Errorf("a row of %d, %d are left", n, s.Lost())
	}
	if n := s.SendRow(0, 8, true, 1, 50); n != 8 || s.Lost() != 0 {
		t.Errorf("all are %d, %d are left", n, s.Lost())
	}
	if s.Any(0, 8) || !s.Any(0, 9) || s.Any(9, 20) {
		t.Error("it does not know what is kept")
	}
}

// TestScoreboardRemembersWhatIsBehind: an acknowledgement that reaches less far
// than what is known says nothing of what comes after it, which stays lost.
func TestScoreboardRemembersWhatIsBehind(t *testing.T) {
	t.Parallel()
	b := NewPool(1).OpenBoard(100, &Reordering{judged: true}, 4096)
	b.Missing(100)
	b.LoseRest(200, 31) // up to 131
	for range 31 {
		b.Sent(b.NextLost(), 1, 200)
	}
	if _, ok := b.Update(100, 200, []byte{1 << 3}); !ok { // 104 has come
		t.Fatal("refused")
	}
	if kept := b.Kept(100); kept != 1 || b.Lost() != 1 || b.NextLost().PSN != 131 {
		t.Errorf("%d kept, %d lost, next %v", kept, b.Lost(), b.NextLost())
	}
}

// TestScoreboardRebuild: of what a sender keeps itself it knows all. What it
// has given up is to be sent again, and what is under way is not, however far
// it reaches.
func TestScoreboardRebuild(t *testing.T) {
	t.Parallel()
	const una, end = rocev2.PSN(0xfffff0), rocev2.PSN(2 * MaxHoles)
	s := NewPool(1).OpenBoard(una, &Reordering{}, 4096)
	s.Update(una, end, []byte{0b11101111, 0xff, 0xff})
	for s.Lost() > 0 {
		s.Sent(s.NextLost(), 1000, end)
	}
	s.Rebuild(una, []byte{0b00001100})
	if s.End() != una.Add(25) || s.Lost() != 25-2-2 || s.Pending() != 2 || s.Kept(una) != 2 {
		t.Errorf("up to %d, %d to be sent, %d under way, %d kept", s.End(), s.Lost(), s.Pending(), s.Kept(una))
	}
	if h := s.NextLost(); h == nil || h.PSN != una.Add(1) {
		t.Errorf("next is %+v", h)
	}
	s.Rebuild(una, nil)
	if s.Lost() != 25-2 || s.Kept(una) != 0 {
		t.Errorf("nothing is kept: %d to be sent, %d kept", s.Lost(), s.Kept(una))
	}
	s.LoseRest(end, MaxHoles)
	s.Rebuild(una, nil)
	if n := s.Lost() + s.Pending(); n != MaxHoles || s.End() != una.Add(MaxHoles) {
		t.Errorf("%d holes up to %d", n, s.End())
	}
}
