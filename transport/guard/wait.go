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

// packet is one that waits, BTH to pad.
type packet struct {
	data  []byte
	path  *transport.Path
	until time.Time
}

// waiting is packets to peers without keys.
type waiting struct {
	of    map[netip.Addr][]packet
	bytes int
	timer *time.Timer // nil: none has waited yet
	over  bool        // the link is closed
}

// keep has a packet wait, if there is room, and asks for keys.
func (l *Link) keep(data []byte, path *transport.Path) {
	l.want(path.Dst, ToSend)
	w := &l.wait
	if w.over || len(w.of[path.Dst]) >= WaitPackets || w.bytes+len(data) > WaitBytes {
		l.counters.noKeys.Add(1)
		return
	}
	l.counters.waited.Add(1)
	w.bytes += len(data)
	w.of[path.Dst] = append(w.of[path.Dst], packet{bytes.Clone(data), path, time.Now().Add(WaitTime)})
	switch {
	case w.timer == nil:
		w.timer = time.AfterFunc(waitLook, l.look)
	case len(w.of) == 1 && len(w.of[path.Dst]) == 1:
		w.timer.Reset(waitLook)
	}
}

// look sends what has its keys, and loses what has waited for too long.
func (l *Link) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wait.over {
		return
	}
	l.tx.refresh(l.cfg.Table)
	now := time.Now()
	for addr, list := range l.wait.of {
		if l.tx.peers[addr] != nil {
			l.release(addr)
			continue
		}
		n := 0
		for n < len(list) && now.After(list[n].until) {
			l.wait.bytes -= len(list[n].data)
			n++
		}
		l.counters.noKeys.Add(uint64(n))
		if l.wait.of[addr] = list[n:]; n == len(list) {
			delete(l.wait.of, addr)
			continue
		}
		l.want(addr, ToSend)
	}
	if len(l.wait.of) > 0 {
		l.wait.timer.Reset(waitLook)
	}
}

// release sends what has waited for keys of a peer, which are there.
func (l *Link) release(addr netip.Addr) {
	list := l.wait.of[addr]
	delete(l.wait.of, addr)
	b := transport.NewTxBatch(WaitBytes)
	for _, p := range list {
		l.wait.bytes -= len(p.data)
		if room := b.Room(); room != nil {
			b.Commit(copy(room, p.data), p.path)
		}
	}
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
