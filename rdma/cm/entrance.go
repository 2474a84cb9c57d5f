package cm

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/rdma/secure"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// controlService is the service ID of control connections to a port: one of
// those that IBTA leaves to the owner of a system (A3.2.3.2), with the vendor
// ID of this software.
func controlService(of mad.ServiceID) mad.ServiceID {
	return 0x02<<56 | mad.ServiceID(Vendor)<<32 | of
}

// controlled returns the service whose control connections have a service ID,
// and false if it is of none.
func controlled(service mad.ServiceID) (mad.ServiceID, bool) {
	of := service & 0xffffffff
	return of, service == controlService(of)
}

// controlHello is the private data of the request for a control connection:
// what it is, and the version of what goes over it.
var controlHello = []byte("secured by TLS\x00\x01")

// controlTerms are how a control connection is accepted.
var controlTerms = AcceptConfig{ResponderResources: verbs.Set(0), InitiatorDepth: verbs.Set(0), Access: secure.Access}

// mostControls is how many handshakes a listener has at once, and how many
// control connections that wait for a request. Beyond that the oldest ends.
const mostControls = 256

var (
	errOnlySecured = errors.New("this listener takes secured connections alone: dial with a TLS configuration")
	errNotSecured  = errors.New("this listener does not secure connections: it has no TLS configuration")
	errForeign     = errors.New("the request for a control connection is of another version of this software")
)

// entrance takes the control connections of a listener with a configuration of
// TLS. The program does not see them.
type entrance struct {
	l      *Listener // what their requests are for; the program has another one
	config *tls.Config
	told   func(net.Addr, error) // of handshakes that fail; or nil

	// Guarded by the lock of the manager:
	serving int                   // handshakes, those too that were given up a moment ago
	busy    []*context.CancelFunc // of handshakes, the oldest first
	waiting []*control            // for a request, the oldest first
	closed  bool
}

// openEntrance opens the entrance of a listener on an address. The manager is
// not locked.
func (k *controls) openEntrance(addr Addr, config *tls.Config, told func(net.Addr, error)) (*entrance, error) {
	m := k.m
	en := &entrance{config: config, told: told}
	en.l = &Listener{m: m, addr: addr, cfg: ListenConfig{Space: addr.Space, Type: verbs.RC, TLS: config}}
	service := en.service()
	if err := m.ports.reserveControl(service); err != nil {
		return nil, &PortError{Space: addr.Space, Port: addr.Port(), Owner: err}
	}
	if err := m.listen(service, mostControls, en); err != nil {
		m.ports.releaseControl(service)
		return nil, err
	}
	h := &greeting{l: en.l, greet: en.greet}
	m.lock()
	defer m.unlock()
	if !m.closed {
		m.agent.Greet(service, h.answer)
	}
	return en, nil
}

func (en *entrance) service() mad.ServiceID { return controlService(en.l.service()) }

// greet decides about a request for a control connection.
func (en *entrance) greet(g *Greeting) (AcceptConfig, error) {
	if !bytes.Equal(bytes.TrimRight(g.PrivateData, "\x00"), controlHello) {
		return AcceptConfig{}, errForeign
	}
	return controlTerms, nil
}

// close ends the handshakes, and what waits for a request. The manager is
// locked. Connections that there are, and requests, keep their own. patience is
// how soon there is another listener.
func (en *entrance) close(patience time.Duration) {
	if en == nil || en.closed {
		return
	}
	en.closed = true
	m := en.l.m
	m.expect(en.service(), patience)
	m.ports.releaseControl(en.service())
	for _, cancel := range en.busy {
		(*cancel)()
	}
	for len(en.waiting) > 0 {
		c := en.waiting[0]
		en.waiting = en.waiting[1:]
		if !m.closed && !m.agent.Busy(c.path()) {
			c.end()
		}
	}
}

// over implements sink.
func (en *entrance) over() {
	en.closed = true
	for _, cancel := range en.busy {
		(*cancel)()
	}
}

