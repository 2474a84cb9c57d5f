package hca

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
)

// SRQ is a shared receive queue (IBTA 10.2.9). Queue pairs of any shard take
// from it, each under its own shard's lock, so it has a lock of its own. Its
// methods may be called from any goroutine.
type SRQ struct {
	pd     *PD
	xrcd   *XRCD  // that it is in; or nil
	number uint32 // in xrcd

	userData atomic.Value // the layer above's; set once, but an event may come before

	mu     sync.Mutex
	ring   qp.SRQ
	users  int  // queue pairs that take from it
	raised bool // an event was
	failed bool // its protection domain is closed
	closed bool
}

// SRQConfig is what a shared receive queue is made for.
type SRQConfig struct {
	MaxWR  int // receives that it holds
	MaxSGE int // entries of a receive's scatter/gather list
	Limit  int // see SRQ.Modify; 0: none

	// XRCD makes it a queue for the targets of an XRC domain, whose
	// messages complete to CQ. Both are set or none is.
	XRCD *XRCD
	CQ   *CQ
}

// SRQAttr are the attributes of a shared receive queue.
type SRQAttr struct {
	MaxWR  int // receives that it holds
	MaxSGE int // entries of a receive's scatter/gather list
	Limit  int // armed limit; 0: none
	Posted int // receives that it has now
}

// CreateSRQ makes a shared receive queue. The memory of its receives is that of
// the domain.
func (pd *PD) CreateSRQ(c SRQConfig) (*SRQ, error) {
	if err := checkRange("MaxWR", c.MaxWR, 1, pd.owner.dev.limits.SRQWR); err != nil {
		return nil, err
	}
	if err := checkRange("MaxSGE", c.MaxSGE, 1, pd.owner.dev.limits.SRQSGE); err != nil {
		return nil, err
	}
	if err := checkRange("Limit", c.Limit, 0, c.MaxWR); err != nil {
		return nil, err
	}
	o := pd.owner
	sink, err := o.sinkOf(&c)
	if err != nil {
		return nil, err
	}
	if err := o.reserve(kindSRQ); err != nil {
		return nil, err
	}
	s := &SRQ{pd: pd, xrcd: c.XRCD}
	s.ring.Init(c.MaxWR, c.MaxSGE, pd.core, sink)
	s.ring.SetLimit(c.Limit)
	if err := s.enter(); err != nil {
		o.unreserve(kindSRQ)
		return nil, err
	}
	return s, nil
}

// sinkOf checks what makes a queue one of XRC, and returns where it completes.
func (c *Context) sinkOf(config *SRQConfig) (qp.CompletionSink, error) {
	switch {
	case config.XRCD == nil && config.CQ == nil:
		return nil, nil
	case config.XRCD == nil:
		return nil, errors.New("CQ is set without XRCD: the receives of a queue that is not of XRC complete where the queue pairs say")
	case config.CQ == nil:
		return nil, errors.New("XRCD is set without CQ, which the receives complete to")
	}
	if err := config.XRCD.owner.usableBy(c); err != nil {
		return nil, fmt.Errorf("XRCD: %w", err)
	}
	if err := config.CQ.usable(c.dev); err != nil {
		return nil, fmt.Errorf("CQ: %w", err)
	}
	if len(c.dev.shards) > 1 { // targets of all shards complete into it
		config.CQ.foreign.Store(true)
	}
	return config.CQ, nil
}

// enter adds the queue to its domains and its context.
func (s *SRQ) enter() error {
	if err := s.pd.enter(s); err != nil {
		return err
	}
	if s.xrcd != nil {
		if err := s.xrcd.add(s); err != nil {
			s.pd.leave(s)
			return err
		}
	}
	err := s.pd.owner.enter(s, kindSRQ)
	if err != nil {
		s.leave()
	}
	return err
}

// leave takes the queue out of its domains.
func (s *SRQ) leave() {
	if s.xrcd != nil {
		s.xrcd.remove(s)
	}
	s.pd.leave(s)
}

// Number returns the number by which peers name the queue; 0 if it is not of
// XRC.
func (s *SRQ) Number() uint32 { return s.number }

// enter adds a shared receive queue to those of the domain.
func (pd *PD) enter(s *SRQ) error {
	pd.mu.Lock()
	defer pd.mu.Unlock()
	if pd.closed {
		return fmt.Errorf("its protection domain: %w", ErrClosed)
	}
	pd.srqs[s] = struct{}{}
	return nil
}

