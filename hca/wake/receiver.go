package wake

import (
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// onReceiver is On for what the receiver does.
func (s State) onReceiver(in Input) (State, Act) {
	switch in {
	case Takes:
		if s&owner != 0 {
			return s&^Active | StandsBy, 0
		}
		return s | byReceiver, Own
	case BlocksOwn:
		return s&^(Active|outrunAll) | InLink, 0
	case UnblocksOwn:
		return s &^ InLink, 0
	case Tick:
		quiet := s&Active == 0
		s &^= Active
		switch {
		case s&owner == 0 && (quiet || s&(Called|parkedAll|threadsAll) != 0):
			return s, ComeBack
		case s&owner != 0 && quiet && s&Late == 0:
			return s | Dormant, Sleep
		}
		return s, 0
	case Returns:
		return s &^ (StandsBy | Dormant), 0
	}
	return s, 0
}

// Receiver is what the receiver remembers from one input to the next: it has
// the time.
type Receiver struct {
	stays clock.Time    // it does not stand by before
	every time.Duration // it looks while it stands by
}

// Found is called when the receiver owns the receive side, and has found a
// number of packets. Those that programs had left keep it for a while, unless
// it was called.
func (r *Receiver) Found(s State, now clock.Time, found int) State {
	if found > 0 && s&Called == 0 {
		r.stays = now.Add(StandbyBan)
	} else {
		r.stays = 0
	}
	return s &^ Called
}

// Received is called when the receiver has slept in the link and has found a
// number of packets. It reports whether programs do that better. Then it stands
// by, and a program that sleeps beside it takes over: otherwise no goroutine
// would receive until the receiver looks again.
func (r *Receiver) Received(s State, now clock.Time, found int) (next State, act Act, stand bool) {
	active, parked := s&Active != 0, s.Parked()
	switch {
	case s&told != 0:
	case active && parked == 0 && s&outrunAll == OutrunBatches*outrunOne:
	case now < r.stays:
		return s, 0, false
	case found == 0 && active && parked == 0, parked == 1:
	default:
		return s, 0, false
	}
	s &^= owner | told | InLink
	if parked > 0 {
		act = HandOver
	}
	return s, act, true
}

// StandBy returns the state of a receiver that begins to stand by, and how long
// it sleeps before the first Tick.
func (r *Receiver) StandBy(s State) (State, time.Duration) {
	r.every = standbyTick
	return s&^Active | StandsBy, r.every
}

// Again returns how long it sleeps before the next Tick.
func (r *Receiver) Again() time.Duration {
	r.every = min(2*r.every, MaxStandbyTick)
	return r.every
}
