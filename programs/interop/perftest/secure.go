package perftest

import (
	"context"
	"crypto/tls"
	"fmt"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/control"
	"github.com/gosoftroce/rocev2/rdma/secure"
	"github.com/gosoftroce/rocev2/verbs"
)

// Secured says how a run is secured.
type Secured struct {
	Packets verbs.SealVersion    // how those of the queue pairs are sealed
	TLS     *tls.ConnectionState // of the control connection

	session *secure.Session
}

// checkSecured checks what a secured run needs, and has it use a path MTU that
// leaves room in packets.
func (c *Config) checkSecured(dev *verbs.Device) error {
	if c.TLS == nil {
		return nil
	}
	most := dev.SealedMTU(dev.Addr())
	switch {
	case !c.Service.Reliable():
		return interop.BadConfig("a secured run over %v: only packets of a reliable service (RC, XRC) are sealed", c.Service)
	case most == 0:
		return interop.BadConfig("a secured run: %v", verbs.ErrNotSealing)
	case c.mtuGiven && c.MTU > most:
		return interop.BadConfig("a path MTU of %d: what seals a packet needs 40 bytes, so that the link of %v carries at most %d in a secured run",
			c.MTU.Bytes(), dev.Addr(), most.Bytes())
	}
	c.MTU = min(c.MTU, most)
	return nil
}

// secure has the handshake of a secured run.
func (c *Config) secure(ctx context.Context, ctl *control.Conn) (*Secured, error) {
	if c.TLS == nil {
		return nil, nil
	}
	s, err := ctl.Secure(ctx, c.TLS)
	if err != nil {
		return nil, err
	}
	state, _ := s.State()
	return &Secured{Packets: s.Version(), TLS: &state, session: s}, nil
}

// access is what a peer may do on a connection when it is made.
func (c *Config) access() verbs.Access {
	if c.TLS != nil {
		return secure.Access
	}
	return c.Test.access()
}

// secureLane has the packets of lane i sealed, and then lets the peer do what
// the test does.
func (s *session) secureLane(i int) error {
	to := s.exchange.secured
	if to == nil {
		return nil
	}
	for _, q := range s.res.lanes.Lanes[i].Both() {
		if err := to.session.Seal(q); err != nil {
			return fmt.Errorf("secure queue pair %v: %w", q.QPN(), err)
		}
		if err := q.Modify(&verbs.Attr{Access: s.cfg.Test.access()}, verbs.AttrAccess); err != nil {
			return fmt.Errorf("queue pair %v: %w", q.QPN(), err)
		}
	}
	return nil
}
