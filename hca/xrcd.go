package hca

import (
	"fmt"
	"sync"

	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

// XRCD is an XRC domain (IBTA A14): requests to a target queue pair of the
// domain reach the shared receive queues of the domain, and no others. Its
// methods may be called from any goroutine.
type XRCD struct {
	owner *Context

	mu      sync.RWMutex
	srqs    map[uint32]*SRQ // by number
	targets int             // queue pairs
	closed  bool
}

// OpenXRCD makes an XRC domain.
func (c *Context) OpenXRCD() (*XRCD, error) {
	x := &XRCD{owner: c, srqs: map[uint32]*SRQ{}}
	if err := c.adopt(x, kindXRCD); err != nil {
		return nil, err
	}
	return x, nil
}

// SRQ implements qp.XRCDomain. It is called with a shard locked.
func (x *XRCD) SRQ(number uint32) (qp.RecvSource, *memreg.PD) {
	x.mu.RLock()
	s := x.srqs[number]
	x.mu.RUnlock()
	if s == nil {
		return nil, nil
	}
	return s, s.pd.core
}

// add adds a shared receive queue under a random number, which a peer must not
// be able to guess. No other queue of the device has it (IBTA A14).
func (x *XRCD) add(s *SRQ) error {
	for {
		n := x.owner.dev.random() & uint32(rocev2.QPNMask)
		if n == 0 || !x.owner.dev.srqNumbers.take(n) {
			continue
		}
		x.mu.Lock()
		closed := x.closed
		if !closed {
			s.number = n
			x.srqs[n] = s
		}
		x.mu.Unlock()
		if closed {
			x.owner.dev.srqNumbers.free(n)
			return fmt.Errorf("XRC domain: %w", ErrClosed)
		}
		return nil
	}
}

// remove takes a shared receive queue out.
func (x *XRCD) remove(s *SRQ) {
	x.mu.Lock()
	delete(x.srqs, s.number)
	x.mu.Unlock()
	x.owner.dev.srqNumbers.free(s.number)
}

// srqNumbers are the numbers of the shared receive queues of XRC.
type srqNumbers struct {
	mu    sync.Mutex
	taken map[uint32]struct{}
}

// take reserves a number. It reports false if another queue has it.
func (t *srqNumbers) take(n uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, taken := t.taken[n]; taken {
		return false
	}
	if t.taken == nil {
		t.taken = map[uint32]struct{}{}
	}
	t.taken[n] = struct{}{}
	return true
}

func (t *srqNumbers) free(n uint32) {
	t.mu.Lock()
	delete(t.taken, n)
	t.mu.Unlock()
}

// attach counts a target queue pair of o.
func (x *XRCD) attach(o *Context) error {
	if err := x.owner.usableBy(o); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return ErrClosed
	}
	x.targets++
	return nil
}

// detach ends what attach began.
func (x *XRCD) detach() {
	x.mu.Lock()
	x.targets--
	x.mu.Unlock()
}

// Close destroys the domain. It is refused while there are shared receive
// queues or target queue pairs in it (ErrInUse), and can be called again.
func (x *XRCD) Close() error { return x.close(false) }

func (x *XRCD) close(force bool) error {
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		return nil
	}
	if srqs, targets := len(x.srqs), x.targets; !force && srqs+targets > 0 {
		x.mu.Unlock()
		return fmt.Errorf("%w: shared receive queues in it: %d, target queue pairs: %d; close them first",
			ErrInUse, srqs, targets)
	}
	x.closed = true
	x.mu.Unlock()
	x.owner.release(x, kindXRCD)
	return nil
}

func (*XRCD) kind() string { return "XRCD" }
