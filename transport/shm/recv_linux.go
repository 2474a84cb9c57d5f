//go:build !portable

package shm

import (
	"slices"

	"github.com/gosoftroce/rocev2/transport"
)

const (
	takeRuns  = 64        // of one Recv
	takeBytes = 128 << 10 // after which no other run is begun

	// udpEvery is after how many calls UDP is looked at, too, while there
	// is something in memory.
	udpEvery = 16

	// A look at the socket is a system call. While packets come through
	// memory, a call that finds nothing there passes over UDP, but not
	// udpSkip times in a row.
	udpSkip   = 8
	recentFor = 1000 // calls that a packet counts as recent

	// heldMost is how many calls that receive by UDP go before a packet
	// that was sent after others by UDP: those may be of other peers, and
	// never end.
	heldMost = 64
)

// Recv takes what is in the memory, and else what has come by UDP.
func (l *Link) Recv(b *transport.RxBatch) (int, error) {
	r := &l.rx
	if len(*l.conns.Load()) == 0 {
		return l.Link.Recv(b)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.closed.Load() {
		b.Reset()
		return 0, transport.ErrClosed
	}
	list := l.release()
	if r.served < udpEvery {
		b.Reset()
		n, behind := l.takeAll(list, b)
		if n > 0 {
			r.served++
			r.recent = recentFor
			return n, nil
		}
		if !behind && r.pass() {
			return 0, nil
		}
	}
	r.served, r.vain = 0, 0
	n, err := l.Link.Recv(b)
	l.observe(err)
	if n > 0 || err != nil {
		if r.held++; r.held >= heldMost {
			r.letPass(list)
		}
		return n, err
	}
	r.letPass(list)
	n, _ = l.takeAll(list, b)
	return n, nil
}

// letPass has connections go on that wait for what came by UDP.
func (r *receiver) letPass(list []*conn) {
	r.held = 0
	for _, c := range list {
		if c.cons.behind {
			c.cons.behind, c.cons.passUDP = false, true
		}
	}
}

// pass reports whether a call that has found nothing in memory ends there.
func (r *receiver) pass() bool {
	if r.recent == 0 || r.waited.Swap(false) {
		return false
	}
	r.recent--
	r.vain++
	return r.vain < udpSkip
}

// takeAll takes from all connections in turn. The second result reports that
// some packet waits for those that went by UDP before.
func (l *Link) takeAll(list []*conn, b *transport.RxBatch) (n int, behind bool) {
	r := &l.rx
	runs, bytes := 0, 0
	for i := range list {
		c := list[(r.first+i)%len(list)]
		if !c.cons.ready() {
			continue
		}
		t, err := c.cons.take(b, takeRuns-runs, takeBytes-bytes)
		if err != nil {
			c.cons.stopped.Store(true)
			c.broken(err)
		}
		runs, bytes = runs+t.runs, bytes+t.bytes
		behind = behind || c.cons.behind
		if runs >= takeRuns || bytes >= takeBytes {
			break
		}
	}
	if runs > 0 {
		r.first++
		l.stats.Received(b, runs, 0)
		l.stats.ReceivedShared(b.Len())
	}
	return b.Len(), behind
}

// release gives back what the last call has taken, and forgets the connections
// that have ended and have nothing left. It returns the others: the memory of
// those may be that of another connection by now.
func (l *Link) release() []*conn {
	for _, c := range *l.conns.Load() {
		c.cons.release()
		if c.dead.Load() && !c.cons.ready() {
			l.forget(c)
			c.unmap()
		}
	}
	return *l.conns.Load()
}

// forget takes c out of those that Recv looks at.
func (l *Link) forget(c *conn) {
	l.dev.mu.Lock()
	defer l.dev.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(*l.conns.Load()), func(o *conn) bool { return o == c })
	l.conns.Store(&list)
}