// event implements sink: a peer is there that asks for a control connection.
func (en *entrance) event(e *agent.Event) {
	var a asked
	m := en.l.m
	reason, info := a.of(en.l, e)
	if reason == 0 && (e.Path.Control != 0 || en.serving >= 2*mostControls) {
		reason = ReasonNoResources
	}
	if reason != 0 {
		verbs.HCA(m.dev).ReleaseQPN(e.QPN)
		m.refuse(e, reason, info)
		return
	}
	r := newRequest(en.l, e, &a)
	m.ids[r.id] = r
	m.agent.Take(r.id)
	if len(en.busy) >= mostControls {
		(*en.busy[0])()
		en.busy = en.busy[1:]
	}
	en.serving++
	ctx, cancel := m.tasks.WithTimeout(context.Background(), secure.Time)
	en.busy = append(en.busy, &cancel)
	m.tasks.Go(func() {
		en.serve(ctx, r)
		m.lock()
		defer m.unlock()
		cancel()
		en.serving--
		en.busy = slices.DeleteFunc(en.busy, func(b *context.CancelFunc) bool { return b == &cancel })
	})
}

// serve has the handshake of a control connection.
func (en *entrance) serve(ctx context.Context, r *Request) {
	c, err := newControl(r.m, r.number, en)
	if err != nil {
		_ = r.Reject(nil)
		return
	}
	c.peer = r.remote.Addr()
	if c.conn, err = r.Accept(ctx, c.qp, controlTerms); err != nil {
		c.destroy()
		return
	}
	if c.session, err = secure.Server(ctx, c.toSecure(ctx), en.config); err == nil {
		err = r.m.controls.enter(c)
	}
	if err == nil {
		return
	}
	c.giveUp(ctx)
	if en.told != nil && ctx.Err() != context.Canceled { // else this side has given it up
		en.told(c.conn.RemoteAddr(), err)
	}
}

// giveUp ends a control connection that was not secured. As long as ctx allows
// what TLS says last goes first, and the side that has accepted leaves the
// other one a moment to read it.
func (c *control) giveUp(ctx context.Context) {
	ctx, cancel := c.m.tasks.WithTimeout(ctx, farewellWait)
	defer cancel()
	for (!c.sent() || c.from != nil && !c.hasFailed()) && c.bell.Wait(ctx) == nil {
	}
	c.conn.Close()
	c.destroy()
}

// wait takes a control connection that waits for a request, locked.
func (en *entrance) wait(c *control) {
	if !slices.Contains(en.waiting, c) {
		en.waiting = append(en.waiting, c)
	}
	if len(en.waiting) <= mostControls {
		return
	}
	m := en.l.m
	en.waiting = slices.DeleteFunc(en.waiting, func(c *control) bool { return m.agent.Busy(c.path()) })
	if len(en.waiting) > mostControls {
		en.waiting[0].end()
	}
}

// leave takes it back, locked.
func (en *entrance) leave(c *control) {
	if i := slices.Index(en.waiting, c); i >= 0 {
		en.waiting = slices.Delete(en.waiting, i, i+1)
	}
}

// admit returns why a request that comes a way is not for a listener with an
// entrance, or with none. The manager is locked.
func (en *entrance) admit(m *manager, path *agent.Path) error {
	c := m.controls.of[path.Control]
	switch {
	case en == nil && path.Control == 0:
		return nil
	case en == nil:
		return errNotSecured
	case c == nil || c.from != en:
		return errOnlySecured
	}
	return nil
}

// guard has requests that come another way refused, and then asks next.
func (en *entrance) guard(m *manager, next agent.Greeter) agent.Greeter {
	return func(path *agent.Path, req *mad.REQ) (*mad.REP, *mad.REJ) {
		err := en.admit(m, path)
		switch {
		case err != nil:
			return nil, refusal(err, ECE(req.ECE))
		case next == nil:
			return nil, nil
		}
		return next(path, req)
	}
}

// refusal returns how a request for a service that has no listener is rejected,
// nil for the usual way.
func (k *controls) refusal(service mad.ServiceID) *mad.REJ {
	of, ok := controlled(service)
	if !ok || k.m.listeners[of] == nil {
		return nil
	}
	return refusal(errNotSecured, ECE(own))
}

// ErrNotSecured is what the error of a dial with a TLS configuration wraps if
// the listener has none. Nothing of the program was sent.
var ErrNotSecured = errors.New("cm: the listener does not secure connections")

// notSecured says what it means that a request for a control connection was
// rejected.
func notSecured(err error) error {
	var rejected *RejectedError
	switch {
	case !errors.As(err, &rejected):
		return err
	case rejected.said() == errNotSecured.Error():
		return fmt.Errorf("%w: %w", ErrNotSecured, err)
	case rejected.Reason == ReasonInvalidService:
		return fmt.Errorf("%w; or what listens there does not secure connections", err)
	}
	return err
}
