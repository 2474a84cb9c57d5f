// Package tap wraps a link and writes what crosses it, in both directions, as a
// pcapng capture. A link has no IP and UDP headers, so the capture makes them
// from what is known: addresses, ports, traffic class, hop limit, flow label,
// and the IPv4 Identification that the ICRC was computed for, with correct
// checksums. The interface has raw IP packets. Wireshark shows the capture like
// one from the wire, and the ICRCs match. Where the link cannot tell the hop
// limit, the capture has 64. A packet is written before it is sent, so that it
// precedes its answer. A packet that then cannot be sent is in the capture too.
// One that came through memory (transport/shm) gets the ICRC that it would have
// had, with Identification 0.
//
// Link records all packets, from the beginning to the end. Switch records when
// it is told to, into a Ring of bounded size.
package tap

import (
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/transport"
)

// Link wraps a link. It is a transport.Link.
type Link struct {
	transport.Wrapper
	local netip.AddrPort

	mu     sync.Mutex
	w      *writer
	err    error
	closed bool
	frame  []byte
}

var _ transport.Link = (*Link)(nil)

// New wraps inner and begins a capture on w. Writing is buffered until Flush or
// Close. It takes over inner but not w.
func New(inner transport.Link, w io.Writer) (*Link, error) {
	ng, err := newWriter(w, inner.Addr().String(), "rocev2 link")
	if err != nil {
		return nil, fmt.Errorf("tap: %w", err)
	}
	return &Link{
		Wrapper: transport.Wrapper{Link: inner},
		local:   netip.AddrPortFrom(inner.Addr().WithZone(""), inner.Capabilities().Port),
		w:       ng,
	}, nil
}

// Send writes and transmits b.
func (l *Link) Send(b *transport.TxBatch) error {
	// The inner link seals again, to the same result; but where a device
	// refuses to segment, it gives the packets of a run Identification 0
	// after all.
	b.SealAll(l.local, l.Link.Capabilities().SegmentOffload)
	now := time.Now()
	l.mu.Lock()
	for i := range b.Len() {
		h, data := headerOf(b, i, l.local)
		l.write(now, h, data)
	}
	l.mu.Unlock()
	return l.Link.Send(b)
}

// Recv receives and writes what came.
func (l *Link) Recv(b *transport.RxBatch) (int, error) {
	n, err := l.Link.Recv(b)
	if n > 0 {
		now := time.Now()
		l.mu.Lock()
		for i := range b.Packets() {
			p := &b.Packets()[i]
			l.write(now, headerFrom(p, l.local), p.Data)
		}
		l.mu.Unlock()
	}
	return n, err
}

// write adds a packet to the capture. After an error the capture ends; the link
// goes on.
func (l *Link) write(now time.Time, h header, data []byte) {
	if l.err != nil || l.closed {
		return
	}
	l.frame = appendFrame(l.frame[:0], &h, data)
	l.err = l.w.packet(now, l.frame)
}

// Flush writes out what is buffered and returns the first error of the capture.
func (l *Link) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && !l.closed {
		l.err = l.w.flush()
	}
	return l.err
}

// Close closes the inner link and flushes the capture. The link's error goes
// before the capture's.
func (l *Link) Close() error {
	err := l.Link.Close()
	flushErr := l.Flush()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	if err == nil && flushErr != nil {
		err = fmt.Errorf("tap: %w", flushErr)
	}
	return err
}
