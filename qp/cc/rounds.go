package cc

import (
	"math"
	"time"
)

// rounds counts, round trip by round trip, the losses that are repaired one by
// one. A round lasts until what was in flight has arrived or is lost, in
// whatever order: what is missing for long would make an acknowledgement of all
// before it wait, while the losses of many round trips pile up.
type rounds struct {
	minRTT     time.Duration // before a trial
	span, seen int32         // bytes of the round, and how many of them have arrived or are lost
	resume     int32         // the size after a trial, if that does not make the round trip shorter
	lost       int32         // packets
	count      int16         // rounds since the last trial began or ended
	noise      int8          // how much speaks for losses without a queue, see observe
	trial      bool          // the window is smaller to see whether the round trip gets shorter
	answered   bool          // the window is smaller because of the losses of the round
	gave       bool          // and by about half, see gives
}

const (
	// noiseShare is what part of the packets may be lost by a path without
	// a queue.
	noiseShare = 16
	// shortPath is a round trip below which there are switches and hosts on
	// the path, and no distance: see gives.
	shortPath = 100 * time.Microsecond
	// shortShare is noiseShare on a short path, and shortDip what part of
	// the window one loss takes there. provenShare is the share on one that
	// has proved to lose packets without a queue: noiseProof speaks for
	// that, and one round for as much as noiseRound.
	shortShare  = 18
	shortDip    = 12
	provenShare = 4
	noiseProof  = 6
	noiseRound  = 2
	// trialEvery is after how many rounds there may be another trial, half
	// as many as there must have been at the beginning; trialSoon, after
	// how many if the last one has shown a queue. trialRounds is how many
	// one takes: those that the first packets sent with less in flight need
	// to be measured.
	trialEvery  = 48
	trialSoon   = 12
	trialRounds = 3
)

// begin begins a round, in which size bytes arrive or are lost, or what is on
// the way if that is more, as it is after a cut.
func (r *rounds) begin(size int, pipe uint64) {
	size = max(size, int(min(pipe, math.MaxInt32/2)))
	r.span, r.seen, r.lost = int32(min(size, math.MaxInt32/2)), 0, 0
	r.answered, r.gave = false, false
}

// selective takes a loss that is repaired alone, one of any number. Without a
// queue on the path (Flight.clear), and without marks, losses are noise as long
// as they are a small part of what is sent. Else they are congestion, and there
// is one cut in a round, which gets deeper with more losses. One is chance in
// any case. Short paths are another matter, see gives.
func (w *Window) selective(f *Flight) bool {
	w.single = true
	w.pass(f, f.Packet)
	w.lost++
	if f.MinRTT < shortPath && f.Pipe > 0 && w.markPoint == 0 {
		return w.gives(f)
	}
	many, marked, idle := int(w.lost-1)*noiseShare > int(w.span)/f.Packet, f.Una < w.markPoint, f.clear()
	size := w.sentWith(f.Una)
	switch {
	case w.answered:
		if many {
			w.shrink(f, max(w.size-f.Packet, int(w.span)/2))
		}
		return false
	case marked || w.lost > 1 && w.size < w.ssthresh && (many || f.queue()):
		size /= 2
	case w.lost == 1:
		return false
	case !many && idle:
		return w.try(f, w.size)
	case idle, !many && !f.queue():
		size = size / 8 * 7
	default:
		size = size / 10 * 7
		if w.try(f, size) {
			return true
		}
	}
	w.congested(f)
	w.shrink(f, size)
	return true
}

// gives takes a loss on a short path without marks. A queue there fills up
// within a round trip, and most flows begin while one is full: they know of no
// shorter round trip. So the round trip does not tell a loss in a queue from
// noise; how many are lost does. The first in a round makes the window a little
// smaller, by less than it grows in a round without a queue. With more than a
// share of the round a little more than half of it goes, once for all that is
// in flight then. Where the round before had losses without a queue it is a
// quarter; where such rounds have proved that the path is noisy the share is
// larger, and with no doubt left the first loss costs nothing.
//
// Not where READs are under way: their window is asked for at once, and a round
// trip has the data of those before in it.
func (w *Window) gives(f *Flight) bool {
	share, left := int32(shortShare), 7
	switch {
	case w.noise >= noiseProof:
		share = provenShare
	case w.noise >= noiseRound:
		left = 12
	}
	switch {
	case w.gave:
	case w.lost > 1 && w.lost*share > w.span/int32(f.Packet):
		if !w.answered {
			w.before = w.size
		}
		w.begin(w.before, f.Pipe)
		w.answered, w.gave = true, true
		w.shrink(f, w.before/16*left)
		return true
	case w.lost == 1 && w.noise < 2*noiseProof:
		w.before, w.answered = w.size, true
		w.shrink(f, w.size-w.size/shortDip)
	}
	return false
}

// observe takes what a round that ends says of the path: losses that go on
// though the round trip shows no queue are noise. Three such rounds in a row
// prove it; each other round speaks half as much against it.
func (w *Window) observe(f *Flight) {
	if w.lost > 0 && f.clear() {
		w.noise = min(w.noise+noiseRound, 2*noiseProof)
	} else {
		w.noise = max(w.noise-1, 0)
	}
}

// shrink makes the window no larger than size.
func (w *Window) shrink(f *Flight, size int) {
	w.size = min(w.size, max(size, 2*f.Packet))
	w.ssthresh = w.size
}

// congested begins a round with a cut: what is in flight was sent before it.
func (w *Window) congested(f *Flight) {
	w.before = w.sentWith(f.Una)
	w.begin(w.before, f.Pipe)
	w.answered, w.trial = true, false
	w.recoveryPoint, w.done, w.spare = f.Next, true, false
}

// try begins a trial, if it is time for one: the window is halved for some
// rounds. A flow that begins to send while others fill a queue takes the queue
// for a part of the path. If the round trip gets shorter, some of the queue was
// the flow's own, and the window stays as it is; otherwise it becomes resume.
func (w *Window) try(f *Flight, resume int) bool {
	if w.trial || w.count < trialEvery || w.size < w.ssthresh {
		return false
	}
	size := w.size / 2
	w.congested(f)
	w.trial, w.count, w.minRTT, w.resume = true, 0, f.MinRTT, int32(min(resume, math.MaxInt32))
	w.shrink(f, size)
	return true
}

// pass records that n more bytes have arrived or are lost. It ends rounds, and
// a trial.
func (w *Window) pass(f *Flight, n int) {
	w.seen += int32(min(n, math.MaxInt32/2))
	if w.seen < w.span {
		return
	}
	w.observe(f)
	w.begin(w.size, f.Pipe)
	if w.count < math.MaxInt16 {
		w.count++
	}
	if !w.trial || w.count < trialRounds {
		return
	}
	w.trial, w.count = false, 0
	if f.MinRTT >= w.minRTT/16*15 {
		w.size = max(w.size, min(int(w.resume), w.limit))
		w.ssthresh = max(w.ssthresh, w.size)
	} else {
		w.count = trialEvery - trialSoon
	}
}
