package devices

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// Pauses between the calls of Await.
const (
	firstPause = 50 * time.Millisecond
	mostPause  = time.Second
)

// Absent reports whether a dial has failed because what it is for is not there:
// the port is closed, or the peer does not answer.
func Absent(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrDeadlineExceeded)
}

// Dial dials one address after the other, until one is reached or ctx has
// ended, and with wait until a server is there, as Await does. at is the
// address that c or err is of: of the errors that is the first where something
// is Absent, or else the first of all.
func Dial[T any](ctx context.Context, wait bool, remotes []netip.AddrPort, dial func(netip.AddrPort) (T, error)) (c T, at netip.AddrPort, err error) {
	once := func() error {
		c, at, err = first(ctx, remotes, dial)
		return err
	}
	if wait {
		err = Await(ctx, nil, once)
	} else {
		err = once()
	}
	return c, at, err
}

func first[T any](ctx context.Context, remotes []netip.AddrPort, dial func(netip.AddrPort) (T, error)) (c T, at netip.AddrPort, err error) {
	for _, remote := range remotes {
		made, failed := dial(remote)
		if failed == nil || ctx.Err() != nil {
			return made, remote, failed
		}
		if err == nil || !Absent(err) && Absent(failed) {
			at, err = remote, failed
		}
	}
	return c, at, err
}

// Await calls dial until its error is another than Absent, with pauses of up to
// a second, as long as ctx allows. Then the error wraps that of ctx, and the
// last one of dial. A nil sleep is that of package time.
func Await(ctx context.Context, sleep func(context.Context, time.Duration) error, dial func() error) error {
	if sleep == nil {
		sleep = pauseFor
	}
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		err := dial()
		if err == nil || !Absent(err) {
			return err
		}
		if over := sleep(ctx, pause); over != nil {
			return fmt.Errorf("waited for the server: %w: %w", over, err)
		}
	}
}

func pauseFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
