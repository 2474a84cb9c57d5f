package link_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop/internal/link"
	"github.com/gosoftroce/rocev2/programs/interop/internal/testpair"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// A client whose service ends at once is told. It would wait for minutes.
func TestServerAnswersEveryRequest(t *testing.T) {
	t.Parallel()
	a, b := testpair.Devices(t)
	at := netip.AddrPortFrom(a.Addr(), 7000)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reason := errors.New("the visit is over")
	s := link.Server[int]{AtOnce: 1, Serve: func(context.Context, *cm.Request, func() error) (int, error) { return 0, reason }}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, a, at) }()
	l, err := link.New(b, link.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var rejected *cm.RejectedError
	var c *cm.Conn
	for {
		if c, err = l.Dial(ctx, at, cm.DialConfig{}); !errors.As(err, &rejected) || rejected.Reason != cm.ReasonInvalidService {
			break
		}
		// The server does not listen yet.
		if err := l.QP.Modify(&verbs.Attr{State: verbs.StateReset}, verbs.AttrState); err != nil {
			t.Fatal(err)
		}
	}
	if err != nil {
		t.Errorf("dial: %v", err)
	}
	if err := c.Wait(ctx); !errors.Is(err, cm.ErrDisconnected) {
		t.Errorf("the connection ends with %v", err)
	}
	cancel()
	<-ended
}
