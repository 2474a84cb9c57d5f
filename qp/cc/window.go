package cc

import (
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// growth is by how many bytes the window grows for every window acknowledged
// after a loss: the largest packet. Were it a packet of the path MTU, small
// MTUs would recover from the same loss several times more slowly.
const growth = 4096 + PacketOverhead

// regrowth is the number of windows within which the size before repaired
// losses is reached again.
const regrowth = 32

// idleGrowth is by what part of itself the window grows for every window
// acknowledged after a loss where the round trip shows no queue.
const idleGrowth = 8

// longPath is a round trip from which on growth by some packets in each would
// take seconds, whatever the loss was.
const longPath = 500 * time.Microsecond

// Window is a send window: how many bytes and PSNs may be in flight. It doubles
// for every window acknowledged until the first loss or congestion notification
// (slow start), and grows slowly after it.
//
// Silence halves it, and so does a loss after which everything is sent again:
// once for all losses in a window in flight. Single losses that are repaired do
// not: only many in one window do, or packets lost in a row.
type Window struct {
	size          int // bytes
	initial       int
	limit         int
	ssthresh      int    // up to here growth is fast (ssthresh)
	recoveryPoint uint64 // the place in the stream where the last loss is overcome
	markPoint     uint64 // the place from which on notifications are of packets sent after the last cut for one
	losses        int    // that were repaired, up to recoveryPoint
	done          bool   // what is lost up to recoveryPoint has made the window smaller
	before        int    // size at the first of them, or before that cut
	single        bool   // losses are repaired one by one, any number of them
	spare         bool   // such a loss is being repaired: more may be in flight
	psns          uint32
	rounds

	priorSize, priorSSThresh int // as Silence found them
}

// NewWindow returns a window with these bounds.
func NewWindow(c Config) *Window {
	c = c.withDefaults()
	w := &Window{limit: c.MaxBytes, initial: c.InitialBytes, psns: uint32(c.MaxPSNs)}
	w.Reset()
	return w
}

// Limit implements Controller.
func (w *Window) Limit() Limit {
	return Limit{Bytes: w.size, Max: w.limit, PSNs: w.psns, Spare: w.spare}
}

// Reset implements Controller.
func (w *Window) Reset() {
	w.size, w.ssthresh, w.recoveryPoint, w.markPoint = w.initial, w.limit, 0, 0
	w.losses, w.done, w.single, w.before, w.spare = 0, false, false, 0, false
	w.rounds = rounds{count: trialEvery / 2}
	w.begin(w.size, 0)
}

// SetConfig implements Controller.
func (w *Window) SetConfig(c Config) {
	c = c.withDefaults()
	if w.ssthresh == w.limit { // no loss yet
		w.ssthresh = c.MaxBytes
	}
	w.limit = c.MaxBytes
	w.size = min(w.size, w.limit)
	w.initial = min(w.initial, w.limit)
	w.psns = uint32(c.MaxPSNs)
}

// Sent implements Controller. A window has no rate.
func (w *Window) Sent(clock.Time, int, int) {}

// Advance implements Controller. A window has no deadline.
func (w *Window) Advance(clock.Time) {}

// Lost implements Controller.
func (w *Window) Lost(_ clock.Time, f *Flight, how Loss) bool {
	switch how {
	case GoBack:
		if w.recovering(f.Una) {
			return false
		}
		if f.idle() && f.MinRTT >= longPath && f.Una >= w.markPoint {
			w.cut(w.sentWith(f.Una)/4*7, f) // by an eighth
		} else {
			w.cut(w.sentWith(f.Una), f)
		}
	case Timeout:
		w.cut(w.size, f)
	case Selective:
		return w.selective(f)
	default:
		return w.repaired(f, how == RepairedRow)
	}
	return true
}

// Acked implements Controller. It grows the window, or ends a trial.
func (w *Window) Acked(_ clock.Time, f *Flight, n uint64) bool {
	size, spare := w.size, w.spare
	w.spare = w.spare && w.recovering(f.Una)
	w.pass(f, int(min(n, uint64(w.limit))))
	idle := f.idle() && f.MinRTT >= longPath
	if w.single {
		idle = f.clear()
	}
	idle = idle && w.markPoint == 0
	if w.size < w.limit && !w.trial && (!w.answered || idle) {
		w.grow(n, idle)
	}
	return w.size != size || w.spare != spare
}

// grow grows the window for n bytes: faster where the path is idle. Where the
// path marks, all flows that share it grow by as much: with growth by a part of
// the own size, and cuts by a part of it, a flow that has more would keep it
// (Chiu and Jain, 1989).
func (w *Window) grow(n uint64, idle bool) {
	grow := int(min(n, uint64(w.size)))
	if w.size >= w.ssthresh {
		// Where losses are cheap the way back takes some windows, not
		// as many as the last size has packets.
		perWindow := growth
		if w.markPoint == 0 {
			perWindow = max(growth, w.before/regrowth)
		}
		if idle {
			perWindow = max(perWindow, w.size/idleGrowth)
		}
		grow = max(1, min(grow, int(uint64(grow)*uint64(perWindow)/uint64(w.size))))
	}
	w.size += min(grow, w.limit-w.size)
}

// cut halves the window after a loss, from size, but to no less than two
// packets.
func (w *Window) cut(size int, f *Flight) {
	w.ssthresh = max(size/2, 2*f.Packet)
	w.size = min(w.ssthresh, w.limit)
	w.recoveryPoint = max(w.recoveryPoint, f.Next)
	w.done, w.spare, w.trial = true, false, false
	w.begin(w.size, 0) // all is sent again, with this size
}

// More losses in one window than chance explains: burst packets, or one packet
// in burstShare.
const (
	burst      = 16
	burstShare = 8
)

// repaired takes a loss that is repaired without sending everything again. As
// long as such losses are few and single packets, they are taken for noise of
// the path, not for a queue that is full: the window gives way a little, and is
// soon back where it was. A burst of them, packets lost in a row, or one where
// marks have shown a queue, halve it. The result says whether this loss changed
// the window.
func (w *Window) repaired(f *Flight, row bool) bool {
	if !w.recovering(f.Una) {
		w.losses, w.done, w.before, w.spare = 0, false, w.sentWith(f.Una), f.Una >= w.markPoint
		w.recoveryPoint = f.Next
	}
	w.losses++
	switch {
	case w.done:
		return false
	case w.losses == burst || row || f.Una < w.markPoint || w.losses > 2 && w.losses*burstShare > w.before/f.Packet:
		w.done, w.spare = true, false
		w.size = min(w.size, max(w.before/2, 2*f.Packet))
		w.ssthresh = w.size
	case w.losses == 2: // more than one
		w.size = max(w.before/8*7, min(2*f.Packet, w.before))
		w.ssthresh = w.before
	default:
		return false
	}
	return true
}

// Silence implements Controller. It notes the size before a cut for mere
// silence, which may mean no loss.
func (w *Window) Silence() { w.priorSize, w.priorSSThresh = w.size, w.ssthresh }

// Undo implements Controller. It takes back what was cut since Silence.
func (w *Window) Undo() {
	w.size = max(w.size, min(w.priorSize, w.limit))
	w.ssthresh = max(w.ssthresh, min(w.priorSSThresh, w.limit))
	w.recoveryPoint, w.losses, w.done, w.spare = 0, 0, false, false
}

// recovering reports whether what was in flight at the last cut is not yet
// acknowledged up to una. Losses in it are of the same round trip, or met what
// is sent again at the lower rate: one cut is enough for them.
func (w *Window) recovering(una uint64) bool { return una < w.recoveryPoint }

// Marked implements Controller. A notification says that a queue has begun to
// build up, not that it is full as a loss does, and stands for any number of
// marked packets, so that their share (DCTCP) is not known. Half would leave
// the link idle where queues are marked early; a quarter less is about what RFC
// 8511 has for ECN. While the window still doubles, it is halved: that is what
// it was a round trip ago. It is too where losses are being repaired, which
// then are no noise. What is in flight at a cut may cause more notifications,
// which say nothing new; so there is one cut for a window in flight, whether it
// met marks or losses or both.
func (w *Window) Marked(_ clock.Time, f *Flight, _ Mark) bool {
	switch {
	case f.Una < w.markPoint:
		return false
	case !w.recovering(f.Una):
		w.before = w.size
	case w.done:
		return false
	}
	size := w.before - w.before/4
	if w.size < w.ssthresh || w.recovering(f.Una) {
		size = w.before / 2
	}
	if w.recovering(f.Una) { // the losses are no noise
		w.done, w.spare = true, false
	}
	w.markPoint, w.trial = f.Next+1, false
	size = min(w.size, max(size, 2*f.Packet))
	changed := size < w.size
	w.size, w.ssthresh = size, size
	return changed
}

// sentWith is the size that the packets which are in flight at una were sent
// with: that before the last cut, if it was for a notification about them.
func (w *Window) sentWith(una uint64) int {
	if una < w.markPoint {
		return max(w.before, w.size)
	}
	return w.size
}
