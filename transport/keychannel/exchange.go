package keychannel

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/transport/guard"
)

// record is what each side says: see the documentation of the package.
type record struct {
	number, slots uint16
	own, peer     netip.Addr
}

const (
	recordLen     = 40
	recordVersion = 2
	mostSlots     = 256

	inUse = 1 // the last byte of the side that has connected
)

func (r *record) put() []byte {
	b := make([]byte, recordLen)
	b[0] = recordVersion
	binary.BigEndian.PutUint16(b[2:], r.number)
	binary.BigEndian.PutUint16(b[4:], r.slots)
	own, peer := r.own.As16(), r.peer.As16()
	copy(b[8:], own[:])
	copy(b[24:], peer[:])
	return b
}

func parseRecord(b []byte) (r record, err error) {
	if b[0] != recordVersion {
		return r, fmt.Errorf("the peer speaks version %d of the protocol, this side %d: use the same release of both", b[0], recordVersion)
	}
	r.number, r.slots = binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint16(b[4:])
	r.own, r.peer = netip.AddrFrom16([16]byte(b[8:24])).Unmap(), netip.AddrFrom16([16]byte(b[24:40])).Unmap()
	if r.number == 0 || r.number > guard.MaxNumber || r.slots == 0 || r.slots > mostSlots || r.slots&(r.slots-1) != 0 {
		return r, fmt.Errorf("the peer says what cannot be: number %d, %d slots", r.number, r.slots)
	}
	return r, nil
}

// exporterLabel is that of RFC 8446 7.5.
const exporterLabel = "EXPORTER-rocev2-host"

// secretOf exports the master key of a direction.
func secretOf(state *tls.ConnectionState, fromClient bool) (s guard.Secret, err error) {
	context := []byte{1}
	if fromClient {
		context[0] = 0
	}
	bytes, err := state.ExportKeyingMaterial(exporterLabel, context, psp.MasterKeyLen)
	if err != nil {
		return s, fmt.Errorf("derive a key: %w", err)
	}
	copy(s.Master[:], bytes)
	clear(bytes)
	s.Version = psp.GCM256
	if state.CipherSuite == tls.TLS_AES_128_GCM_SHA256 {
		s.Version = psp.GCM128
	}
	return s, nil
}

// agree agrees with a peer on keys, over a connection that it closes.
func (c *Channel) agree(ctx context.Context, conn net.Conn, peer netip.Addr, client bool) error {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return err
	}
	begun, base := time.Now(), c.tls.Load()
	var t *tls.Conn
	var name string
	if client {
		t = tls.Client(conn, c.cfg.client(base, peer, &name))
	} else {
		t = tls.Server(conn, c.cfg.server(base, peer, &name))
	}
	if err := t.HandshakeContext(ctx); err != nil {
		linger(conn)
		return err
	}
	state := t.ConnectionState()
	into, err := secretOf(&state, !client)
	if err != nil {
		return err
	}
	from, err := secretOf(&state, client)
	if err != nil {
		return err
	}
	into.Slots = uint16(c.cfg.Slots)
	if err := c.receives(peer, &into, begun); err != nil {
		return err
	}
	x := exchange{c, t, peer, name, &record{into.Number, into.Slots, c.local, peer}, &from}
	var o outcome
	if client {
		o, err = x.client()
	} else {
		o, err = x.server()
	}
	c.settle(peer, into.Number, o)
	return err
}

// exchange says what this side has to say, takes what the peer says, and has
// what goes to it sealed with its key. The side that has connected says it
// first, and in the end that it uses the key. That the connection ends does not
// say so: crypto/tls takes the end of a TCP connection, which any host on the
// way can forge, for one of TLS.
type exchange struct {
	*Channel
	conn *tls.Conn
	peer netip.Addr
	name string
	own  *record
	from *guard.Secret
}

func (x *exchange) client() (outcome, error) {
	if _, err := x.conn.Write(x.own.put()); err != nil {
		return unsure, err
	}
	theirs, err := x.hear()
	refused := (*net.OpError)(nil)
	switch {
	case theirs != nil && err != nil, errors.As(err, &refused) && refused.Op == "remote error":
		return unused, err
	case err != nil:
		return unsure, err
	}
	x.use(theirs, true)
	_, _ = x.conn.Write([]byte{inUse})
	return used, nil
}

func (x *exchange) server() (outcome, error) {
	theirs, err := x.hear()
	if err != nil {
		return unused, err
	}
	x.use(theirs, false) // before the peer goes on, so that both have the same order of handshakes
	if _, err := x.conn.Write(x.own.put()); err != nil {
		return unsure, err
	}
	var b [1]byte
	if _, err := io.ReadFull(x.conn, b[:]); err == nil && b[0] == inUse {
		return used, nil
	}
	return unsure, nil
}

// hear takes what the peer says. If that is wrong it returns it with the error.
func (x *exchange) hear() (*record, error) {
	var b [recordLen]byte
	if _, err := io.ReadFull(x.conn, b[:]); err != nil {
		return nil, err
	}
	r, err := parseRecord(b[:])
	if err == nil && (r.own != x.peer || r.peer != x.local) {
		err = fmt.Errorf("the peer is %v at %v, and takes this side for %v, not %v: addresses between the two are translated, or somebody is between them", r.own, x.peer, r.peer, x.local)
	}
	return &r, err
}

// use has what goes to the peer sealed with its key from now on.
func (x *exchange) use(r *record, client bool) {
	x.from.Number, x.from.Slots = r.number, r.slots
	x.sends(x.peer, x.from, x.name, client)
}

const (
	lingerTime = time.Second
	lingerMost = 64 << 10
)

// linger takes what the peer has sent still: the connection would be reset
// else, and the peer not see the alert that says what is wrong. It says that
// this side has ended: two sides that linger do not wait for each other.
func linger(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	if conn.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, lingerMost))
	}
}

// Why there are no keys.
var (
	errFull   = errors.New("there are keys of as many peers as there can be")
	errClosed = errors.New("keychannel: closed")
)
