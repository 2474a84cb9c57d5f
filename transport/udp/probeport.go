package udp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/gosoftroce/rocev2/internal/dontfrag"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// Pauses between the packets of ProbePort: one may be lost, and a host says
// only so often that a port is unreachable (RFC 1812 4.3.2.8).
const (
	firstProbePause = 250 * time.Millisecond
	mostProbePause  = 4 * time.Second
)

// CanProbePort reports true: each system tells a connected UDP socket of ICMP
// errors.
func (l *Link) CanProbePort() bool { return true }

// ProbePort asks by a UDP socket of its own: so its errors never meet what the
// link sends and receives. The system has chosen its port, at random, and an
// error must be of this port and the peer's. On Linux what it quotes of the
// packet must be right, too.
func (l *Link) ProbePort(ctx context.Context, peer netip.Addr, packet []byte) bool {
	p, err := l.newPortProbe(peer, packet)
	if err != nil {
		return false
	}
	defer p.conn.Close()
	defer context.AfterFunc(ctx, func() { p.conn.SetDeadline(time.Unix(1, 0)) })()
	for pause := firstProbePause; ctx.Err() == nil; pause = min(2*pause, mostProbePause) {
		if p.refused(ctx, pause) {
			return true
		}
	}
	return false
}

var _ transport.PortProber = (*Link)(nil)

// portProbe is a packet to a port that nobody may have.
type portProbe struct {
	conn   *net.UDPConn
	raw    syscall.RawConn
	to     netip.AddrPort
	packet []byte // BTH to ICRC
}

func (l *Link) newPortProbe(peer netip.Addr, packet []byte) (*portProbe, error) {
	peer = peer.Unmap().WithZone("")
	if peer.Is6() && peer.IsLinkLocalUnicast() {
		peer = peer.WithZone(l.addr.Zone())
	}
	to := netip.AddrPortFrom(peer, l.local.Port())
	conn, err := openProbe(netip.AddrPortFrom(l.addr, 0), to)
	if err != nil {
		return nil, err
	}
	p := &portProbe{conn: conn, to: to}
	if p.raw, err = conn.SyscallConn(); err == nil {
		err = dontfrag.Set(p.raw, peer.Is4()) // the ICRC covers that
	}
	if err == nil {
		err = p.queueErrors()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	port := conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	flow := rocev2.NewFlow(l.local.Addr(), peer.WithZone(""), port, to.Port())
	p.packet = flow.Seal(0, slices.Clone(packet))
	return p, nil
}

// refused sends the packet and waits for a while. It reports whether the peer's
// host says that nobody has the port.
func (p *portProbe) refused(ctx context.Context, wait time.Duration) bool {
	if err := p.send(); isRefusal(err) && p.quoted() {
		return true // it is of the packet before
	}
	p.conn.SetReadDeadline(time.Now().Add(wait))
	if ctx.Err() != nil { // after which nothing else ends the wait
		return false
	}
	var b [1]byte
	for range maxRefused {
		_, err := p.conn.Read(b[:])
		switch {
		case isRefusal(err) && p.quoted():
			return true
		case err == nil || isRefusal(err):
		case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			return false
		}
	}
	<-after(ctx, wait) // somebody floods the socket
	return false
}

// after returns a channel that is closed after a while, or when ctx ends.
func after(ctx context.Context, d time.Duration) <-chan struct{} {
	ctx, cancel := context.WithTimeout(ctx, d)
	context.AfterFunc(ctx, cancel)
	return ctx.Done()
}
