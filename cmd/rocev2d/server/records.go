package server

import (
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/internal/loglimit"
)

// records is what the daemon remembers of its clients, and of what went wrong.
// It decides whether one more client is taken.
type records struct {
	log      *slog.Logger
	visits   *visits
	problems problems
	logged   loglimit.Limit // of problems
	draining atomic.Bool    // no client is taken any more
	cutOff   atomic.Bool    // clients that are still there are cut off
}

func newRecords(log *slog.Logger) *records {
	r := &records{log: log, visits: newVisits()}
	r.visits.onEnd = func(v Visit, err error) {
		host := v.Peer
		if h, _, err := net.SplitHostPort(v.Peer); err == nil {
			host = h
		}
		r.problem(Problem{Device: v.Device, Source: v.Target, What: err.Error(), Peer: host})
	}
	return r
}

// admit records a client, unless there are too many or the daemon ends.
func (r *records) admit(kind, device string, peer net.Addr, most int) (*Visit, error) {
	if r.draining.Load() {
		return nil, errDraining
	}
	return r.visits.begin(time.Now(), kind, device, peer, most)
}

// problem records an error, and logs it.
func (r *records) problem(p Problem) {
	explain(&p)
	now := time.Now()
	r.problems.add(now, p)
	hidden, ok := r.logged.Allow(now)
	if !ok {
		return
	}
	if hidden > 0 {
		r.log.Warn("too many problems for the log; the list of problems counts them all", "left out", hidden)
	}
	r.log.Warn(clip(p.What), "source", p.Source, "device", p.Device, "peer", p.Peer, "meaning", p.Meaning, "remedy", p.Remedy)
}
