package hca

import (
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/transport"
)

const (
	// maxForwarded is how many bytes of packets may wait for a shard, and
	// maxForwardedPackets how many packets: small ones take more memory for
	// what is known of them. What comes beyond is lost, as in a socket
	// buffer that is full.
	maxForwarded        = 8 << 20
	maxForwardedPackets = 1 << 15
	// keepForwarded is how much memory for them is kept for the next ones,
	// and keepForwardedPackets for how many packets.
	keepForwarded        = 1 << 20
	keepForwardedPackets = 1 << 12
)

// forwarded are packets that arrived at another shard, or were sent by one to
// the device itself, and wait for the shard that they belong to. Its lock is
// taken inside those of shards and is held only while a packet is copied.
type forwarded struct {
	mu      sync.Mutex
	any     atomic.Bool // something waits
	waiting packetCopies
	lost    uint64
	kick    chan struct{} // tells the transmitter of the shard

	taken packetCopies // belongs to the shard's lock
}

// packetCopies are packets and the bytes that they lie in.
type packetCopies struct {
	bytes   []byte
	packets []transport.RxPacket
}

func (c *packetCopies) reset() {
	clear(c.packets)
	c.packets, c.bytes = c.packets[:0], c.bytes[:0]
	if cap(c.bytes) > keepForwarded || cap(c.packets) > keepForwardedPackets {
		*c = packetCopies{}
	}
}

// put adds a copy of p, and tells the shard if it must be told.
func (f *forwarded) put(p *transport.RxPacket) {
	if f.add(p) {
		f.tell()
	}
}

// tell has the transmitter handle what was forwarded and send what there is.
func (f *forwarded) tell() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// add adds a copy of p. It reports whether the shard must be told.
func (f *forwarded) add(p *transport.RxPacket) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &f.waiting
	start := len(w.bytes)
	if start+len(p.Data) > maxForwarded || len(w.packets) == maxForwardedPackets {
		f.lost++
		return false
	}
	w.bytes = append(w.bytes, p.Data...)
	k := *p
	k.Data = w.bytes[start:len(w.bytes):len(w.bytes)]
	w.packets = append(w.packets, k)
	return !f.any.Swap(true)
}

// take returns what waits, valid until done is called. The caller holds the
// lock of the shard.
func (f *forwarded) take() []transport.RxPacket {
	if !f.any.Load() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken, f.waiting = f.waiting, f.taken
	f.any.Store(false)
	return f.taken.packets
}

// done gives back what take has returned, and the memory of a burst.
func (f *forwarded) done() { f.taken.reset() }

// drops returns how many packets were lost.
func (f *forwarded) drops() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}
