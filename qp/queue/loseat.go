package queue

import "github.com/gosoftroce/rocev2/rocev2"

// LoseAt records that the packet psn, from una on, is lost, however little is
// known of those before it: they may come yet. It reports whether that is news.
func (s *Scoreboard) LoseAt(psn, una rocev2.PSN) bool {
	if len(s.holes) == 0 && !s.high.After(una) {
		s.high = una
	}
	for s.high.Before(psn) {
		if len(s.holes) == MaxHoles {
			return false
		}
		s.holes = append(s.holes, Hole{PSN: s.high, at: s.path.Now, guess: true})
		s.high = s.high.Next()
		s.late++
	}
	i := s.from(psn)
	switch {
	case psn == s.high:
		if len(s.holes) == MaxHoles {
			return false
		}
		s.holes = append(s.holes, Hole{PSN: psn, at: s.path.Now, guess: true, lost: true})
		s.high = psn.Next()
		s.lost++
	case i == len(s.holes) || s.holes[i].PSN != psn || s.holes[i].answer || s.holes[i].waits():
		return false // it is kept, or known to be lost
	default:
		h := &s.holes[i]
		s.count(h, -1)
		h.lost, h.sent, h.guess = true, false, true
		s.count(h, 1)
	}
	s.next = min(s.next, i)
	return true
}
