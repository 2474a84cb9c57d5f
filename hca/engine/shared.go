package engine

import "github.com/gosoftroce/rocev2/rocev2/clock"

// shared is what the way in and the way out have in common.
type shared struct {
	cfg      Config
	sink     Sink
	table    table
	turns    turns
	peers    peers
	timers   timers
	finals   finals
	paths    paths // of datagrams
	loop     loopback
	counters Counters
	now      clock.Time // of the latest batch
}
