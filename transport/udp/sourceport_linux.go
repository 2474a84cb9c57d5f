//go:build !portable

package udp

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/transport"
	"golang.org/x/sys/unix"
)

// sourceSocket sends from a port beside the link's own.
type sourceSocket = socket

// openSource makes a socket for sending from a port.
func openSource(at netip.AddrPort, scope uint32, iface int, c *Config) (s *sourceSocket, op string, err error) {
	fd, op, err := bind(at, scope, c, func(fd int) error {
		dropAll(fd)
		sendByInterface(fd, at.Addr().Is4(), iface)
		return nil
	})
	if err != nil {
		return nil, op, err
	}
	setBuffer(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, c.SendBuffer)
	made, err := newSocket(fd, at)
	if err != nil {
		return nil, "register", err
	}
	return &made, "", nil
}

// Close closes the socket.
func (s *socket) Close() error { return s.file.Close() }

// OpenSourcePort binds a socket for paths with SrcPort port, unless there is
// one. It fails with an *OpenError when another process has the port or when
// MaxSourcePorts are open; unless exact, another port takes its place. Send
// opens the ports of its paths itself; calling this first shows the error
// early. The links of a group share the sockets.
func (l *Link) OpenSourcePort(port uint16, exact bool) (uint16, error) {
	if l.closed.Load() {
		return 0, transport.ErrClosed
	}
	if port == 0 || port == l.local.Port() {
		return port, nil
	}
	if l.abroad {
		return l.abroadSourcePort(port, exact)
	}
	got, err := l.others.open(port, exact)
	if e := (*OpenError)(nil); errors.As(err, &e) && e.Hint == "" {
		e.Hint = sourcePortHint(e.Addr, e.Err) // slow, so not while packets are sent
	}
	return got, err
}

var _ transport.SourcePortOpener = (*Link)(nil)

var errAbroad = errors.New("the link's socket is of another network namespace")

// abroadSourcePort is OpenSourcePort where no socket can be bound to the
// address.
func (l *Link) abroadSourcePort(port uint16, exact bool) (uint16, error) {
	if !exact {
		return l.local.Port(), nil
	}
	return 0, &OpenError{Addr: netip.AddrPortFrom(l.addr, port), Op: "open source port", Err: errAbroad,
		Hint: fmt.Sprintf("there is only %d here", l.local.Port())}
}
