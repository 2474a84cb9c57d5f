package guard

import (
	"bytes"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/transport"
)

// What waits for keys at most.
const (
	WaitPackets = 64        // for one peer
	WaitBytes   = 256 << 10 // in all
	WaitTime    = 2 * time.Second

	waitLook = 2 * time.Millisecond // how often it is looked whether there are keys
)

// queue has the packets that wait for keys of a peer.
type queue struct {
	packets []packet
	asked   time.Time // for keys
}

// packet is one that waits, BTH to pad.
type packet struct {
	data  []byte
	path  *transport.Path
	until time.Time
}

// waiting is packets to peers without keys.
type waiting struct {
	of    map[netip.Addr]*queue // none is empty
	bytes int
	timer *time.Timer // nil: none has waited yet
	over  bool        // the link is closed
}

// keep has a packet wait, if there is room, and asks for keys.
func (l *Link) keep(data []byte, path *transport.Path) {
	w := &l.wait
	q := w.of[path.Dst]
	if q == nil {
		q = &queue{}
	}
	l.ask(path.Dst, q) // also if there is no room: the next packet may find keys
	if w.over || len(q.packets) >= WaitPackets || w.bytes+len(data) > WaitBytes {
		l.counters.noKeys.Add(1)
		return
	}
	l.counters.waited.Add(1)
	w.bytes += len(data)
	q.packets = append(q.packets, packet{bytes.Clone(data), path, time.Now().Add(WaitTime)})
	w.of[path.Dst] = q
	switch {
	case w.timer == nil:
		w.timer = time.AfterFunc(waitLook, l.look)
	case len(w.of) == 1 && len(q.packets) == 1:
		w.timer.Reset(waitLook)
	}
}

// ask asks for the keys that packets wait for, if it has not done so of late.
func (l *Link) ask(peer netip.Addr, q *queue) {
	if pass(&q.asked, askPause) {
		l.cfg.Want(peer, ToSend)
	}
}

// look sends what has its keys, and loses what has waited for too long.
func (l *Link) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wait.over {
		return
	}
	l.refresh()
	now := time.Now()
	for addr, q := range l.wait.of {
		if l.tx.peers[addr] != nil {
			l.release(addr)
			continue
		}
		n := 0
		for n < len(q.packets) && now.After(q.packets[n].until) {
			l.wait.bytes -= len(q.packets[n].data)
			n++
		}
		l.counters.noKeys.Add(uint64(n))
		if q.packets = q.packets[n:]; len(q.packets) == 0 {
			delete(l.wait.of, addr)
			continue
		}
		l.ask(addr, q)
	}
	if len(l.wait.of) > 0 {
		l.wait.timer.Reset(waitLook)
	}
}

// release sends what has waited for keys of a peer, which are there. What fails
// is counted: the caller that sent it has no error of it.
func (l *Link) release(addr netip.Addr) {
	list := l.wait.of[addr].packets
	delete(l.wait.of, addr)
	callers := l.tx.fail
	l.tx.fail = transport.SendError{}
	b := transport.NewTxBatch(WaitBytes)
	for _, p := range list {
		l.wait.bytes -= len(p.data)
		room := b.Room()
		if room == nil {
			l.sendWaited(b, addr)
			b.Reset()
			room = b.Room()
		}
		b.Commit(copy(room, p.data), p.path)
	}
	l.sendWaited(b, addr)
	l.counters.noKeys.Add(uint64(l.tx.fail.Failed))
	l.tx.fail = callers
}

func (l *Link) sendWaited(b *transport.TxBatch, addr netip.Addr) {
	for i := 0; i < b.Len(); {
		last, err := l.sendSealed(b, i, l.tx.peers[addr])
		if err != nil {
			return // the link is closed
		}
		i = last
	}
}

// end loses what waits.
func (w *waiting) end() {
	w.over = true
	clear(w.of)
	if w.timer != nil {
		w.timer.Stop()
	}
}
