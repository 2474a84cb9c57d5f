package cc

import "github.com/gosoftroce/rocev2/rocev2/clock"

// Static is a window that never changes. It is made as large as what the
// longest path of a network holds (its bandwidth-delay product): then a
// connection alone fills its link, and many that meet have no more than that in
// a queue each. Losses and marks change nothing. So it is for networks that
// lose nothing, or to be the window of a controller that works with rates.
type Static struct {
	size int
	l    Limit
}

// ackPSNs is after how many packets an acknowledgement is asked for where the
// window says nothing about how long it takes: a segmentation run.
const ackPSNs = 16

// NewStatic returns a window of that many bytes, as they count in flight,
// within the bounds of c. 0 means as many as those allow.
func NewStatic(bytes int, c Config) *Static {
	s := &Static{size: bytes}
	s.SetConfig(c)
	return s
}

// SetConfig implements Controller.
func (s *Static) SetConfig(c Config) {
	c = c.withDefaults()
	size := c.MaxBytes
	if s.size > 0 {
		size = min(s.size, size)
	}
	s.l = Limit{Bytes: size, Max: size, PSNs: uint32(c.MaxPSNs), AckPSNs: ackPSNs}
}

// Limit implements Controller.
func (s *Static) Limit() Limit { return s.l }

// Reset implements Controller, and like the following does nothing.
func (s *Static) Reset() {}

// Sent implements Controller.
func (s *Static) Sent(clock.Time, int, int) {}

// Acked implements Controller.
func (s *Static) Acked(clock.Time, *Flight, uint64) bool { return false }

// Lost implements Controller.
func (s *Static) Lost(clock.Time, *Flight, Loss) bool { return false }

// Marked implements Controller.
func (s *Static) Marked(clock.Time, *Flight, Mark) bool { return false }

// Silence implements Controller.
func (s *Static) Silence() {}

// Undo implements Controller.
func (s *Static) Undo() {}

// Advance implements Controller.
func (s *Static) Advance(clock.Time) {}
