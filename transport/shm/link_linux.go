//go:build !portable

package shm

import (
	"errors"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/transport"
)

// Inner is the link that carries what does not go through memory: one of
// package transport/udp.
type Inner interface {
	transport.Link
	WaitAlso(f *os.File, ready func()) error // see udp.Link
	Namespace() uint64
	Scope() uint32
}

// Link wraps a link. It is a transport.Link.
type Link struct {
	transport.Wrapper
	dev    *device
	index  int // of the links of the device
	closed atomic.Bool
	stats  transport.LinkCounters
	events *events
	conns  atomic.Pointer[[]*conn] // those that Recv looks at; replaced under dev.mu
	tx     sender
	rx     receiver
}

var (
	_ transport.Link         = (*Link)(nil)
	_ transport.MemorySharer = (*Link)(nil)
)

// sender is the state of Send.
type sender struct {
	view  transport.TxBatch
	known uint32 // generation of peers
	fail  transport.SendError
	peers map[netip.Addr]*txPeer
	path  *transport.Path // the last one that was looked up
	peer  *txPeer         // its peer; nil: one that is reached by UDP only
}

// txPeer is a peer, for one link.
type txPeer struct {
	*peer
	vain int // packets since it was asked for
}

// Send passes on the packets of b, those for peers with which memory is shared
// through that.
func (l *Link) Send(b *transport.TxBatch) error {
	if l.closed.Load() {
		return transport.ErrClosed
	}
	t := &l.tx
	t.fail = transport.SendError{}
	if g := l.dev.generation.Load(); g != t.known {
		t.known, t.peers, t.path = g, nil, nil
	}
	udp := 0 // the first packet that still has to go by UDP, up to i
	n := b.Len()
	packets, runs, bytes := 0, 0, 0
	for i := 0; i < n; {
		data, path := b.Packet(i)
		c := l.connFor(path, data)
		if c == nil {
			i++
			continue
		}
		r := l.runFor(b, i, c)
		if udp < i {
			if err := l.sendUDP(b, udp, i); err != nil {
				return err
			}
		}
		udp, i = i, r.Last
		switch c.send(b, &r) {
		case sent:
			udp = i
			packets, runs, bytes = packets+r.Len(), runs+1, bytes+len(r.Data)
		case noRoom:
			udp = i
			t.fail.Add(r.First, r.Len(), errFull)
			l.stats.SendFailed(r.Len())
		}
	}
	if packets > 0 {
		l.stats.Sent(packets, runs, bytes)
		l.stats.SentShared(packets)
	}
	switch {
	case udp == 0 && n > 0:
		return l.Link.Send(b)
	case udp < n:
		if err := l.sendUDP(b, udp, n); err != nil {
			return err
		}
	}
	return t.fail.Result()
}

// errFull is the error for packets to a peer that does not take those before
// them.
var errFull = errors.New("shm: the peer does not take what is in its memory")

// runFor returns the run that begins at packet i, as far as it is for c.
func (l *Link) runFor(b *transport.TxBatch, i int, c *conn) transport.Run {
	r := b.Run(i, true)
	if c.peer.slots() == 1 && !b.Damaged(&r) {
		return r
	}
	return b.Run(i, false)
}

// sendUDP sends some packets of b by the inner link.
func (l *Link) sendUDP(b *transport.TxBatch, first, last int) error {
	t := &l.tx
	b.View(&t.view, first, last)
	err := l.Link.Send(&t.view)
	t.view = transport.TxBatch{}
	return t.fail.Take(err, first)
}

// maxPeers is how many peers a link knows of.
const maxPeers = 4096

// askEvery is after how many packets by UDP it is looked whether a peer is to
// be asked again.
const askEvery = 16

// connFor returns the memory by which a packet goes, or nil.
func (l *Link) connFor(path *transport.Path, data []byte) *conn {
	t := &l.tx
	if t.path != path {
		t.path, t.peer = path, l.peerFor(path)
	}
	p := t.peer
	if p == nil || l.dev.leased && destQPN(data) == managementQPN {
		return nil
	}
	if c := p.conn(l.index, data); c != nil {
		return c
	}
	if p.vain--; p.vain < 0 {
		p.vain = askEvery
		l.dev.ask(p.peer, l.index, destQPN(data))
	}
	return nil
}

// managementQPN is the queue pair of connection managers. What a leaseholder
// sends there goes by the owner of its port.
const managementQPN = 1

func (l *Link) peerFor(path *transport.Path) *txPeer {
	t, own := &l.tx, l.dev.local
	if path.Dst == own.Addr() && !l.dev.leased || path.Dst.IsMulticast() || path.Dst.Is4() != own.Addr().Is4() || path.Port(own.Port()) != own.Port() {
		return nil
	}
	p := t.peers[path.Dst]
	if p == nil {
		if t.peers == nil || len(t.peers) >= maxPeers {
			t.peers = map[netip.Addr]*txPeer{}
		}
		p = &txPeer{peer: l.dev.peerAt(path.Dst)}
		t.peers[path.Dst] = p
	}
	return p
}

// Wait blocks until there may be something to receive, by whatever way.
func (l *Link) Wait() error {
	if l.closed.Load() {
		return transport.ErrClosed
	}
	if l.arm() {
		return nil
	}
	err := l.Link.Wait()
	l.rx.waited.Store(true)
	l.observe(err)
	return err
}

// observe looks for the end of the inner link in its errors.
func (l *Link) observe(err error) {
	if err != nil && errors.Is(err, transport.ErrClosed) {
		l.dev.lost()
	}
}

// arm has peers wake this side. It reports whether something has come.
func (l *Link) arm() (ready bool) {
	for _, c := range *l.conns.Load() {
		ready = c.cons.arm() || ready
	}
	return ready
}

// bellShut ends the connection whose peer has shut down the bell of this side.
func (l *Link) bellShut(bell int) {
	for _, c := range *l.conns.Load() {
		if c.bell == bell {
			c.broken(errBroken("the socket by which the peer wakes this side is shut down"))
		}
	}
}

// Close closes the link, and with the last one of a device all that it shares.
func (l *Link) Close() error {
	if l.closed.Swap(true) {
		return transport.ErrClosed
	}
	l.dev.beginClose()
	err := l.Link.Close()
	l.rx.mu.Lock() // no Recv is at it any more
	for _, c := range *l.conns.Load() {
		c.hangUp()
		c.unmap()
	}
	l.conns.Store(&[]*conn{})
	l.rx.mu.Unlock()
	l.dev.endClose()
	return err
}

// Stats returns the counters of both ways.
func (l *Link) Stats() transport.LinkStats {
	s, own := l.Link.Stats(), l.stats.Load()
	s.Add(&own)
	return s
}

// SharedPeers returns the peers to which packets of this link go through
// memory.
func (l *Link) SharedPeers() (list []netip.Addr) {
	d := l.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	for addr, p := range d.peers {
		if p.routes[l.index].Load() != nil {
			list = append(list, addr)
		}
	}
	return list
}

// receiver is the state of Recv.
type receiver struct {
	mu     sync.Mutex
	first  int         // connection to begin with
	served int         // calls in a row that took from memory
	vain   int         // calls since UDP was looked at, see idleTurn
	recent int         // calls that may pass UDP over
	waited atomic.Bool // Wait has returned since the last call
	held   int         // calls for UDP on behalf of connections that wait for it
}
