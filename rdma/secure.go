package rdma

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/verbs"
)

// A secured connection begins in clear, with nothing that the peer may do but
// send. Over its messages the two sides have a TLS 1.3 handshake, by which they
// authenticate each other, and derive keys from it. Then, each step as a byte
// inside of TLS:
//
//  1. stepAccepts: this side opens sealed packets.
//  2. stepSeals, when the peer has said 1: all that this side sends is sealed,
//     what it sends again included. So is the packet with this byte: a side
//     that has it has taken a sealed packet, and takes none in clear any more.
//  3. stepOpen, when the peer has said 2: this side lets the peer write and
//     read, within the rights of its regions.
//
// When a side has stepOpen of the peer, TLS has done its work, and the program
// has the connection.
const (
	stepAccepts = 1 + iota
	stepSeals
	stepOpen
)

// handshakeTime is how long a client of a listener may take.
const handshakeTime = 10 * time.Second

// ErrNotSecured is the error of Dial with a TLS configuration if the listener
// has none. Nothing of the program was sent.
var ErrNotSecured = errors.New("the listener does not secure connections: it has no TLS configuration")

// errOnlySecured is what a listener tells peers without TLS.
var errOnlySecured = errors.New("this listener takes secured connections alone: dial with a TLS configuration")

// ConnectionState returns what the handshake of a secured connection has shown,
// such as the certificates of the peer. It reports false for a connection that
// is not secured.
func (c *Conn) ConnectionState() (tls.ConnectionState, bool) {
	if s := c.core.secured; s != nil {
		return s.state, true
	}
	return tls.ConnectionState{}, false
}

// secured is what a connection that is secured has beside others.
type secured struct {
	open  bool                // the peer may do what it may; guarded by the connection's mu
	state tls.ConnectionState // set before the program has the connection
}

// securing reports whether a handshake is under way, so that the peer may do
// nothing else.
func (c *core) securing() bool { return c.secured != nil && !c.secured.open }

// secure secures a connection that was dialled.
func (d *Dialer) secure(ctx context.Context, c *Conn, host string) error {
	config := minimal(d.TLS)
	if config.ServerName == "" && !config.InsecureSkipVerify {
		config.ServerName = host
	}
	h := handshake{c: c, client: true, tls: tls.Client(&messages{c: c, ctx: ctx}, config)}
	return h.run(ctx)
}

// secure secures a connection that was accepted.
func (l *Listener) secure(ctx context.Context, c *Conn) error {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	h := handshake{c: c, tls: tls.Server(&messages{c: c, ctx: ctx}, minimal(l.cfg.TLS))}
	return h.run(ctx)
}

// minimal is a configuration without what has no use here: older versions, and
// tickets, which would come when TLS has done its work.
func minimal(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.MinVersion = tls.VersionTLS13
	config.SessionTicketsDisabled = true
	return config
}

// handshake is the securing of a connection.
type handshake struct {
	c      *Conn
	tls    *tls.Conn
	client bool // this side has dialled
}

// run secures the connection, and opens it for the program.
func (h *handshake) run(ctx context.Context) error {
	err := h.tls.HandshakeContext(ctx)
	if err == nil {
		err = h.seal()
	}
	over := h.c.Err()
	switch {
	case err == nil:
		h.c.core.secured.state = h.tls.ConnectionState()
		return over
	case over != nil && !errors.Is(err, over) && !errors.Is(over, errClosed): // what TLS makes of it
		err = fmt.Errorf("%w (%w)", over, err)
	}
	return fmt.Errorf("secure the connection: %w", err)
}

// seal goes the steps after the handshake of TLS.
func (h *handshake) seal() error {
	c := &h.c.core
	s, err := c.qp.Sealing()
	if err != nil {
		return err
	}
	state := h.tls.ConnectionState()
	into, err := association(&state, s.SPI(0), h.client)
	if err != nil {
		return err
	}
	from, err := association(&state, uint32(c.qp.Query().DestQPN), !h.client)
	if err != nil {
		return err
	}
	for i, do := range []func() error{
		stepAccepts - 1: func() error { return s.Accept(into) },
		stepSeals - 1:   func() error { return s.Seal(from) },
		stepOpen - 1: func() error {
			if s.State() != verbs.SecuritySealed {
				return protocolError("the peer says that it seals its packets, and does not")
			}
			c.mu.Lock()
			c.secured.open = true
			c.mu.Unlock()
			return c.qp.Modify(&verbs.Attr{Access: openAccess}, verbs.AttrAccess)
		},
	} {
		if err := do(); err != nil {
			return err
		}
		step := byte(i + 1)
		if _, err := h.tls.Write([]byte{step}); err != nil {
			return err
		}
		var said [1]byte
		if _, err := io.ReadFull(h.tls, said[:]); err != nil {
			return err
		}
		if said[0] != step {
			return protocolError("step %d of securing the connection, where %d is due", said[0], step)
		}
	}
	return nil
}

