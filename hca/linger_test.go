package hca

import "testing"

// A goroutine that lingers for nothing does so ever less, but never not at all;
// one that gets packets by it soon lingers as long as before.
func TestLingering(t *testing.T) {
	t.Parallel()
	var l lingering
	if n := l.polls(); n != lingerPolls {
		t.Errorf("%d polls at first", n)
	}
	spent := 0
	for range 100 {
		spent += l.polls()
		l.failed()
	}
	if n := l.polls(); n != leastPolls || spent > 2*lingerPolls+100*leastPolls {
		t.Errorf("%d polls after nothing came, %d in all", n, spent)
	}
	for range 8 {
		l.paid()
	}
	if n := l.polls(); n != lingerPolls {
		t.Errorf("%d polls after packets came", n)
	}
}
