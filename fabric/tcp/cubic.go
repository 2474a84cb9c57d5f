package tcp

import (
	"sort"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// cubic is what a window with CUBIC has beside cwnd and ssthresh (RFC 9438
// 4.1). Windows are bytes here, not segments.
type cubic struct {
	most  int64 // W_max
	prior int64 // cwnd_prior: the window when it was last reduced
	began event.Time
	k     int64      // microseconds from the beginning until the window is most
	est   int64      // W_est: that of Reno, in parts of 2^16 of a byte
	waits bool       // congestion avoidance has not begun since the last reduction
	reset bool       // by a timeout
	last  event.Time // when the window could grow last
}

// beta is 0.7, and C is 0.4 segments in a second cubed (4.6, 5.1).
const (
	betaOf, betaIn = 7, 10
	cOf, cIn       = 2, 5

	// The longest time that counts. Then a segment of 536 bytes has become
	// 400 MB, and no product below is above 63 bits.
	mostMicros = 128_000_000
)

// cube returns by how many bytes a window grows from the time k on: C * t^3
// segments.
func (w *window) cube(micros int64) int64 {
	t := max(min(micros, mostMicros), -mostMicros)
	return t * t / million * t / million * (cOf * w.mss) / cIn / million
}

const million = 1_000_000

// growCubic takes bytes that were acknowledged in congestion avoidance (4.2 to
// 4.5).
func (w *window) growCubic(bytes int64, now, rtt event.Time) {
	u := &w.cubic
	if u.waits {
		w.epoch(now)
	}
	u.last = now
	t := int64((now-u.began)/event.Microsecond) - u.k
	if u.est < u.prior<<estShift { // 4.3: alpha is 3 (1 - beta) / (1 + beta)
		u.est += (bytes * w.mss * 9 / 17 << estShift) / w.cwnd
	} else {
		u.est += (bytes * w.mss << estShift) / w.cwnd
	}
	if est := u.est >> estShift; u.most+w.cube(t) < est {
		w.cwnd, w.counted = max(w.cwnd, est), 0
		return
	}
	target := u.most + w.cube(t+int64(rtt/event.Microsecond))
	target = min(max(target, w.cwnd), w.cwnd*3/2)
	w.counted += (target - w.cwnd) * bytes
	w.cwnd, w.counted = w.cwnd+w.counted/w.cwnd, w.counted%w.cwnd
}

const estShift = 16

// epoch begins congestion avoidance (4.2, and after a timeout 4.8).
func (w *window) epoch(now event.Time) {
	u := &w.cubic
	u.began, u.waits, u.k, u.est = now, false, 0, w.cwnd<<estShift
	if u.reset || u.most < w.cwnd {
		u.most, u.reset = w.cwnd, false
		return
	}
	gap := u.most - w.cwnd
	u.k = int64(sort.Search(mostMicros, func(t int) bool { return w.cube(int64(t)) >= gap }))
}

// still says that the window did not limit what was sent: such a time does not
// count (4.2).
func (w *window) still(now event.Time) {
	if u := &w.cubic; w.control == CUBIC && !u.waits {
		u.began += now - u.last
		u.last = now
	}
}

// reduced notes that the window is less now than it was (4.6), with fast
// convergence (4.7).
func (u *cubic) reduced(was int64) {
	u.prior = was
	if was < u.most {
		u.most = was * (betaIn + betaOf) / (2 * betaIn)
	} else {
		u.most = was
	}
	u.waits, u.reset = true, false
}
