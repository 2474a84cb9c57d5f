package fault

import (
	"time"
)

// maxHeld bounds the packets held back in one direction.
const maxHeld = 4096

// held is a packet that waits: until due, or until pass later packets went.
type held[P any] struct {
	packet P
	due    time.Time
	pass   int // 0 = only due counts
}

// holding is the packets held back in one direction, in the order they came.
type holding[P any] struct {
	items []held[P]
	order int // of items, those that wait for later packets to pass
	timer *time.Timer
	fire  func()
}

func (h *holding[P]) add(p P, r *ruleState, now time.Time) {
	k := held[P]{packet: p, due: now.Add(r.Delay)}
	if r.Action == Reorder {
		k.pass = r.Distance
		h.order++
	}
	h.items = append(h.items, k)
}

// passed counts a later packet that went, and hands the packets that this
// releases to emit.
func (h *holding[P]) passed(emit func(P)) {
	if h.order == 0 {
		return
	}
	h.release(emit, func(k *held[P]) bool {
		if k.pass == 0 {
			return false
		}
		k.pass--
		return k.pass == 0
	})
}

// expire hands the packets that are due to emit.
func (h *holding[P]) expire(now time.Time, emit func(P)) {
	h.release(emit, func(k *held[P]) bool { return !k.due.After(now) })
}

func (h *holding[P]) release(emit func(P), free func(*held[P]) bool) {
	if len(h.items) == 0 {
		return
	}
	var out []P
	kept := h.items[:0]
	for i := range h.items {
		k := h.items[i]
		waits := k.pass > 0
		switch {
		case !free(&k):
			kept = append(kept, k)
			continue
		case waits:
			h.order--
		}
		out = append(out, k.packet)
	}
	clear(h.items[len(kept):])
	h.items = kept
	for _, p := range out {
		emit(p)
	}
}

// arm sets the timer to the earliest packet. The packets may all wait for
// others to pass too; then the timer is their last resort.
func (h *holding[P]) arm(now time.Time) {
	if len(h.items) == 0 {
		return
	}
	first := h.items[0].due
	for _, k := range h.items[1:] {
		if k.due.Before(first) {
			first = k.due
		}
	}
	d := max(first.Sub(now), 0)
	if h.timer == nil {
		h.timer = time.AfterFunc(d, h.fire)
		return
	}
	h.timer.Reset(d)
}

func (h *holding[P]) stop() {
	if h.timer != nil {
		h.timer.Stop()
	}
	h.items, h.order = nil, 0
}
