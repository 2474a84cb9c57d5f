//go:build !portable

package shm

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/transport"
	"golang.org/x/sys/unix"
)

// conn is the memory that a link shares with one of a peer.
type conn struct {
	link     *Link
	peer     *peer
	peerSlot int // of the peer's port: the queue pairs there are of the same link
	pid      int32
	socket   *net.UnixConn // ends when the peer does
	dialed   bool
	mem      []byte
	bell     int // wakes the peer, and this side when the peer uses its own

	cons *consumer
	dead atomic.Bool // nothing is sent any more; what has come is still taken

	mu      sync.Mutex // guards what follows: Send, and the end
	prod    *producer
	lagging bool // the peer takes too little to be waited for
	first   bool // nothing was sent through it: what went by UDP comes before
	mapped  int  // of Send and Recv, how many use the memory
}

// newConn takes over all that it is given.
func newConn(l *Link, p *peer, slot int, s *net.UnixConn, mem []byte, dialed bool, bell int) *conn {
	in, out := halves(mem)
	if dialed {
		in, out = out, in
	}
	return &conn{
		link: l, peer: p, peerSlot: slot, pid: pidOf(s), socket: s, dialed: dialed, mem: mem, bell: bell,
		cons:   &consumer{ring: in, src: p.addr, dst: l.dev.local.Addr()},
		prod:   newProducer(out),
		first:  true,
		mapped: 2,
	}
}

// How long a Send waits for a peer that lags, as long as the peer goes on
// taking packets: what lies in the caches is quicker. And how long it waits for
// a peer that does not go on. Send does not wait again for a peer that has
// stopped.
const (
	waitAtMost   = time.Millisecond
	stalledAfter = 100 * time.Microsecond
)

// outcome is what has become of a run.
type outcome uint8

const (
	sent   outcome = iota
	byUDP          // it is to go that way
	noRoom         // it is lost, as in a socket buffer that is full
)

// send puts a run of b into the ring and wakes the peer if it sleeps.
func (c *conn) send(b *transport.TxBatch, r *transport.Run) outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead.Load() {
		return byUDP
	}
	m := metaOf(r, c.link.dev.local.Port())
	if c.first {
		m.flags |= flagAfterUDP
	}
	if b.Damaged(r) {
		b.Seal(r, c.link.dev.local)
		m.flags |= flagDamaged
	}
	if c.prod.ahead() {
		c.slowDown()
	}
	if !c.prod.put(r.Data, m) && !c.putAgain(r.Data, m) {
		return noRoom
	}
	c.first = false
	if c.prod.wanted() {
		ring(c.bell)
	}
	return sent
}

func metaOf(r *transport.Run, port uint16) meta {
	p := r.Path
	m := meta{segment: r.SegmentSize, srcPort: p.SrcPort, trafficClass: p.TrafficClass, hopLimit: p.HopLimit, flowLabel: p.FlowLabel}
	if m.srcPort == 0 {
		m.srcPort = port
	}
	return m
}

// putAgain puts a run into a ring that had no room, if the peer has given some
// back.
func (c *conn) putAgain(run []byte, m meta) bool {
	_, err := c.prod.refresh()
	if err != nil {
		c.broken(err)
	}
	return err == nil && c.prod.put(run, m)
}

// slowDown waits for a peer that lags.
func (c *conn) slowDown() {
	var begun, moved time.Time
	for {
		more, err := c.prod.refresh()
		if err != nil {
			c.broken(err)
			return
		}
		if more {
			c.lagging = false
		}
		if !c.prod.ahead() || c.lagging || c.dead.Load() || c.link.closed.Load() {
			return
		}
		now := time.Now()
		if begun.IsZero() {
			begun, moved = now, now
			c.link.stats.SendWaited()
		}
		if more {
			moved = now
		}
		if now.Sub(moved) > stalledAfter || now.Sub(begun) > waitAtMost {
			c.lagging = true
			return
		}
		runtime.Gosched()
	}
}

// broken ends the use of the memory, because the peer does not keep to the
// rules.
func (c *conn) broken(err error) {
	c.link.dev.note(err)
	c.hangUp()
}

// hangUp ends the use of the memory for both sides. What has come is still
// taken. It may be called at any time.
func (c *conn) hangUp() {
	c.dead.Store(true)
	// This wakes watch, which does the rest, and the peer.
	_ = c.socket.CloseWrite()
	_ = c.socket.CloseRead()
}

// watch waits until the peer ends, and ends the connection then.
func (c *conn) watch() {
	var b [1]byte
	_, _ = c.socket.Read(b[:]) // nothing is ever sent: whatever it is, it is the end
	c.dead.Store(true)
	c.peer.remove(c)
	_ = c.link.events.remove(c.bell)
	c.socket.Close()
	c.unmap()
	c.link.Wrapper.Wake() // so that Recv sees it
}

// unmap is called once for Send and once for Recv, which will not use the
// memory any more.
func (c *conn) unmap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mapped--; c.mapped == 0 {
		unmapMemory(c.mem)
		unix.Close(c.bell)
		c.link.dev.ended()
	}
}
