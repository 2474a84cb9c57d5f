//go:build linux

package guest

import (
	"context"
	"errors"
	"fmt"

	"github.com/gosoftroce/rocev2/e2e/tun"
	"golang.org/x/sys/unix"
)

// FrameHeader is the length of what is in front of the IP packet in a frame
// that Between carries.
const FrameHeader = 14

// FrameMTU is the longest IP packet in such a frame.
const FrameMTU = linkMTU

// Between takes two guests off the bridge, so that a program of the caller's is
// the network between them. What a guest sends is read from its descriptor, a
// frame of Ethernet each time, and what is written there reaches that guest.
// Neither descriptor blocks, and the caller closes both before restore puts the
// guests back. Until then the guests reach no other host, but commands still
// reach them.
func (l *Lab) Between(ctx context.Context, a, b *Guest) (ends [2]int, restore func(context.Context) error, err error) {
	ends = [2]int{-1, -1}
	guests := [2]*Guest{a, b}
	restore = func(ctx context.Context) error {
		var errs []error
		for _, g := range guests {
			errs = append(errs, l.each(ctx, "link set "+g.Tap+" master br0", "link del w"+g.Tap))
		}
		return errors.Join(errs...)
	}
	for i, g := range guests {
		if ends[i], err = l.takeOff(ctx, g); err != nil {
			for _, fd := range ends {
				if fd >= 0 {
					unix.Close(fd)
				}
			}
			return ends, nil, errors.Join(err, restore(ctx))
		}
	}
	return ends, restore, nil
}

// takeOff puts a guest on a bridge of its own, with a TAP device as the only
// other port. The bridge's devices offer no offload, so what the guest hands
// over in one piece is divided into packets there.
func (l *Lab) takeOff(ctx context.Context, g *Guest) (int, error) {
	bridge, tap := "w"+g.Tap, "p"+g.Tap
	err := l.each(ctx,
		fmt.Sprintf("link add %s mtu %d type bridge mcast_snooping 0", bridge, linkMTU),
		"link set "+bridge+" addrgenmode none up",
		"link set "+g.Tap+" master "+bridge,
	)
	if err != nil {
		return -1, err
	}
	fd := -1
	if err := l.ns.do(func() (err error) {
		fd, err = tun.Open(tap, tun.Frames)
		return err
	}); err != nil {
		return -1, err
	}
	if err := l.each(ctx, fmt.Sprintf("link set %s mtu %d txqueuelen 10000 master %s addrgenmode none up", tap, linkMTU, bridge)); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// each runs ip commands in the namespace.
func (l *Lab) each(ctx context.Context, cmds ...string) error {
	for _, c := range cmds {
		if err := ip(ctx, "-n "+l.ns.name+" "+c); err != nil {
			return err
		}
	}
	return nil
}
