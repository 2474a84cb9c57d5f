package keychannel

import (
	"testing"
	"time"
)

// TestWorst has all places of keys taken: the key of a handshake under way
// stays.
func TestWorst(t *testing.T) {
	t.Parallel()
	ended := time.Unix(1, 0)
	for _, c := range []struct {
		name string
		in   []incoming // the newest first
		want int
	}{
		{"the oldest", []incoming{{sure: true, ended: ended}, {sure: true, ended: ended}}, 1},
		{"not used", []incoming{{ended: ended}, {ended: ended}, {sure: true, ended: ended}}, 1},
		{"under way", []incoming{{ended: ended}, {sure: true, ended: ended}, {}}, 0},
		{"used, before one under way", []incoming{{}, {sure: true, ended: ended}, {}}, 1},
		{"all under way", []incoming{{}, {}}, 1},
	} {
		p := peer{in: c.in}
		if got := p.worst(); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
