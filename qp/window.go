package qp

// PacketOverhead is what a packet counts in the window beyond its payload, in bytes. Linux charges a socket's receive
// buffer not for a datagram's bytes but for the memory that it lies in: powers of two and some bookkeeping, 832 bytes for
// the smallest and 2304 for 644 of payload. With this overhead it is at most 2.4 times what the window counts, whatever the
// size; datagrams that are coalesced cost less.
const PacketOverhead = 384

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
const growth = 4096 + PacketOverhead

// regrowth is in how many windows at the most the size before repaired losses is reached again.
const regrowth = 32

// window is the send window: so many bytes and PSNs between the oldest unacknowledged packet and the next one. It doubles
// for every window acknowledged until the first loss or congestion notification, and grows slowly after it.
type window struct {
	size      int // bytes
	initial   int
	limit     int
	threshold int    // up to here growth is fast
	recovered uint64 // the place in the stream where the last loss is overcome
	eased     uint64 // the place from which on notifications are of packets sent after the last cut for one
	losses    int    // that were repaired since the last cut, up to recovered
	before    int    // size at the first of them, or before that cut
	spare     bool   // such a loss is being repaired: more may be in flight
	psns      uint32

	keptSize, keptThreshold int // as remember found them
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

func (w *window) reset() {
	w.size, w.threshold, w.recovered, w.eased, w.losses, w.before, w.spare = w.initial, w.limit, 0, 0, 0, 0, false
}

// admits reports whether cost bytes in psns packets fit behind what is in flight. With nothing in flight anything does:
// a READ may be larger than the window. It may also begin inside of it and end outside, short of the limit: else there
// would be no request behind it that shows the loss of its last response.
func (w *window) admits(inFlight uint64, inFlightPSNs uint32, cost uint64, psns uint32) bool {
	if inFlightPSNs == 0 {
		return true
	}
	size := uint64(w.size)
	if w.spare {
		size += size / spareShare
	}
	if psns > 1 && inFlight < size {
		size = max(size, uint64(w.limit))
	}
	return inFlightPSNs+psns <= w.psns && inFlight+cost <= size
}

// room returns how many more packets of size bytes the window admits.
func (w *window) room(inFlight uint64, inFlightPSNs uint32, packet int) int {
	if inFlight >= uint64(w.size) || inFlightPSNs >= w.psns {
		return 0
	}
	return min(int(uint64(w.size)-inFlight)/packet, int(w.psns-inFlightPSNs))
}

// spareShare is by what part of itself the window is wider while single losses are repaired. What the peer has kept behind
// the gap is acknowledged only with what is missing, but it does not lie in the peer's receive buffer any more; without
// the share the requester would stand still at every loss.
const spareShare = 2

// charge is what so many bytes in flight are to the peer's receive buffer.
func (w *window) charge(inFlight int) int {
	if w.spare {
		return inFlight - inFlight/(1+spareShare)
	}
	return inFlight
}

// acked grows the window after n bytes were acknowledged, up to una.
func (w *window) acked(n, una uint64) {
	w.spare = w.spare && w.recovering(una)
	if w.size >= w.limit {
		return
	}
	grow := int(min(n, uint64(w.size)))
	if w.size >= w.threshold {
		// Where losses are cheap the way back takes some windows, not as many as the last size has packets.
		perWindow := max(growth, w.before/regrowth)
		grow = max(1, min(grow, int(uint64(grow)*uint64(perWindow)/uint64(w.size))))
	}
	w.size += min(grow, w.limit-w.size)
}

// cut halves the window after a loss, from size, to two packets at the least; sent is where the stream has got to.
func (w *window) cut(size, packet int, sent uint64) {
	w.threshold = max(size/2, 2*packet)
	w.size = min(w.threshold, w.limit)
	w.recovered = max(w.recovered, sent)
	w.losses, w.spare = burst, false
}

// What is more losses in one window than chance: so many, or one packet of so many.
const (
	burst      = 16
	burstShare = 8
)

// lost takes a loss that is repaired without sending everything again. As long as such losses are few and single packets,
// they are taken for noise of the path, not for a queue that is full: the window gives way a little, and is soon back
// where it was. A burst of them, packets lost in a row, or one where marks have shown a queue, halve it. The result says
// whether this loss changed the window.
func (w *window) lost(packet int, una, sent uint64, row bool) bool {
	if !w.recovering(una) {
		w.losses, w.before, w.spare = 0, w.flown(una), una >= w.eased
		w.recovered = sent
	}
	w.losses++
	switch {
	case w.losses > burst: // cut already
		return false
	case w.losses == burst || row || una < w.eased || w.losses > 2 && w.losses*burstShare > w.before/packet:
		w.losses, w.spare = burst, false
		w.size = min(w.size, max(w.before/2, 2*packet))
		w.threshold = w.size
	case w.losses == 2: // more than one
		w.size = max(w.before/8*7, min(2*packet, w.before))
		w.threshold = w.before
	default:
		return false
	}
	return true
}

// remember notes the size before a cut for mere silence, which may mean no loss.
func (w *window) remember() { w.keptSize, w.keptThreshold = w.size, w.threshold }

// restore takes back what was cut since remember: nothing was lost (RFC 4015).
func (w *window) restore() {
	w.size = max(w.size, min(w.keptSize, w.limit))
	w.threshold = max(w.threshold, min(w.keptThreshold, w.limit))
	w.recovered, w.losses, w.spare = 0, 0, false
}

// recovering reports whether what was in flight at the last cut is not yet acknowledged up to una. Losses in it are of the
// same round trip, or met what is sent again at the lower rate: one cut is enough for them.
func (w *window) recovering(una uint64) bool { return una < w.recovered }

// congested takes a congestion notification. It says that a queue has begun to build up, not that it is full as a loss
// does, and stands for any number of marked packets, so that their share (DCTCP) is not known. Half would leave the link
// idle where queues are marked early; a quarter less is about what RFC 8511 has for ECN. While the window still doubles, it
// is halved: that is what it was a round trip ago. It is too where losses are being repaired, which then are no noise. What
// is in flight at a cut may cause more notifications, which say nothing new; so there is one cut for a window in flight,
// whether it met marks or losses or both. The result says whether the window changed.
func (w *window) congested(packet int, una, sent uint64) bool {
	switch {
	case una < w.eased:
		return false
	case !w.recovering(una):
		w.before = w.size
	case w.losses >= burst:
		return false // cut already
	}
	size := w.before - w.before/4
	if w.size < w.threshold || w.recovering(una) {
		size = w.before / 2
	}
	if w.recovering(una) { // the losses are no noise
		w.losses, w.spare = burst, false
	}
	w.eased = sent + 1
	size = min(w.size, max(size, 2*packet))
	changed := size < w.size
	w.size, w.threshold = size, size
	return changed
}

// flown is the size that the packets which are in flight at una were sent with: that before the last cut, if it was for a
// notification about them.
func (w *window) flown(una uint64) int {
	if una < w.eased {
		return max(w.before, w.size)
	}
	return w.size
}

// ackInterval is after how many packets inside a long message an acknowledgement is asked for: a quarter of the window.
func (w *window) ackInterval(packet int) uint32 {
	return max(1, min(uint32(w.size/packet), w.psns)/4)
}
