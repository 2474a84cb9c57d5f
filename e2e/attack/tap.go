package attack

import (
	"bytes"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/transport"
)

// tapped is the cable of a host, in the hands of an attacker: it has all that
// comes, before anything is opened, and lets through what it likes.
type tapped struct {
	links []*tapLink // one for each socket

	mu    sync.Mutex
	taken [][]byte                      // the latest packets that have come sealed
	count int                           // of all of them
	pass  func(n int, data []byte) bool // called with mu held; nil: all
	ghost netip.Addr                    // whose packets from markerPort are markers
}

// mostTaken is how many packets an attacker keeps.
const mostTaken = 1 << 14

// tap puts a link into the hands of an attacker.
func (l *lab) tap(link transport.Link) transport.Link {
	if l.tapped == nil {
		l.tapped = map[netip.Addr]*tapped{}
	}
	addr := link.Addr().Unmap()
	if l.tapped[addr] == nil {
		l.tapped[addr] = &tapped{}
	}
	tap := &tapLink{Wrapper: transport.Wrapper{Link: link}, tapped: l.tapped[addr]}
	tap.tapped.links = append(tap.tapped.links, tap)
	return tap
}

// markerPort is where markers come from, which a fence sends: the device does
// not have them.
const markerPort = 1

// tapLink is a link of a host, which may have several.
type tapLink struct {
	transport.Wrapper
	tapped *tapped

	come bool          // a marker, in the batch before
	seen atomic.Uint64 // markers that have come
}

// markers is how many markers have come. What came before them is handled.
func (l *tapLink) markers() uint64 { return l.seen.Load() }

// SetPlacer has packets placed, where the link inside can.
func (l *tapLink) SetPlacer(p transport.Placer) {
	if inner, ok := l.Link.(transport.PlacingLink); ok {
		inner.SetPlacer(p)
	}
}

// Recv takes down what comes sealed, and drops what is not to pass.
func (l *tapLink) Recv(b *transport.RxBatch) (int, error) {
	if l.come { // and the batch before is handled
		l.come = false
		l.seen.Add(1)
	}
	n, err := l.Link.Recv(b)
	if err != nil || b.Len() == 0 {
		return n, err
	}
	t := l.tapped
	t.mu.Lock()
	defer t.mu.Unlock()
	all := b.Len()
	b.Filter(func(p *transport.RxPacket) bool {
		if p.SrcPort == markerPort && p.Src == t.ghost {
			l.come = true
			return false
		}
		if !transport.IsSealed(p.Data) {
			return true
		}
		t.count++
		if t.pass != nil && !t.pass(t.count, p.Data) {
			return false
		}
		if len(t.taken) < mostTaken {
			t.taken = append(t.taken, bytes.Clone(p.Data))
		}
		return true
	})
	if l.come {
		l.Link.Wake() // to be called again
	}
	return n - (all - b.Len()), nil
}

// markersOf says what address markers come from.
func (t *tapped) markersOf(ghost netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ghost = ghost
}

// take returns what has come sealed to a host since the last call.
func (l *lab) take(h *host) [][]byte {
	t := l.tapped[h.addr]
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.taken
	t.taken = nil
	return all
}

// passes sets what may pass to a host: packet n of all that are sealed, from 1.
// nil lets all pass.
func (l *lab) passes(h *host, pass func(n int, data []byte) bool) {
	t := l.tapped[h.addr]
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass, t.count = pass, 0
}
