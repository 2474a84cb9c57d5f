package tap

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/transport"
)

// Ring keeps the latest packets, in memory of a fixed size: the oldest make
// room for new ones. Switch fills it. Its methods may be called from any
// goroutine.
type Ring struct {
	filter Filter

	mu    sync.Mutex
	buf   []byte
	first uint64 // position of the oldest record, since the ring was made
	next  uint64 // position after the newest
	frame []byte
	stats RingStats
}

// RingStats counts the packets of a Ring.
type RingStats struct {
	Seen    uint64 // that crossed the link
	Matched uint64 // of these, those that the filter let through
	Kept    int    // that the ring has now
	Bytes   int    // that they take
	Size    int    // bytes of the ring
}

// recordHeader is what precedes a packet in the ring: its time in nanoseconds
// and its length.
const recordHeader = 12

// MinRing is the smallest size of a Ring, so that any packet has room.
const MinRing = 64 << 10

// NewRing makes a ring of that many bytes, at least MinRing, for packets that
// the filter lets through.
func NewRing(bytes int, f Filter) *Ring {
	return &Ring{filter: f, buf: make([]byte, max(bytes, MinRing))}
}

// Stats returns the counters.
func (r *Ring) Stats() RingStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	s.Bytes, s.Size = int(r.next-r.first), len(r.buf)
	return s
}

func (r *Ring) sent(now time.Time, local netip.AddrPort, b *transport.TxBatch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range b.Len() {
		h, data := headerOf(b, i, local)
		r.add(now, true, h.dst.Addr(), &h, data)
	}
}

func (r *Ring) received(now time.Time, local netip.AddrPort, b *transport.RxBatch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range b.Packets() {
		p := &b.Packets()[i]
		h := headerFrom(p, local)
		r.add(now, false, p.Src, &h, p.Data)
	}
}

func (r *Ring) add(now time.Time, sent bool, peer netip.Addr, h *header, data []byte) {
	r.stats.Seen++
	if !r.filter.keeps(sent, peer, data) {
		return
	}
	r.stats.Matched++
	b := binary.BigEndian.AppendUint64(r.frame[:0], uint64(now.UnixNano()))
	b = append(b, 0, 0, 0, 0)
	b = appendFrame(b, h, data)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-recordHeader))
	r.frame = b
	if len(b) > len(r.buf) {
		return
	}
	for r.next+uint64(len(b))-r.first > uint64(len(r.buf)) {
		r.first += uint64(r.length(r.first))
		r.stats.Kept--
	}
	r.copy(b, r.next, true)
	r.next += uint64(len(b))
	r.stats.Kept++
}

// copy copies b to or from a position.
func (r *Ring) copy(b []byte, at uint64, in bool) {
	for len(b) > 0 {
		part := r.buf[at%uint64(len(r.buf)):]
		part = part[:min(len(part), len(b))]
		if in {
			copy(part, b)
		} else {
			copy(b, part)
		}
		at += uint64(len(part))
		b = b[len(part):]
	}
}

// length returns the length of the record at a position.
func (r *Ring) length(at uint64) int {
	var h [recordHeader]byte
	r.copy(h[:], at, false)
	return recordHeader + int(binary.BigEndian.Uint32(h[8:]))
}

// chunk is about how many bytes are copied under the lock at once, so that the
// packets need not wait for long.
const chunk = 128 << 10

// read appends records from a position on, as they are in the ring, and returns
// the position after them. Records that have made room for others meanwhile are
// left out.
func (r *Ring) read(b []byte, at, end uint64) ([]byte, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at = max(at, r.first)
	start := at
	for at < end && at-start < chunk {
		at += uint64(r.length(at))
	}
	if at <= start {
		return b[:0], end
	}
	b = append(b[:0], make([]byte, at-start)...)
	r.copy(b, start, false)
	return b, at
}

// WriteTo writes what the ring has now as a pcapng capture. Recording goes on
// meanwhile.
func (r *Ring) WriteTo(w io.Writer) (int64, error) {
	count := &counter{w: w}
	if err := r.writeTo(count); err != nil {
		return count.n, fmt.Errorf("tap: %w", err)
	}
	return count.n, nil
}

func (r *Ring) writeTo(w io.Writer) error {
	ng, err := newWriter(w, "rocev2", "rocev2 device")
	if err != nil {
		return err
	}
	r.mu.Lock()
	at, end := r.first, r.next
	r.mu.Unlock()
	var b []byte
	for at < end {
		b, at = r.read(b, at, end)
		for rest := b; len(rest) > 0; {
			n := recordHeader + int(binary.BigEndian.Uint32(rest[8:]))
			frame := rest[recordHeader:n]
			when := time.Unix(0, int64(binary.BigEndian.Uint64(rest)))
			if err := ng.packet(when, frame); err != nil {
				return err
			}
			rest = rest[n:]
		}
	}
	return ng.flush()
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}
