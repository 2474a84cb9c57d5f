//go:build !linux || portable

package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/internal/dontfrag"
	"github.com/gosoftroce/rocev2/transport"
)

// queueLen is how many datagrams are read ahead of Recv; beyond that they stay
// in the socket's buffer.
const queueLen = 256

// Link is a transport.Link over one unconnected UDP socket, and one for each
// group, with one datagram per system call. The package documentation says what
// it cannot do.
type Link struct {
	conn  *ipSocket
	addr  netip.Addr
	local netip.AddrPort
	zone  string                 // of a link-local address, as a number: names are looked up at every use
	caps  transport.Capabilities // without what changes
	mtu   ownMTU

	done     chan struct{} // closed by Close
	readers  sync.WaitGroup
	ready    chan struct{} // holds one token when queue may be non-empty
	queue    chan datagram
	free     sync.Pool
	verifier *transport.Verifier
	groups   groups

	failing atomic.Pointer[error] // why nothing can be read at present

	closed atomic.Bool
	stats  transport.LinkCounters
}

type datagram struct {
	buf *[transport.MaxSealedLen + 1]byte // one more, to notice what is too long
	n   int
	src netip.AddrPort
	header
	group *member // by which it came; nil = the link's own socket
}

var _ transport.Link = (*Link)(nil)

// Open binds a link to addr, which must be a unicast address of this machine. A
// link-local IPv6 address needs its zone if several interfaces have it. The
// error is an *OpenError. ReusePort is not supported here.
func Open(addr netip.Addr, c Config) (*Link, error) {
	at, scope, err := c.place(addr)
	if err != nil {
		return nil, err
	}
	if c.ReusePort {
		return nil, &OpenError{Addr: at, Op: "share the port", Err: errors.ErrUnsupported}
	}
	addr = at.Addr()
	network := "udp6"
	if addr.Is4() {
		network = "udp4"
	}
	conn, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(at))
	if err != nil {
		return nil, &OpenError{Addr: at, Op: "bind", Err: err,
			Hint: "the port may be taken by another process, or the address is not local; local are " + localAddrs()}
	}
	s, err := newIPSocket(conn, addr.Is4())
	if err != nil {
		conn.Close()
		return nil, &OpenError{Addr: at, Op: "have packets sent unfragmented", Err: err}
	}
	// What the system grants is not known; a refusal leaves its default.
	_ = conn.SetReadBuffer(c.RecvBuffer)
	_ = conn.SetWriteBuffer(c.SendBuffer)
	l := &Link{
		conn: s, addr: addr, zone: strconv.Itoa(int(scope)), local: netip.AddrPortFrom(addr.WithZone(""), c.Port),
		caps:  transport.Capabilities{Port: c.Port, FullICRC: !addr.Is4(), ECN: s.classes},
		done:  make(chan struct{}),
		ready: make(chan struct{}, 1), queue: make(chan datagram, queueLen),
	}
	l.mtu.init(addr)
	l.groups = groups{recvBuffer: c.RecvBuffer, iface: l.mtu.iface, joined: map[netip.Addr]*member{}}
	if ifi, err := net.InterfaceByIndex(l.mtu.iface); err == nil {
		s.sendBy(ifi)
	}
	l.free.New = func() any { return new([transport.MaxSealedLen + 1]byte) }
	l.verifier = transport.NewVerifier(l.local)
	l.readers.Go(func() { l.readLoop(s, nil) })
	return l, nil
}

// readLoop reads what comes to the link's own socket, or to that of a group.
func (l *Link) readLoop(s *ipSocket, m *member) {
	failed := 0 // in a row
	for {
		d := datagram{buf: l.free.Get().(*[transport.MaxSealedLen + 1]byte)}
		n, src, h, err := s.read(d.buf[:])
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// An ICMP error of an earlier datagram, or a datagram
			// that is too long (Windows). Many of them in a row
			// mean that something is broken.
			l.stats.SocketError()
			l.free.Put(d.buf)
			if failed++; failed > maxRefused {
				why := err // err itself stays off the heap
				l.failing.Store(&why)
				l.Wake()
				if !l.pause(m) {
					return
				}
			}
			continue
		}
		failed = 0
		if l.failing.Load() != nil {
			l.failing.Store(nil)
		}
		if m != nil && h.iface != 0 && h.iface != l.groups.iface {
			l.free.Put(d.buf) // others of this host are members there
			continue
		}
		d.n, d.header, d.group = n, h, m
		d.src = netip.AddrPortFrom(src.Addr().Unmap().WithZone(""), src.Port())
		select {
		case l.queue <- d:
		case <-l.done:
			return
		case <-m.gone():
			return
		}
		select {
		case l.ready <- struct{}{}:
		default:
		}
	}
}

// maxRefused is how many errors in a row are those of earlier datagrams.
const maxRefused = 64

// failurePause is how long nothing is read where reading fails.
const failurePause = 100 * time.Millisecond

