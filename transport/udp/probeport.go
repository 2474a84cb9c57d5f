package udp

import (
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

// CanProbePort reports true, unless the socket is of another network namespace,
// where the probe has no way to the peer: each system tells a connected UDP
// socket of ICMP errors.
func (l *Link) CanProbePort() bool { return !l.isAbroad() }

// ProbePort asks by a UDP socket of its own: so its errors never meet what the
// link sends and receives. The system has chosen its port, at random, and an
// error must be of this port and the peer's. On Linux what it quotes of the
// packet must be right, too.
func (l *Link) ProbePort(peer netip.Addr, packet []byte, stop <-chan struct{}) bool {
	p, err := l.newPortProbe(peer, packet)
	if err != nil {
		return false
	}
	defer p.conn.Close()
	found := make(chan bool, 1)
	go func() { found <- p.refused() }()
	select {
	case refused := <-found:
		return refused
	case <-stop:
		p.conn.Close() // which ends the goroutine
		return false
	}
}

var _ transport.PortProber = (*Link)(nil)

// portProbe is a packet to a port that may be closed.
type portProbe struct {
	conn   *net.UDPConn
	raw    syscall.RawConn
	to     netip.AddrPort
	packet []byte // BTH to ICRC
	buf    [1]byte
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

// refused sends the packet now and again until the peer's host says that the
// port is closed, or the socket is. It reports whether the port is.
func (p *portProbe) refused() bool {
	for pause := firstProbePause; ; pause = min(2*pause, mostProbePause) {
		err := p.send()
		p.conn.SetReadDeadline(time.Now().Add(pause))
		for {
			switch {
			case isRefusal(err) && p.quoted(): // also of an earlier packet
				return true
			case errors.Is(err, net.ErrClosed):
				return false
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			_, err = p.conn.Read(p.buf[:])
		}
	}
}
