package qp

// packetOverhead is what a packet counts in the window beyond its payload, in bytes: about its headers.
const packetOverhead = 64

// maxWindowPSNs keeps everything in flight far from half of the PSN space, even together with a READ of its own.
const maxWindowPSNs = 1 << 22

// WindowConfig bounds what a requester has in flight: requests, and responses that READs ask for.
type WindowConfig struct {
	InitialBytes int // 0 means 128 KiB
	MaxBytes     int // 0 means 512 KiB
	MaxPSNs      int // 0 means 128, what Linux keeps in flight
}

const (
	defaultInitialBytes = 128 << 10
	defaultMaxBytes     = 512 << 10
	defaultMaxPSNs      = 128
)

// growth is by how many bytes the window grows for every window acknowledged after a loss: the largest packet. Were it a
// packet of the path MTU, small MTUs would recover from the same loss several times more slowly.
const growth = 4096 + packetOverhead

// window is the send window: so many bytes and PSNs between the oldest unacknowledged packet and the next one. It doubles
// for every window acknowledged until the first loss, and grows slowly after it.
type window struct {
	size      int // bytes
	initial   int
	limit     int
	threshold int    // up to here growth is fast
	recovered uint64 // the place in the stream where the last loss is overcome
	psns      uint32
}

func (w *window) init(c WindowConfig) {
	w.limit = or(c.MaxBytes, defaultMaxBytes)
	w.initial = min(or(c.InitialBytes, defaultInitialBytes), w.limit)
	w.psns = uint32(or(c.MaxPSNs, defaultMaxPSNs))
	w.reset()
}

// limits changes the bounds; what is in flight stays.
func (w *window) limits(c WindowConfig) {
	grown := or(c.MaxBytes, defaultMaxBytes)
	if w.threshold == w.limit { // no loss yet
		w.threshold = grown
	}
	w.limit = grown
	w.size = min(w.size, w.limit)
	w.initial = min(w.initial, w.limit)
	w.psns = uint32(or(c.MaxPSNs, defaultMaxPSNs))
}

func or(v, zero int) int {
	if v == 0 {
		return zero
	}
	return v
}

func (w *window) reset() { w.size, w.threshold, w.recovered = w.initial, w.limit, 0 }

// admits reports whether cost bytes in psns packets fit behind what is in flight. With nothing in flight anything does:
// a READ may be larger than the window. It may also begin inside of it and end outside, short of the limit: else there
// would be no request behind it that shows the loss of its last response.
func (w *window) admits(inFlight uint64, inFlightPSNs uint32, cost int, psns uint32) bool {
	if inFlightPSNs == 0 {
		return true
	}
	size := w.size
	if psns > 1 && inFlight < uint64(size) {
		size = w.limit
	}
	return inFlightPSNs+psns <= w.psns && inFlight+uint64(cost) <= uint64(size)
}

// acked grows the window after n bytes were acknowledged.
func (w *window) acked(n uint64) {
	if w.size >= w.limit {
		return
	}
	grow := int(min(n, uint64(w.size)))
	if w.size >= w.threshold {
		grow = max(1, min(grow, grow*growth/w.size))
	}
	w.size = min(w.size+grow, w.limit)
}

// cut halves the window after a loss, to two packets at the least; sent is where the stream has got to.
func (w *window) cut(packet int, sent uint64) {
	w.threshold = max(w.size/2, 2*packet)
	w.size = min(w.threshold, w.limit)
	w.recovered = max(w.recovered, sent)
}

// recovering reports whether what was in flight at the last cut is not yet acknowledged up to una. Losses in it are of the
// same round trip, or met what is sent again at the lower rate: one cut is enough for them.
func (w *window) recovering(una uint64) bool { return una < w.recovered }

// ackInterval is after how many packets inside a long message an acknowledgement is asked for: a quarter of the window.
func (w *window) ackInterval(packet int) uint32 {
	return max(1, min(uint32(w.size/packet), w.psns)/4)
}