// leave takes a shared receive queue out.
func (pd *PD) leave(s *SRQ) {
	pd.mu.Lock()
	delete(pd.srqs, s)
	pd.mu.Unlock()
}

// SetUserData attaches a value of the layer above, once, before any other use.
func (s *SRQ) SetUserData(v any) { s.userData.Store(v) }

// UserData returns what SetUserData attached.
func (s *SRQ) UserData() any { return s.userData.Load() }

// Next implements qp.RecvSource. It is called with a shard locked.
func (s *SRQ) Next(r *qp.Recv) bool {
	s.mu.Lock()
	ok, limit := s.ring.Next(r)
	if limit {
		s.raise(ib.EventSRQLimit)
	}
	s.mu.Unlock()
	return ok
}

// raise raises an event. The queue is locked, so that its Close takes the event
// out.
func (s *SRQ) raise(e ib.Event) {
	if !s.closed {
		s.raised = true
		s.pd.owner.events.push(event{e, s})
	}
}

// usable reports what keeps the queue from being used. It is locked.
func (s *SRQ) usable() error {
	switch {
	case s.closed:
		return ErrClosed
	case s.failed:
		return fmt.Errorf("its protection domain: %w", ErrClosed)
	}
	return nil
}

// PostRecv posts receive buffers in order. On an error it says how many were
// accepted before the bad one.
func (s *SRQ) PostRecv(wrs []ib.RecvWR) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return 0, err
	}
	for i := range wrs {
		if err := s.ring.Post(&wrs[i]); err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

// Attr returns the attributes. Those of a closed queue are 0.
func (s *SRQ) Attr() SRQAttr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SRQAttr{MaxWR: s.ring.Cap(), MaxSGE: s.ring.MaxSGE(), Limit: s.ring.Limit(), Posted: s.ring.Len()}
}

// Modify resizes the queue, or arms its limit, or both (IBTA 11.2.3.3): nil
// leaves the one as it is. On an error nothing has changed. No receive is lost,
// so the queue becomes no smaller than what is in it, nor than its limit.
//
// Arming has EventSRQLimit raised once, when a message has asked for a receive
// and fewer than limit are left.
func (s *SRQ) Modify(maxWR, limit *int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	if limit == nil {
		armed := s.ring.Limit()
		limit = &armed
	}
	if maxWR == nil {
		depth := s.ring.Cap()
		maxWR = &depth
	}
	if err := checkRange("MaxWR", *maxWR, max(1, s.ring.Len()), s.pd.owner.dev.limits.SRQWR); err != nil {
		return err
	}
	if err := checkRange("Limit", *limit, 0, *maxWR); err != nil {
		return err
	}
	if *maxWR != s.ring.Cap() {
		s.ring.Resize(*maxWR)
	}
	s.ring.SetLimit(*limit)
	return nil
}

// attach counts a queue pair of o that is to take from the queue.
func (s *SRQ) attach(o *Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.pd.owner.usableBy(o); err != nil {
		return err
	}
	if err := s.usable(); err != nil {
		return err
	}
	if s.xrcd != nil {
		return errors.New("it is of an XRC domain: its messages come through XRC targets")
	}
	s.users++
	return nil
}

// detach ends what attach began.
func (s *SRQ) detach() {
	s.mu.Lock()
	s.users--
	s.mu.Unlock()
}

// fail records that the protection domain has gone: no memory of a receive can
// be reached any more (IBTA 11.6.3.2).
func (s *SRQ) fail() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.failed && !s.closed {
		s.failed = true
		s.raise(ib.EventSRQError)
	}
}

// Close destroys the queue with all receives that are in it; they do not
// complete. It is refused while queue pairs take from the queue (ErrInUse), and
// can be called again.
func (s *SRQ) Close() error { return s.close(false) }

func (s *SRQ) close(force bool) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	if n := s.users; n > 0 && !force {
		s.mu.Unlock()
		return fmt.Errorf("%w: queue pairs that take from it: %d; close them first", ErrInUse, n)
	}
	s.closed = true
	s.ring = qp.SRQ{}
	raised := s.raised
	s.mu.Unlock()
	s.leave()
	if raised {
		s.pd.owner.events.forget(s)
	}
	s.pd.owner.release(s, kindSRQ)
	return nil
}

func (*SRQ) kind() string { return "SRQ" }
