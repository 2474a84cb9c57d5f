// Package secure secures the connection of two queue pairs: TLS 1.3
// authenticates both sides and gives them keys, with which the packets of the
// queue pairs are sealed.
//
// The connection begins in clear, with nothing that the peer may do but send.
// Over its bytes the two sides have a handshake (crypto/tls). Then, each step
// as a byte inside of TLS:
//
//  1. accepts: this side opens sealed packets.
//  2. seals, when the peer has said 1: all that this side sends is sealed,
//     what it sends again included. So is the packet with this byte: a side
//     that has it has taken a sealed packet, and takes none in clear any more.
//  3. open, when the peer has said 2: the peer may do what it is to do.
//
// When a side has the third byte of the peer, TLS has done its work, and the
// program has the connection. Nothing falls back to packets in clear.
//
// What comes of it is a Session. It has keys for further queue pairs between
// the two sides. So has one of a handshake over another connection.
//
// Each direction has a key: TLS exports a master key of the PSP Security
// Protocol (RFC 8446 7.5, label "EXPORTER-rocev2-psp"), from which the key of
// an SPI is derived. Its context is 4 bytes of 0; 1 for packets to the side
// that has dialled, else 0; and the SHA-256 of the greetings, where they count
// (Conn.Greeting). The SPI is the number of the queue pair. Neither the master
// key nor that key is kept.
//
// The keys of packets are derived from that key, one after the other: see
// verbs.Sealing. So a connection has new keys as long as it lasts, and no
// second handshake. What has become of the certificates meanwhile it does not
// ask: a program that must know ends the connection, and dials again.
package secure

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// Time is how long a client of a listener may take.
const Time = 10 * time.Second

// Access is what a peer may do before its connection is secured: nothing but
// send.
const Access = verbs.LocalWrite

// Conn is a connection that is to be secured.
type Conn struct {
	net.Conn
	QP   *verbs.QP            // connected; of a device with verbs.Config.Sealing
	Open func(*Session) error // lets the peer do what it is to do; nil: nothing more

	// Greeting is what both sides have said in clear before, the same on
	// both. Keys depend on it: if it was changed on the way nothing opens.
	Greeting []byte
}

// Client secures a connection that was dialled. Where the configuration names
// no server it is the host of an address.
func Client(ctx context.Context, c Conn, config *tls.Config, addr string) (*Session, error) {
	config = minimal(config)
	if config.ServerName == "" && !config.InsecureSkipVerify {
		config.ServerName = hostOf(addr)
	}
	return c.secure(ctx, config, true)
}

// Server secures a connection that was accepted, within Time.
func Server(ctx context.Context, c Conn, config *tls.Config) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, Time)
	defer cancel()
	return c.secure(ctx, minimal(config), false)
}

// minimal is a configuration without what has no use here: older versions, and
// tickets, which would come when TLS has done its work. So are those that it
// chooses for single clients.
func minimal(config *tls.Config) *tls.Config {
	config = config.Clone()
	if choose := config.GetConfigForClient; choose != nil {
		config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(hello)
			if err != nil || chosen == nil {
				return nil, err
			}
			chosen = chosen.Clone()
			chosen.MinVersion = tls.VersionTLS13
			chosen.SessionTicketsDisabled = true
			return chosen, nil
		}
	}
	config.MinVersion = tls.VersionTLS13
	config.SessionTicketsDisabled = true
	return config
}

func (c *Conn) secure(ctx context.Context, config *tls.Config, client bool) (*Session, error) {
	s := &Session{client: client}
	t := s.over(&records{Conn: c}, config)
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	err := t.HandshakeContext(ctx)
	if err == nil {
		s.state = t.ConnectionState()
		err = c.seal(t, s)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("secure the connection: %w", Explain(err))
	}
	return s, nil
}

// seal goes the steps after the handshake of TLS.
func (c *Conn) seal(t *tls.Conn, session *Session) error {
	s, err := c.QP.Sealing()
	if err != nil {
		return err
	}
	keys, err := session.keys(c.QP, ownLabel, c.Greeting)
	if err != nil {
		return err
	}
	defer keys.erase()
	for i, do := range []func() error{
		func() error { return s.Accept(keys.into) },
		func() error { return s.Seal(keys.from) },
		func() error { return c.open(s, session) },
	} {
		if err := do(); err != nil {
			return err
		}
		if err := step(t, byte(i+1)); err != nil {
			return err
		}
	}
	return nil
}

// step says a step, and waits for the same of the peer.
func step(t io.ReadWriter, n byte) error {
	var said [1]byte
	if _, err := t.Write([]byte{n}); err != nil {
		// A peer that refuses this side says why, and then closes.
		var alert *net.OpError
		if _, why := t.Read(said[:]); errors.As(why, &alert) && alert.Op == "remote error" {
			return why
		}
		return err
	}
	if _, err := io.ReadFull(t, said[:]); err != nil {
		return err
	}
	if said[0] != n {
		return fmt.Errorf("the peer says step %d, where %d is due", said[0], n)
	}
	return nil
}

func (c *Conn) open(s *verbs.Sealing, session *Session) error {
	switch {
	case s.State() != verbs.SecuritySealed:
		return errors.New("the peer says that it seals its packets, and does not")
	case c.Open == nil:
		return nil
	}
	return c.Open(session)
}

// MTU returns the path MTU for a queue pair whose connection is to be secured,
// 0 where that is the one of others.
func MTU(q *verbs.QP, peer netip.Addr) (verbs.MTU, error) {
	m := q.Device().SealedMTU(peer)
	switch {
	case m == 0:
		return 0, verbs.ErrNotSealing
	case m < q.Endpoint().PathMTU:
		return m, nil
	}
	return 0, nil
}

// hostOf returns the name that a certificate is for, of what was dialled.
func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return a.WithZone("").String()
	}
	return host
}
