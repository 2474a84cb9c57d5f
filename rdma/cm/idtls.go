package cm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// WithTLS has the connection of an ID secured, or those that it listens for:
// see the package documentation. It is for IDs of RC and XRC that do not listen
// or connect yet, on devices with verbs.Config.Sealing, whose queue pairs
// CreateQP makes. What goes wrong with the handshake of Connect is
// EventConnectError.
func WithTLS(config *tls.Config) Option {
	return func(id *ID) error {
		if err := id.state.want("SetOption(WithTLS)", idIdle, idBound, idAddrResolved, idRouteResolved); err != nil {
			return err
		}
		if err := securable(id.terms.typ); config != nil && err != nil {
			return err
		}
		id.terms.tls = config
		return nil
	}
}

// call makes a control connection, and has a function called with what comes of
// it.
func (t *terms) call(m *manager, local, remote Addr, patience time.Duration, called func(*control, error)) (cancel func()) {
	cfg := t.cfg
	cfg.TLS = t.tls
	call := &calling{m: m, local: local, remote: remote, cfg: &cfg, patience: patience}
	ctx, cancel := context.WithCancel(context.Background())
	m.tasks.Go(func() {
		defer cancel()
		called(call.control(ctx))
	})
	return cancel
}

// called goes on when there is a control connection, or none.
func (id *ID) called(c *control, err error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.cancel = nil
	if id.state != idConnecting { // it is closed
		if c != nil {
			c.letGo()
		}
		return
	}
	if err == nil {
		id.terms.control = c
		err = id.request()
	}
	if err == nil {
		return
	}
	id.terms.letGo()
	id.state = idOver
	e := failure(EventConnectError, err)
	if rejected := (*RejectedError)(nil); errors.As(err, &rejected) {
		e = failure(EventRejected, rejected)
	} else if errors.Is(err, ErrUnreachable) {
		e = failure(EventUnreachable, ErrUnreachable)
	}
	e.err = fmt.Errorf("cm: connect to %v: %w", id.peer, err)
	id.tell(e)
}

// letGo says that the control connection is needed no more to ask for a
// connection.
func (t *terms) letGo() {
	if c := t.control; c != nil && c.from == nil {
		c.letGo()
	}
}

// checkSealing finds what cannot be secured.
func (t *terms) checkSealing(dev *verbs.Device) error {
	if err := securable(t.typ); err != nil {
		return err
	}
	if dev.SealedMTU(netip.Addr{}) == 0 {
		return fmt.Errorf("a TLS configuration: %w", verbs.ErrNotSealing)
	}
	return nil
}

// checkSecured is checkSealing for a connection of a queue pair, if it is one
// that is secured.
func (t *terms) checkSecured(m *manager, q *verbs.QP) error {
	switch {
	case t.tls == nil && t.control == nil:
		return nil
	case q == nil:
		return errors.New("a secured connection needs a queue pair of the ID: call CreateQP")
	}
	return t.checkSealing(m.dev)
}
