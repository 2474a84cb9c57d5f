package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"

	"github.com/gosoftroce/rocev2/transport"
)

var (
	errNoInterface = errors.New("no interface to receive it from")
	errLoopback6   = errors.New("the loopback interface of Linux carries no IPv6 multicast")
)

// groupRecvBuffer bounds the receive buffers of the sockets of groups, of which
// there may be many.
const groupRecvBuffer = 4 << 20

// mayJoin reports what keeps a link, which has joined n groups and perhaps this
// one, from joining a group on an interface.
func mayJoin(at netip.AddrPort, joined bool, n, iface int) error {
	fail := func(err error, hint string) error {
		return &OpenError{Addr: at, Op: "join group", Err: err, Hint: hint}
	}
	switch {
	case joined:
		return fail(transport.ErrGroupJoined, "")
	case n == MaxGroups:
		return fail(transport.ErrManyGroups, fmt.Sprintf("that is %d; leave another one first", MaxGroups))
	}
	if err := checkInterface(iface, at.Addr().Is4()); errors.Is(err, manyFiles) {
		return fail(err, filesHint)
	} else if err != nil {
		return fail(err, "open the device on an address of an interface that has multicast; local are "+localAddrs())
	}
	return nil
}

// checkInterface reports what keeps an interface from receiving multicast.
func checkInterface(index int, v4 bool) error {
	ifi, err := net.InterfaceByIndex(index)
	switch {
	case errors.Is(err, manyFiles):
		return err // so the system could not be asked
	case err != nil:
		return errNoInterface
	case !v4 && ifi.Flags&net.FlagLoopback != 0 && runtime.GOOS == "linux":
		return errLoopback6
	}
	return nil
}

// checkGroup returns the address of a group for a link.
func (l *Link) checkGroup(group netip.Addr) (netip.AddrPort, error) {
	addr, err := transport.CheckGroup(l.addr, group)
	at := netip.AddrPortFrom(addr, l.local.Port())
	if err != nil {
		return at, &OpenError{Addr: at, Op: "check group", Err: err}
	}
	return at, nil
}

func leaveError(group netip.Addr, err error) error {
	return fmt.Errorf("udp: leave group %v: %w", group, err)
}
