package owner

import (
	"io"
	"slices"
	"sync"
	"time"
)

const (
	// mostGuests is how many connections there are that have no lease yet,
	// and guestsOfUser how many of one user.
	mostGuests   = 64
	guestsOfUser = 8
	// patience is how long one of them may take to ask.
	patience = 5 * time.Second
)

// guests are the connections that have no lease yet. A new one always has a
// place: when its user has as many as it may have, or there are too many, the
// oldest silent one of that user, or of all, goes. One that has asked is about
// to be served, which the new one waits for. So silent connections keep none
// out, and many that ask at once are all served.
type guests struct {
	mu    sync.Mutex
	all   []*guest // the oldest first
	left  sync.Cond
	ended bool
}

// guest is one of them.
type guest struct {
	uid   uint32
	conn  io.Closer
	asked func() bool // reports whether something has come from it
}

// enter gives a connection a place, and closes the one whose place that was.
func (g *guests) enter(n *guest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for !g.ended {
		rivals := func(o *guest) bool { return o.uid == n.uid }
		if g.count(rivals) < guestsOfUser {
			if rivals = func(*guest) bool { return true }; g.count(rivals) < mostGuests {
				break
			}
		}
		victim := slices.IndexFunc(g.all, func(o *guest) bool { return rivals(o) && !o.asked() })
		if victim >= 0 {
			g.all[victim].conn.Close()
			g.all = slices.Delete(g.all, victim, victim+1)
			continue
		}
		g.left.L = &g.mu
		g.left.Wait()
	}
	g.all = append(g.all, n)
}

func (g *guests) count(of func(*guest) bool) (n int) {
	for _, o := range g.all {
		if of(o) {
			n++
		}
	}
	return n
}

// leave reports whether a connection still has its place, and takes it away: a
// lease needs none.
func (g *guests) leave(n *guest) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.all, n)
	if i >= 0 {
		g.all = slices.Delete(g.all, i, i+1)
		g.left.Broadcast()
	}
	return i >= 0
}

// closeAll ends all of them.
func (g *guests) closeAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	g.left.Broadcast()
	for _, o := range g.all {
		o.conn.Close()
	}
}