// pause waits. It reports false when the link is closed, or the group is left.
func (l *Link) pause(m *member) bool {
	t := time.NewTimer(failurePause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.done:
		return false
	case <-m.gone():
		return false
	}
}

// Addr returns the local address, with its zone if it is link-local.
func (l *Link) Addr() netip.Addr { return l.addr }

// Capabilities returns what the link can do.
func (l *Link) Capabilities() transport.Capabilities {
	c := l.caps
	l.mtu.fill(&c)
	return c
}

// ReadLinkMTU reads the MTU of the link's interface; the way to a peer is not
// known on this system.
func (l *Link) ReadLinkMTU(netip.Addr) int {
	return l.mtu.read(func(index int) (int, bool) {
		ifi, err := net.InterfaceByIndex(index)
		if err != nil {
			return 0, false
		}
		return ifi.MTU, true
	})
}

// Wait blocks until a datagram is queued.
func (l *Link) Wait() error {
	if l.closed.Load() {
		return transport.ErrClosed
	}
	if len(l.queue) > 0 {
		return nil
	}
	select {
	case <-l.ready:
		return nil
	case <-l.done:
		return transport.ErrClosed
	}
}

// Wake makes a Wait return.
func (l *Link) Wake() {
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

// Recv takes what is queued, at most one datagram for each buffer of b.
func (l *Link) Recv(b *transport.RxBatch) (int, error) {
	b.Reset()
	if l.closed.Load() {
		return 0, transport.ErrClosed
	}
	if err := l.failing.Load(); err != nil && len(l.queue) == 0 {
		return 0, *err
	}
	buffers, malformed := 0, 0
	for buffers < b.Buffers() {
		var d datagram
		select {
		case d = <-l.queue:
		default:
		}
		if d.buf == nil {
			break
		}
		if d.group.isLeft() {
			l.free.Put(d.buf)
			continue
		}
		data := b.Copy(d.buf[:d.n])
		l.free.Put(d.buf)
		meta, v := transport.RxPacket{Dst: l.local.Addr()}, l.verifier
		if d.group != nil {
			meta.Dst, v = d.group.addr, d.group.verifier
		}
		meta.Src, meta.SrcPort, meta.TrafficClass, meta.HopLimit = d.src.Addr(), d.src.Port(), d.class, d.hops
		malformed += b.SplitFrom(0, data, 0, &meta, v)
		buffers++
	}
	if buffers > 0 {
		l.stats.Received(b, buffers, malformed)
	}
	return b.Len(), nil
}

// Send transmits b, one datagram at a time.
func (l *Link) Send(b *transport.TxBatch) error {
	if l.closed.Load() {
		return transport.ErrClosed
	}
	var fail transport.SendError
	sent, bytes := 0, 0
	for i := range b.Len() {
		r := b.Run(i, false)
		err := l.sendOne(b, &r)
		switch {
		case err == nil:
			sent++
			bytes += len(r.Data)
		case errors.Is(err, net.ErrClosed):
			return transport.ErrClosed
		default:
			fail.Add(i, 1, err)
		}
	}
	l.stats.Sent(sent, sent, bytes)
	l.stats.SendFailed(fail.Failed)
	return fail.Result()
}

var errPath = errors.New("path of another address family or source port")

func (l *Link) sendOne(b *transport.TxBatch, r *transport.Run) error {
	p := r.Path
	if p.Dst.Is4() != l.addr.Is4() || p.SrcPort != 0 && p.SrcPort != l.local.Port() {
		return errPath
	}
	b.Seal(r, l.local)
	dst := p.Dst
	if dst.Is6() && dst.IsLinkLocalUnicast() {
		dst = dst.WithZone(l.zone)
	}
	l.conn.prepare(p)
	_, err := l.conn.WriteToUDPAddrPort(r.Data, netip.AddrPortFrom(dst, p.Port(l.local.Port())))
	if errors.Is(err, dontfrag.ErrTooLong) {
		return fmt.Errorf("%w: %w", transport.ErrTooLong, err)
	}
	return err
}

// Close closes the socket and wakes Wait.
func (l *Link) Close() error {
	if l.closed.Swap(true) {
		return transport.ErrClosed
	}
	close(l.done)
	err := errors.Join(l.conn.Close(), l.groups.close())
	l.readers.Wait()
	return err
}

// Stats returns the counters. RxOverflow is not known on this system.
func (l *Link) Stats() transport.LinkStats { return l.stats.Load() }

// OpenGroup binds one link: ports are not shared here. n must be 1 or less.
func OpenGroup(addr netip.Addr, c Config, n int) ([]*Link, error) {
	if n > 1 {
		return nil, &OpenError{Addr: netip.AddrPortFrom(addr, c.Port), Op: "open a group", Err: errors.ErrUnsupported}
	}
	l, err := Open(addr, c)
	if err != nil {
		return nil, err
	}
	return []*Link{l}, nil
}

// isAbroad reports whether the socket is of another network namespace.
func (l *Link) isAbroad() bool { return false }
