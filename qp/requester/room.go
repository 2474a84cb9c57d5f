package requester

import "github.com/gosoftroce/rocev2/rocev2"

// A native peer keeps what arrives after a gap while it has room, and says how
// much it has. What is sent beyond that is lost, and has to go once more. So
// while something is missing there nothing new goes past the room. What was on
// the way already is sent again when all before it has been repaired.

// usualRoom is how many PSNs after a gap a peer keeps that does not say it.
const usualRoom = 2048

// noteRoom notes what a selective acknowledgement says of the peer's room. It
// may have kept more, while others do not need that.
func noteRoom(r *recovery, p *rocev2.Packet) {
	s := r.sel
	if s.board == nil || r.c.Failed() {
		return
	}
	s.room = usualRoom
	if n, ok := p.AETH.Syndrome.Credits(); ok && p.BTH.Solicited {
		s.room = uint32(n)
	}
	s.room = max(s.room, s.board.End().Ahead(r.una)-1)
	s.refused = s.refused || r.nxt.Ahead(r.una) > s.room+1
	r.bound()
}

// bound bounds what is in flight by the peer's room, while it lacks something.
func (r *recovery) bound() {
	most := uint32(0)
	if s := r.sel; s != nil && s.board != nil {
		if s.room == 0 {
			s.room = usualRoom
		}
		most = s.room + 1
	}
	r.c.Bound(most)
}

// sendRefused goes back to what the peer had no room for, or this side for
// responses to READs, when all before that has come. Nothing else would ask for
// it, and the window may be full of it.
func sendRefused(r *recovery) {
	s := r.sel
	if !s.refused && !s.refusedReads || s.board != nil || s.reads != nil || r.reorder.Len() > 0 {
		return
	}
	again := s.refused || r.una.Before(s.refusedTo)
	s.refused, s.refusedReads = false, false
	if again && r.nxt == r.max && r.una != r.max && !r.rnr.waiting && !r.paging {
		r.rewind()
	}
}

// refuseResponse notes a response that is too far from a gap to be kept here.
func refuseResponse(r *recovery, psn rocev2.PSN) {
	s := r.selective()
	if r.nxt != r.max || r.reorder.Len() == 0 || psn.Before(r.reorder.End()) {
		return
	}
	if !s.refusedReads || psn.After(s.refusedTo) {
		s.refusedReads, s.refusedTo = true, psn
	}
}
