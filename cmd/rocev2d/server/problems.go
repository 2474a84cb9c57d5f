package server

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"
)

// Problem is something that went wrong, with what it means.
type Problem struct {
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Count   int       `json:"count"` // times that the same happened
	Device  string    `json:"device,omitempty"`
	Source  string    `json:"source"`            // "event", or the name of a target or a service
	What    string    `json:"what"`              // what happened
	Peer    string    `json:"peer,omitempty"`    // the other end
	Meaning string    `json:"meaning,omitempty"` // in words
	Remedy  string    `json:"remedy,omitempty"`  // what to do
}

// maxProblems is how many are kept, the latest.
const maxProblems = 256

// problems are the latest errors. The same error again is counted, and comes
// first.
type problems struct {
	mu    sync.Mutex
	list  []Problem // the latest last
	total uint64
}

// maxText is how much of a text that a peer had a part in is kept.
const maxText = 400

func clip(s string) string {
	if len(s) > maxText {
		return s[:maxText] + "…"
	}
	return s
}

func (p *problems) add(now time.Time, pr Problem) {
	pr.First, pr.Last, pr.Count = now, now, 1
	pr.What, pr.Peer = clip(pr.What), clip(pr.Peer)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total++
	same := func(o Problem) bool {
		return o.Source == pr.Source && o.Device == pr.Device && o.What == pr.What && o.Peer == pr.Peer
	}
	if i := slices.IndexFunc(p.list, same); i >= 0 {
		pr.First, pr.Count = p.list[i].First, p.list[i].Count+1
		p.list = slices.Delete(p.list, i, i+1)
	}
	if len(p.list) == maxProblems {
		p.list = slices.Delete(p.list, 0, 1)
	}
	p.list = append(p.list, pr)
}

// latest returns them, the newest first, and how many there were in all.
func (p *problems) latest() (list []Problem, total uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list = slices.Clone(p.list)
	slices.Reverse(list)
	return list, p.total
}

// errDraining refuses a client of a daemon that ends.
var errDraining = errors.New("the daemon is about to end")

// errCutOff is what became of a client that was there when the daemon ended.
var errCutOff = errors.New("cut off: the daemon has ended")

// errNetClosed is what a connection that this side has closed says.
var errNetClosed = net.ErrClosed
