package qptest

import (
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
)

// sharedReceives is a shared receive queue that tells the scene of its limit.
type sharedReceives struct {
	qp.SRQ
	s    *scene
	name string
	pd   *memreg.PD
}

// newSharedReceives makes one of 16 receives.
func newSharedReceives(s *scene, a *actor, sge int) *sharedReceives {
	r := &sharedReceives{s: s, name: a.name, pd: a.node.pd}
	r.Init(16, max(sge, 1), a.node.pd, nil)
	return r
}

// Next implements qp.RecvSource.
func (r *sharedReceives) Next(w *qp.Recv) bool {
	ok, limit := r.SRQ.Next(w)
	if limit {
		r.s.printf("  %s's SRQ has %d left: SRQ_LIMIT_REACHED", r.name, r.Len())
	}
	return ok
}

// cmdSRQ: srq b [size=N] [limit=N]
func (s *scene) cmdSRQ(words []string) error {
	a, rest, err := s.sideWithQP(words)
	if err != nil {
		return err
	}
	w := parseArgs(rest)
	size, limit := uint64(a.srq.Cap()), uint64(a.srq.Limit())
	if err := w.nums(map[string]*uint64{"size": &size, "limit": &limit}); err != nil {
		return err
	}
	if err := w.done(); err != nil {
		return err
	}
	if !a.srq.Resize(int(size)) {
		s.printf("refused")
	}
	a.srq.SetLimit(int(limit))
	s.printf("%d of %d receives, limit %d", a.srq.Len(), a.srq.Cap(), a.srq.Limit())
	return nil
}
