package link

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// Server says how a tool serves. A client comes to an R.
type Server[R any] struct {
	Listen  cm.ListenConfig
	Clients int // it ends after that many clients; 0 means never
	AtOnce  int // clients in service at a time; others are rejected

	// Ready, if not nil, is called once clients can connect.
	Ready func()

	// Serve serves one client. Any host can send a request, so a client
	// counts only when it has done what only a true peer does: then Serve
	// calls admit, which fails where another client was first.
	Serve func(ctx context.Context, r *cm.Request, admit func() error) (R, error)

	// Done, if not nil, is called with what each client has come to, those
	// that were rejected or did not count included, from several goroutines
	// at once.
	Done func(from net.Addr, res R, err error)
}

var (
	errServed  = errors.New("another client was first")
	errCrowded = errors.New("too many clients are in service")
)

// Run serves clients on a port of dev until there were Clients of them, or ctx
// ends. It returns the first error of a client that counts, where Clients is
// not 0: without end, clients come and go.
func (s Server[R]) Run(ctx context.Context, dev *verbs.Device, at netip.AddrPort) error {
	ln, err := cm.Listen(dev, at, s.Listen)
	if err != nil {
		return err
	}
	defer ln.Close()
	accepting, full := context.WithCancelCause(ctx)
	defer full(nil)
	r := &running[R]{Server: s, full: full, waiting: map[*visit]struct{}{}}
	if s.Listen.Type == 0 && !datagrams(s.Listen.Space) {
		ln.Greet(r.greet)
	}
	if s.Ready != nil {
		s.Ready()
	}
	err = r.accept(ctx, accepting, ln)
	ln.Close()
	r.wg.Wait()
	if context.Cause(accepting) == errServed {
		return r.first
	}
	return interop.Cause(ctx, err)
}

func datagrams(s cm.PortSpace) bool { return s == cm.UDP || s == cm.IPoIB }

// running is a server at work.
type running[R any] struct {
	Server[R]
	full context.CancelCauseFunc // ends the listening
	wg   sync.WaitGroup

	mu       sync.Mutex
	open     int                 // visits
	admitted int                 // clients
	waiting  map[*visit]struct{} // those that are not admitted
	first    error
}

// visit is a client in service.
type visit struct {
	cancel   context.CancelCauseFunc
	admitted bool
}

func (r *running[R]) accept(ctx, accepting context.Context, ln *cm.Listener) error {
	for {
		req, err := ln.Accept(accepting)
		if err != nil {
			return err
		}
		vctx, cancel := context.WithCancelCause(ctx)
		v := &visit{cancel: cancel}
		if !r.enter(v) {
			cancel(nil)
			var none R
			r.tell(req, none, Reject(req, errCrowded))
			continue
		}
		r.wg.Go(func() {
			defer cancel(nil)
			res, err := r.Serve(vctx, req, func() error { return r.admit(v) })
			if errors.Is(err, cm.ErrGone) && req.QPN() != 0 {
				err = nil // it was connected, and has left
			}
			if err = interop.Cause(vctx, err); err != nil {
				_ = Reject(req, err) // if it has no answer yet: the peer would wait
			}
			r.leave(v, err)
			r.tell(req, res, err)
		})
	}
}

// greet implements cm.Greeter: nothing is made before a client has shown that
// it is there.
func (r *running[R]) greet(*cm.Greeting) (cm.AcceptConfig, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open >= r.AtOnce {
		return cm.AcceptConfig{}, cm.ErrUndecided // accept rejects it
	}
	return cm.AcceptConfig{}, nil
}

func (r *running[R]) tell(req *cm.Request, res R, err error) {
	if r.Done != nil {
		r.Done(req.RemoteAddr(), res, err)
	}
}

// Reject rejects a request because of an error of this side, which it returns.
func Reject(r *cm.Request, err error) error {
	_ = r.RejectReason(cm.ReasonNoResources, nil) // the peer may have given up
	return err
}

func (r *running[R]) enter(v *visit) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open >= r.AtOnce {
		return false
	}
	r.open++
	r.waiting[v] = struct{}{}
	return true
}

// admit counts a client. With the last one the server stops listening, and the
// others have to go.
func (r *running[R]) admit(v *visit) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v.admitted {
		return nil
	}
	if r.Clients > 0 && r.admitted >= r.Clients {
		return errServed
	}
	v.admitted = true
	r.admitted++
	delete(r.waiting, v)
	if r.admitted == r.Clients {
		r.full(errServed)
		for w := range r.waiting {
			w.cancel(errServed)
		}
	}
	return nil
}

func (r *running[R]) leave(v *visit, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open--
	delete(r.waiting, v)
	if v.admitted && r.first == nil {
		r.first = err
	}
}