// What a peer may do: nothing but send before the connection is secured, and
// then what package cm grants by itself.
const (
	closedAccess = verbs.LocalWrite
	openAccess   = verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic | verbs.FlushGlobal | verbs.FlushPersistent
)

// exporterLabel is that of RFC 8446 7.5. What is exported is a master key of
// the PSP Security Protocol, from which the key of an SPI is derived. Its
// context is 4 bytes of 0, and 1 for packets to the side that has dialled.
const exporterLabel = "EXPORTER-rocev2-psp"

// association returns that of an SPI, for packets in a direction.
func association(state *tls.ConnectionState, spi uint32, toClient bool) (verbs.Association, error) {
	var direction [5]byte
	if toClient {
		direction[4] = 1
	}
	secret, err := state.ExportKeyingMaterial(exporterLabel, direction[:], psp.MasterKeyLen)
	if err != nil {
		return verbs.Association{}, fmt.Errorf("derive a key: %w", err)
	}
	var master psp.MasterKeys
	master.Rotate((*[psp.MasterKeyLen]byte)(secret))
	clear(secret)
	v := versionOf(state.CipherSuite)
	key, _ := master.Derive(v, spi)
	return verbs.Association{SPI: spi, Version: v, Key: key}, nil
}

// versionOf returns the algorithm for packets that is as strong as that of TLS.
func versionOf(suite uint16) verbs.SealVersion {
	if suite == tls.TLS_AES_128_GCM_SHA256 {
		return verbs.SealGCM128
	}
	return verbs.SealGCM256
}

// messages is a net.Conn over the messages of a connection, for its handshake.
type messages struct {
	c    *Conn
	ctx  context.Context
	rest []byte
}

func (m *messages) Read(p []byte) (int, error) {
	if len(m.rest) == 0 {
		got, err := m.c.RecvMsg(m.ctx)
		if err != nil {
			return 0, err
		}
		m.rest = append(m.rest[:0], got.Bytes()...)
		got.Release()
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

func (m *messages) Write(p []byte) (n int, err error) {
	for n < len(p) {
		part := p[n:min(len(p), n+m.c.MaxMessage())]
		if err := m.c.Send(m.ctx, part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// Close ends a handshake whose context is done. The calls under way have the
// same.
func (m *messages) Close() error { return nil }

func (m *messages) LocalAddr() net.Addr              { return m.c.LocalAddr() }
func (m *messages) RemoteAddr() net.Addr             { return m.c.RemoteAddr() }
func (m *messages) SetDeadline(time.Time) error      { return nil }
func (m *messages) SetReadDeadline(time.Time) error  { return nil }
func (m *messages) SetWriteDeadline(time.Time) error { return nil }

// sealedMTU returns the path MTU of a secured connection, 0 where that is the
// one of others.
func sealedMTU(dev *verbs.Device, qp *verbs.QP, peer netip.Addr) (verbs.MTU, error) {
	m := dev.SealedMTU(peer)
	switch {
	case m == 0:
		return 0, verbs.ErrNotSealing
	case m < qp.Endpoint().PathMTU:
		return m, nil
	}
	return 0, nil
}

// handshakes are those of clients of a listener: side by side, so that a slow
// one holds up no other.
type handshakes struct {
	start sync.Once
	done  chan *Conn
	fail  error         // when the listener has ended
	over  chan struct{} // closed then
}

// mostHandshakes is how many there are at once, those that the program has not
// taken included.
const mostHandshakes = 256

// next returns the next connection that is secured.
func (h *handshakes) next(ctx context.Context, l *Listener) (*Conn, error) {
	h.start.Do(func() {
		h.done, h.over = make(chan *Conn), make(chan struct{})
		go h.run(l)
	})
	select {
	case c := <-h.done:
		return c, nil
	case <-h.over:
		return nil, h.fail
	case <-ctx.Done():
		return nil, &OpError{Op: "accept", Err: ctx.Err()}
	}
}

// run accepts connections until the listener ends.
func (h *handshakes) run(l *Listener) {
	var all sync.WaitGroup
	room := make(chan struct{}, mostHandshakes)
	ctx, cancel := context.WithCancel(context.Background())
	for {
		room <- struct{}{}
		r, err := l.request(ctx)
		if err != nil {
			h.fail = err
			break
		}
		all.Go(func() {
			defer func() { <-room }()
			c, err := r.Accept(ctx, l.cfg.PrivateData)
			if err != nil {
				r.Reject(nil) // if it is not answered: the peer would wait
				return
			}
			select {
			case h.done <- c:
			case <-c.Done():
				c.Close()
			case <-ctx.Done():
				c.Close()
			}
		})
	}
	cancel()
	all.Wait()
	close(h.over)
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
