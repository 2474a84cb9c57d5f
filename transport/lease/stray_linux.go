//go:build !portable

package lease

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// strayer gives packets that came astray to the owner, which gives them to the
// lease that they belong to. They are few: packets of one flow for queue pairs
// of different slots that the kernel has coalesced. It has a goroutine of its
// own, because the link's Send has one caller, and the one that receives may
// hold locks.
type strayer struct {
	from  *udp.Link
	token Token
	path  *transport.Path

	out, in, dropped atomic.Uint64

	mu      sync.Mutex // guards what follows
	rate    strayRate
	waiting *transport.TxBatch // nil: nothing came astray yet
	spare   *transport.TxBatch
	kick    chan struct{}
	link    *udp.Link // by which run sends; nil: it has none
	shut    bool
}

// strayBytes is how many bytes of packets may wait. What comes beyond is lost,
// as in a socket buffer that is full.
const strayBytes = 512 << 10

// mostStrays is how many packets are handed over in a second, and at once. The
// owner has one goroutine for all leases. What comes beyond is lost, and asked
// for again.
const mostStrays = 20000

// strayRate bounds how often something happens.
type strayRate struct {
	tokens float64
	last   time.Time
}

// take reports whether it may happen once more.
func (r *strayRate) take(now time.Time) bool {
	if r.last.IsZero() {
		r.tokens = mostStrays
	} else {
		r.tokens = min(mostStrays, r.tokens+now.Sub(r.last).Seconds()*mostStrays)
	}
	r.last = now
	if r.tokens < 1 {
		return false
	}
	r.tokens--
	return true
}

func (s *strayer) init(from *udp.Link, g *Grant) {
	local := g.Local.Addr().WithZone("")
	s.from, s.token, s.path = from, g.Token, transport.NewPath(local, transport.Path{Dst: local})
}

// HandOver gives a packet to the slot that its QPN belongs to. It does not
// wait.
func (l *Link) HandOver(p *transport.RxPacket) {
	if !l.lease.stray.add(p, time.Now()) {
		l.lease.stray.dropped.Add(1)
	}
}

// add reports whether the packet will be sent. Only what came from the network
// is: one that was handed over already, or came through memory, has no ICRC,
// and would go round for ever.
func (s *strayer) add(p *transport.RxPacket, now time.Time) bool {
	inner := p.Data[:len(p.Data)-rocev2.ICRCLen]
	if len(inner) > MaxInner || p.ICRC.Refuses() || p.ICRC == transport.ICRCAbsent {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut || !s.rate.take(now) {
		return false
	}
	if s.waiting == nil {
		s.waiting, s.spare = transport.NewTxBatch(strayBytes), transport.NewTxBatch(strayBytes)
		s.kick = make(chan struct{}, 1)
		go s.run()
	}
	room := s.waiting.Room()
	if room == nil {
		return false
	}
	e := Envelope{To: managementQPN, Token: s.token, Addr: p.Src, Port: p.SrcPort,
		TrafficClass: p.TrafficClass, HopLimit: p.HopLimit, FlowLabel: p.FlowLabel}
	s.waiting.Commit(e.Put(room, inner), s.path)
	s.out.Add(1)
	select {
	case s.kick <- struct{}{}:
	default:
	}
	return true
}

// Stats returns the counters of the socket, and those of strays, which the
// first link of a device has for all.
func (l *Link) Stats() transport.LinkStats {
	s := l.Link.Stats()
	if k := &l.lease.stray; l.Link == l.lease.raw[0] {
		s.TxStrays, s.RxStrays, s.StraysDropped = k.out.Load(), k.in.Load(), k.dropped.Load()
	}
	return s
}

// run sends what waits, by a link of its own over the same socket.
func (s *strayer) run() {
	link, err := s.from.Duplicate()
	if err != nil {
		return // they are lost, and asked for again
	}
	s.use(link)
	defer link.Close()
	defer s.use(nil)
	for range s.kick {
		s.mu.Lock()
		b := s.waiting
		s.waiting, s.spare = s.spare, b
		s.mu.Unlock()
		_ = link.Send(b) // what is not sent is lost
		b.Reset()
	}
}

// use sets the link by which run sends.
func (s *strayer) use(link *udp.Link) {
	s.mu.Lock()
	s.link = link
	s.mu.Unlock()
}

// files returns the descriptors of the link by which run sends.
func (s *strayer) files() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil {
		return nil
	}
	return s.link.Files()
}

// close ends it.
func (s *strayer) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kick != nil && !s.shut {
		close(s.kick)
	}
	s.shut = true
}
