package devices

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/gosoftroce/rocev2/task"
)

// Pauses between the calls of Await.
const (
	firstPause = 50 * time.Millisecond
	mostPause  = time.Second
)

// Absent reports whether a dial has failed because what it is for is not there:
// no program listens, or the peer does not answer.
func Absent(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrDeadlineExceeded)
}

// Each dials one address after the other, until one is reached or ctx has
// ended, and with wait until a server is there, as Await does. It returns the
// address that was reached. The error is of the address that is returned: the
// first where something is Absent, or else the first of all.
func Each(ctx context.Context, wait bool, remotes []netip.AddrPort, dial func(netip.AddrPort) error) (netip.AddrPort, error) {
	var of netip.AddrPort
	once := func() (first error) {
		for _, remote := range remotes {
			err := dial(remote)
			if err == nil || ctx.Err() != nil {
				of = remote
				return err
			}
			if first == nil || !Absent(first) && Absent(err) {
				of, first = remote, err
			}
		}
		return first
	}
	if wait {
		err := Await(ctx, nil, once)
		return of, err
	}
	err := once()
	return of, err
}

// Await calls dial until its error is another than Absent, with pauses of up to
// a second, as long as ctx allows. Then the error wraps that of ctx, and the
// last one of dial. A nil sleep is that of package time.
func Await(ctx context.Context, sleep func(context.Context, time.Duration) error, dial func() error) error {
	if sleep == nil {
		sleep = task.Runner{}.Sleep
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
