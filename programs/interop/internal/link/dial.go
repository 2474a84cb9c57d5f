package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/rdma/cm"
)

// Dial connects the queue pair of a link with a server. The error says what may
// be wrong.
func (l *Link) Dial(ctx context.Context, to netip.AddrPort, c cm.DialConfig) (*cm.Conn, error) {
	conn, err := cm.Dial(ctx, l.QP, to, c)
	return conn, Explain(ctx, to, err)
}

// Explain adds to an error of the connection manager what may be its cause.
func Explain(ctx context.Context, to netip.AddrPort, err error) error {
	var rejected *cm.RejectedError
	var status *cm.StatusError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &rejected) && rejected.Reason == cm.ReasonInvalidService,
		errors.As(err, &status) && status.Status == 1:
		return fmt.Errorf("connect to %v: no program listens there: start the server side first, and give both sides the same port (-p): %w", to, err)
	case errors.Is(err, cm.ErrUnreachable):
		return fmt.Errorf("connect to %v: no answer: is there a RoCE device at that address, and does UDP port 4791 pass? %w", to, err)
	case ctx.Err() != nil:
		return interop.Cause(ctx, err)
	}
	return fmt.Errorf("connect to %v: %w", to, err)
}
