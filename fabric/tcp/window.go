package tcp

import (
	"math"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// Control is a congestion control.
type Control uint8

const (
	Reno  Control = iota // RFC 5681, with Config.ECN also RFC 3168
	DCTCP                // RFC 8257
	CUBIC                // RFC 9438, with Config.ECN also RFC 3168
)

// String returns its name.
func (c Control) String() string {
	return [...]string{Reno: "reno", DCTCP: "dctcp", CUBIC: "cubic"}[c]
}

// Alpha of DCTCP counts in parts of 2^20; g is 1/16 (RFC 8257 4.2).
const (
	alphaOne = 1 << 20
	gShift   = 4
)

// window is the congestion window, in bytes of the stream.
type window struct {
	control        Control
	mss            int64
	cwnd, ssthresh int64
	counted        int64 // bytes acknowledged since it last grew, in congestion avoidance
	answered       int64 // marks of what was sent before this position have been answered

	alpha         int64
	windowEnd     int64 // of the window in which marks are counted
	acked, marked int64 // bytes of it

	cubic cubic
}

func newWindow(c *Config) window {
	mss := int64(c.MSS)
	return window{control: c.Control, mss: mss, cwnd: mss * int64(c.InitialWindow), ssthresh: math.MaxInt64, alpha: alphaOne, cubic: cubic{waits: true}}
}

// grow takes bytes that were acknowledged. In slow start the window grows by as
// many, up to limit segments (RFC 3465 2.2, 2.3), then by one segment for each
// window (RFC 5681 3.1, RFC 3465 2.1), or with the time that passes.
func (w *window) grow(bytes, limit int64, now, rtt event.Time) {
	if w.cwnd < w.ssthresh {
		w.cwnd += min(bytes, limit*w.mss)
		return
	}
	if w.control == CUBIC {
		w.growCubic(bytes, now, rtt)
		return
	}
	if w.counted += bytes; w.counted >= w.cwnd {
		w.counted -= w.cwnd
		w.cwnd += w.mss
	}
}

// reduce answers a loss of what was in flight, or a mark: ssthresh is half of
// it (RFC 5681 3.2, equation 4; RFC 3168 6.1.2), or with CUBIC 0.7.
func (w *window) reduce(flight int64) {
	part := flight / 2
	if w.control == CUBIC {
		part = flight * betaOf / betaIn
		w.cubic.reduced(w.cwnd)
	}
	w.ssthresh = max(part, 2*w.mss)
}

// cut answers a loss by fast recovery.
func (w *window) cut(flight int64) {
	w.reduce(flight)
	w.cwnd, w.counted = w.ssthresh, 0
}

// timeout answers one (RFC 5681 3.1). ssthresh stays where the segment had
// timed out before.
func (w *window) timeout(flight int64, before bool) {
	if !before {
		w.reduce(flight)
	}
	w.cwnd, w.counted = w.mss, 0
	w.cubic.waits, w.cubic.reset = true, true
}

// echo takes an acknowledgement of bytes up to una, where nxt is sent next, and
// whether it tells of marks. It reports whether it has cut the window: once for
// what is sent in a round trip.
func (w *window) echo(una, nxt, bytes int64, marks bool) bool {
	if w.control == DCTCP {
		w.acked += bytes
		if marks {
			w.marked += bytes
		}
		if una >= w.windowEnd && w.acked > 0 {
			w.alpha += ((w.marked*alphaOne)/w.acked - w.alpha) >> gShift
			w.windowEnd, w.acked, w.marked = nxt, 0, 0
		}
	}
	if !marks || una < w.answered {
		return false
	}
	if w.answered = nxt; w.control == DCTCP {
		w.ssthresh = max(w.cwnd-w.cwnd*w.alpha/(2*alphaOne), 2*w.mss)
	} else {
		w.reduce(w.cwnd)
	}
	w.cwnd, w.counted = w.ssthresh, 0
	return true
}
