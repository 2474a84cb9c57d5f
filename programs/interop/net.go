package interop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"
)

// DefaultPort is the TCP port of the control connection that pingpong and
// perftest share.
const DefaultPort = 18515

// Role is the side of the control connection that this process takes.
type Role uint8

// Roles.
const (
	Server Role = iota // waits for the peer
	Client             // connects to the peer, and sends first
)

func (r Role) String() string {
	if r == Client {
		return "client"
	}
	return "server"
}

// DialTimeout bounds how long Dial tries.
const DialTimeout = 10 * time.Second

// Dial opens the control connection to a server, from local where that is an
// address of the server's IP version: a server compares where the connection
// comes from with the GID that the client names. The zero Addr leaves the
// choice to the system.
func Dial(ctx context.Context, local netip.Addr, host string, port int) (net.Conn, error) {
	d := net.Dialer{Timeout: DialTimeout}
	if local.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(local, 0))
	}
	target := net.JoinHostPort(host, strconv.Itoa(port))
	conn, err := d.DialContext(ctx, "tcp", target)
	if err == nil {
		return conn, nil
	}
	var addr *net.AddrError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED) && isIPv6(host):
		return nil, fmt.Errorf("connect to %s: no program listens there: the tools of rdma-core and perftest listen on IPv4 only, so name the server by its IPv4 address and choose the IPv6 device with -d; a rocev2 server listens on the address of its device unless --listen says otherwise: %w", target, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("connect to %s: no program listens there: start the server side first, and give both sides the same port (-p); a rocev2 server listens on the address of its device unless --listen says otherwise: %w", target, err)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return nil, fmt.Errorf("connect to %s: there is no route to that host: %w", target, err)
	case local.IsValid() && (errors.As(err, &addr) || errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EINVAL)):
		return nil, fmt.Errorf("connect to %s from %v: the server is not reached from that address: %w", target, local, err)
	}
	return nil, fmt.Errorf("connect to %s: %w", target, err)
}

func isIPv6(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.Is6() && !a.Is4In6()
}

// Listen listens for control connections on an address of this host, or on all
// of them where host is "".
func Listen(ctx context.Context, host string, port int) (net.Listener, error) {
	var lc net.ListenConfig
	where := fmt.Sprintf("TCP port %d", port)
	if host != "" {
		where += " of " + host
	}
	ln, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	switch {
	case err == nil:
		return ln, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("listen on %s: the port is taken, perhaps by another server of this kind: end it, or give both sides another port (-p): %w", where, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("listen on %s: this host has no such address: %w", where, err)
	}
	return nil, fmt.Errorf("listen on %s: %w", where, err)
}

// Cause returns err with the cause of ctx in place of the context's own error,
// where it is that.
func Cause(ctx context.Context, err error) error {
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)) && context.Cause(ctx) != ctx.Err() {
		return err
	}
	return context.Cause(ctx)
}

// GID is an address as the verbs have it: 16 bytes, an IPv4 address mapped
// into IPv6.
type GID [16]byte

// GIDOf returns the GID of an address.
func GIDOf(a netip.Addr) GID { return a.As16() }

// Addr returns the address that the GID stands for.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// IsZero reports whether the GID is the empty one, with which the originals say
// that they were started without a GID index.
func (g GID) IsZero() bool { return g == GID{} }

// CheckPeer returns nil if a device on local can have a connection with the
// peer, else why not.
func (g GID) CheckPeer(local netip.Addr) error {
	peer := g.Addr()
	switch {
	case g.IsZero():
		return errors.New("the peer gave no GID: start it with a GID index (-g or -x)")
	case peer.IsUnspecified() || peer.IsMulticast():
		return fmt.Errorf("the peer gave the GID %v, which is no address of a host", peer)
	case peer.Is4() != local.Unmap().Is4():
		return fmt.Errorf("the peer's GID %v and the local address %v are of different IP versions: choose another GID index there or another device (-d) here", peer, local)
	}
	return nil
}
