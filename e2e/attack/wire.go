package attack

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/gosoftroce/rocev2/transport"
)

// Wire sends datagrams that claim to come from anywhere. Send may be called
// from several goroutines; it may keep b.
type Wire interface {
	Send(src, dst netip.AddrPort, b []byte) error
	Close() error
}

// injector is a Wire that puts datagrams into links, as if they had come out of
// the network: what no raw socket is needed for. Nothing is lost, Send waits.
type injector struct {
	mu    sync.Mutex
	links map[netip.Addr][]*injected // one for each socket of a host
}

func newInjector() *injector { return &injector{links: map[netip.Addr][]*injected{}} }

// wrap returns a link that receives forged packets beside those of l.
func (w *injector) wrap(l transport.Link) transport.Link {
	addr := l.Addr().Unmap()
	i := &injected{Wrapper: transport.Wrapper{Link: l}, verifier: transport.NewVerifier(netip.AddrPortFrom(addr, l.Capabilities().Port)),
		room: make(chan struct{}, injectQueue), done: make(chan struct{})}
	w.mu.Lock()
	w.links[addr] = append(w.links[addr], i)
	w.mu.Unlock()
	return i
}

func (w *injector) Send(src, dst netip.AddrPort, b []byte) error {
	w.mu.Lock()
	all := w.links[dst.Addr()]
	w.mu.Unlock()
	if len(all) == 0 {
		return fmt.Errorf("attack: no link has the address %v", dst.Addr())
	}
	const lowByte = 7 // of the queue pair, in a BTH and in an SPI
	i := 0
	if len(b) > lowByte {
		i = int(b[lowByte]) % len(all)
	}
	return all[i].put(src, b)
}

func (w *injector) Close() error { return nil }

// injectQueue datagrams wait for a link; a batch takes some of them.
const (
	injectQueue = 256
	injectBatch = 64
)

// injected is a link with a second entrance.
type injected struct {
	transport.Wrapper
	verifier *transport.Verifier // belongs to Recv
	room     chan struct{}       // holds a token for every datagram in queue
	done     chan struct{}
	once     sync.Once

	mu    sync.Mutex
	queue []datagram
}

type datagram struct {
	src  netip.AddrPort
	data []byte
}

func (l *injected) put(src netip.AddrPort, b []byte) error {
	select {
	case l.room <- struct{}{}:
	case <-l.done:
		return transport.ErrClosed
	}
	l.mu.Lock()
	l.queue = append(l.queue, datagram{src, b})
	l.mu.Unlock()
	l.Link.Wake()
	return nil
}

// Recv takes what the inner link has, then forged datagrams, which are checked
// as those are.
func (l *injected) Recv(b *transport.RxBatch) (int, error) {
	n, err := l.Link.Recv(b)
	if err != nil {
		return n, err
	}
	l.mu.Lock()
	k := min(len(l.queue), injectBatch)
	take := append([]datagram(nil), l.queue[:k]...)
	l.queue = append(l.queue[:0], l.queue[k:]...)
	more := len(l.queue) > 0
	l.mu.Unlock()
	for _, d := range take {
		<-l.room
		b.Split(d.data, 0, transport.RxPacket{Src: d.src.Addr(), Dst: l.Addr().WithZone(""), SrcPort: d.src.Port()}, l.verifier)
	}
	if more {
		l.Link.Wake()
	}
	return b.Len(), nil
}

func (l *injected) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Link.Close()
}
