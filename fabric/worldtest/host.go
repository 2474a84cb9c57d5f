package worldtest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/world/frames"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// host is one of the network: what an adapter has between a device and the
// cable. It is a network.Host. The lock of the World guards it.
type host struct {
	w      *World
	number int
	cable  int // -1: it has none
	port   *Port
	dev    *verbs.Device
	random func() uint32

	out     [network.NumClasses]queue[outgoing]
	outSize int           // bytes in out
	sent    uint64        // packets so far
	latest  time.Duration // when the latest of them was sent
	dirty   bool          // it is in World.dirty
}

// outgoing is a packet that waits for the cable.
type outgoing struct {
	network.Packet
	at     time.Duration // when it was sent
	number uint64
}

var _ network.Host = (*host)(nil)

// overhead is charged for a packet in the receive buffer besides its bytes.
const overhead = 64

var (
	errTooLong = fmt.Errorf("worldtest: %w", transport.ErrTooLong)
	errNoHost  = errors.New("worldtest: no host has this address")
)

// put queues packet i of a batch for the cable.
func (h *host) put(b *transport.TxBatch, i int) (n int, err error) {
	w := h.w
	data, path := b.Packet(i)
	dst, ok := frames.Number(path.Dst, len(w.hosts))
	switch {
	case !ok:
		return 0, errNoHost
	case len(data)+rocev2.ICRCLen+frames.IPHeaders > w.linkMTU:
		return 0, errTooLong
	}
	k := outgoing{at: w.now(), number: h.sent}
	n = w.packets.Put(&k.Packet, dst, data, path)
	if b.Damaged(&transport.Run{First: i, Last: i + 1}) {
		w.packets.Spoil(k.Handle)
	}
	h.sent++
	h.latest = k.at
	h.outSize += int(k.Size)
	h.out[w.net.ClassOf(k.DSCP)].put(k)
	if !h.dirty {
		h.dirty = true
		w.dirty = append(w.dirty, h)
		w.arm(k.at + 1)
	}
	return n, nil
}

// Pull implements network.Host. What the host sends in this very nanosecond,
// perhaps on another processor, is not there yet: so the order in which
// goroutines of several hosts run does not show.
func (h *host) Pull(_ event.Time, port int, paused uint8, p *network.Packet) bool {
	if port != 0 {
		return false
	}
	var from *queue[outgoing]
	for c := range h.out {
		q := &h.out[c]
		if q.len() == 0 || paused>>c&1 != 0 || q.first().at >= h.w.turned {
			continue
		}
		if from == nil || q.first().number < from.first().number {
			from = q
		}
	}
	if from == nil {
		return false
	}
	*p = from.take().Packet
	h.outSize -= int(p.Size)
	if q := h.port; q != nil && q.waits && h.outSize <= h.w.cfg.SendBuffer/2 { // not for each packet
		q.waits = false
		q.onRoom()
	}
	return true
}

// Receive implements network.Host.
func (h *host) Receive(_ event.Time, _ int, k *network.Packet) {
	p, size := h.port, int(k.Size)+overhead
	if p == nil { // no device is open
		h.w.packets.Release(k.Handle)
		return
	}
	if p.inSize+size > h.w.cfg.RecvBuffer {
		p.stats.Overflowed()
		h.w.packets.Release(k.Handle)
		return
	}
	p.in.put(*k)
	p.inSize += size
	p.Wake()
}

// Timer implements network.Host. None is ever set.
func (h *host) Timer(event.Time) {}

// Dropped implements network.Host.
func (h *host) Dropped(p *network.Packet, _ network.Drop) { h.w.packets.Release(p.Handle) }

// numbers returns a source of random numbers that goroutines share.
func numbers(seed, stream uint64) func() uint32 {
	r := event.NewRand(seed, stream)
	var mu sync.Mutex
	return func() uint32 {
		mu.Lock()
		defer mu.Unlock()
		return uint32(r.Uint64())
	}
}
