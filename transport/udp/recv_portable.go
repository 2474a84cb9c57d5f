//go:build !linux || portable

package udp

import (
	"errors"
	"math"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/transport"
)

// header is what the system tells of the IP header of a datagram, 0 where it
// does not.
type header struct {
	class, hops uint8
	iface       int // index
}

// datagram is what a socket has received.
type datagram struct {
	n    int // bytes
	src  netip.Addr
	port uint16
	header
}

// receiver is the state of Recv.
type receiver struct {
	verifier *transport.Verifier
	grouped  bool        // the last call has asked the groups
	first    int         // group that was asked last; the next one begins the next turn
	few      bool        // little comes: to ask again is the next call's
	more     atomic.Bool // the last call may have left something

	// Of this call.
	taken, malformed int  // datagrams
	left             bool // it did not find the end
	datagram         datagram

	buf [transport.MaxSealedLen + 1]byte // one more, to notice what is too long
}

// Recv takes what is there without blocking, at most one datagram for each
// buffer of b. Socket errors that are of earlier datagrams are counted and
// passed over.
func (l *Link) Recv(b *transport.RxBatch) (int, error) {
	b.Reset()
	if l.closed.Load() {
		return 0, transport.ErrClosed
	}
	r := &l.rx
	most := b.Buffers()
	if r.few {
		most = 1 // a datagram that comes alone costs one system call
	}
	r.taken, r.malformed, r.left = 0, 0, false
	// Groups and the link's own socket take turns, so that neither has to
	// wait until the other has nothing more.
	members := l.groups.members()
	if r.grouped = !r.grouped && len(members) > 0; r.grouped {
		for range members {
			r.first = (r.first + 1) % len(members)
			m := members[r.first]
			// The link goes on without a group that fails, or was
			// left.
			_ = l.take(b, m.ipSocket, m, most)
			if r.taken == most {
				break // the next one begins the next turn
			}
		}
		r.grouped = r.taken > 0
	}
	if r.grouped {
		r.left = true
	} else if err := l.take(b, l.own, nil, most); err != nil {
		r.note(false, false)
		return 0, err
	}
	r.note(r.taken == 0 || r.taken == 1 && !r.few, r.left)
	if r.taken > 0 {
		l.stats.Received(b, r.taken, r.malformed)
	}
	return b.Len(), nil
}

// note says what the next Recv and the next Wait do.
func (r *receiver) note(few, more bool) {
	r.few = few
	if r.more.Load() != more { // to look is cheaper than to write
		r.more.Store(more)
	}
}

// take receives from a socket into b, until it has nothing more or the call has
// taken most datagrams. An error says that receiving fails, and that the call
// has taken nothing. m is the group of the socket.
func (l *Link) take(b *transport.RxBatch, s *ipSocket, m *member, most int) error {
	r := &l.rx
	meta, v := transport.RxPacket{Dst: l.local.Addr()}, r.verifier
	if m != nil {
		meta.Dst, v = m.addr, m.verifier
	}
	for r.taken < most {
		if err := s.receive(r.buf[:], &r.datagram); err != nil {
			over, fails := s.ended(err, &l.stats)
			switch {
			case !over:
				continue
			case fails && r.taken == 0:
				return l.wrap(err)
			case !fails && s.failing.Load() != 0:
				s.failing.Store(0)
			}
			return nil
		}
		s.inRow = 0
		r.taken++
		d := &r.datagram
		if m != nil && d.iface != 0 && d.iface != l.groups.iface {
			continue // others of this host are members there
		}
		data := b.Copy(r.buf[:d.n])
		meta.Src, meta.SrcPort, meta.TrafficClass, meta.HopLimit = d.src, d.port, d.class, d.hops
		r.malformed += b.SplitFrom(0, data, 0, &meta, v)
	}
	r.left = true
	if s.failing.Load() != 0 {
		s.failing.Store(0)
	}
	return nil
}

// wrap turns the error of a closed socket into ErrClosed.
func (l *Link) wrap(err error) error {
	if l.closed.Load() || errors.Is(err, net.ErrClosed) {
		return transport.ErrClosed
	}
	return err
}

// trouble is what a socket has with receiving.
type trouble struct {
	inRow   int          // errors since something was received
	failing atomic.Int32 // Recv calls in a row for which it failed
}

// maxRefused is how many errors in a row are those of earlier datagrams.
const maxRefused = 64

// ended reports whether there is nothing more to receive for now, and whether
// that is because receiving fails. An error may be an ICMP error of an earlier
// datagram: the system reports each of those once.
func (t *trouble) ended(err error, stats *transport.LinkCounters) (over, fails bool) {
	if errors.Is(err, errNothing) {
		t.inRow = 0
		return true, false
	}
	stats.SocketError()
	if t.inRow++; t.inRow < maxRefused && t.failing.Load() == 0 && !isBroken(err) {
		return false, false
	}
	t.inRow = 0
	if k := t.failing.Load(); k < math.MaxInt32 {
		t.failing.Store(k + 1)
	}
	return true, true
}

// isBroken reports whether an error is of the socket, and of no datagram.
func isBroken(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, notSocket)
}

// errNothing says that nothing has come.
var errNothing = errors.New("nothing to receive")

// pause is how long a socket is left alone for which receiving has failed
// that often. It must not keep a processor busy.
func pause(failed int32) time.Duration {
	return min(time.Millisecond<<min(failed-1, 10), maxPause)
}

const maxPause = 100 * time.Millisecond

// asleep returns how long the socket is left alone; 0: it is not.
func (t *trouble) asleep() time.Duration {
	if k := t.failing.Load(); k > 0 {
		return pause(k)
	}
	return 0
}
