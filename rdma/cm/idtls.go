package cm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"

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

// ConnectionState is Conn.ConnectionState. That of a request tells already.
func (id *ID) ConnectionState() (tls.ConnectionState, bool) {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.terms.control.shown()
}

// begin asks for the connection, over a control connection if it is to be
// secured. id is locked.
func (id *ID) begin() error {
	if id.terms.tls == nil {
		return id.request()
	}
	cfg := id.terms.cfg
	cfg.TLS = id.terms.tls
	m := id.at.m
	call := &calling{m: m, local: Addr{id.at.local, id.at.space}, remote: Addr{id.peer, id.at.space}, cfg: &cfg, patience: id.patience}
	ctx, cancel := context.WithCancel(context.Background())
	id.cancel = cancel
	m.tasks.Go(func() {
		defer cancel()
		c, err := call.control(ctx)
		id.secured(c, err)
	})
	return nil
}

// secured goes on when there is a control connection, or none.
func (id *ID) secured(c *control, err error) {
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
	id.letGo()
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

// letGo says that the ID needs its control connection no more to ask for a
// connection. id is locked.
func (id *ID) letGo() {
	if c := id.terms.control; c != nil && c.from == nil {
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
func (t *terms) checkSecured(dev *verbs.Device, q *verbs.QP) error {
	switch {
	case t.tls == nil && t.control == nil:
		return nil
	case q == nil:
		return errors.New("a secured connection needs a queue pair of the ID: call CreateQP")
	}
	return t.checkSealing(dev)
}
