package secure

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/verbs"
)

// Session is what a handshake of TLS has given its two sides: what they know of
// each other, and keys for queue pairs between them. Both sides call the same
// methods for the two queue pairs of a connection.
type Session struct {
	state  tls.ConnectionState
	client bool // this side has dialled
	log    keyLog
}

// Format tells the names of the peer, and nothing of what a session is made of.
func (s *Session) Format(f fmt.State, _ rune) {
	if s == nil {
		io.WriteString(f, "no session")
		return
	}
	fmt.Fprintf(f, "session of %s with %q", tls.VersionName(s.state.Version), Names(&s.state))
}

// Handshake has the handshake of TLS 1.3 over a connection that is not that of
// a queue pair, and on which nothing was said before. Without tickets, so that
// what comes then over the connection of TLS is the program's. client says that
// this side has dialled.
func Handshake(conn net.Conn, config *tls.Config, client bool) (*Session, *tls.Conn, error) {
	s := &Session{client: client}
	t := s.over(conn, minimal(config))
	if err := t.Handshake(); err != nil {
		return nil, nil, err
	}
	s.state = t.ConnectionState()
	return s, t, nil
}

// over returns the connection of TLS, with a configuration that is the
// session's own.
func (s *Session) over(conn net.Conn, config *tls.Config) *tls.Conn {
	config = s.log.of(config)
	if s.client {
		return tls.Client(conn, config)
	}
	return tls.Server(conn, config)
}

// State returns what the handshake has shown, such as the certificates of the
// peer. It reports false for no session, nil.
func (s *Session) State() (tls.ConnectionState, bool) {
	if s == nil {
		return tls.ConnectionState{}, false
	}
	return s.state, true
}

// Version is how packets are sealed: with an algorithm as strong as that of
// TLS.
func (s *Session) Version() verbs.SealVersion {
	if s.state.CipherSuite == tls.TLS_AES_128_GCM_SHA256 {
		return verbs.SealGCM128
	}
	return verbs.SealGCM256
}

// Require has a queue pair, which is in RESET or INIT, take no packet in clear
// from its first on. Seal follows when it is in RTR.
func (s *Session) Require(q *verbs.QP) error {
	sealing, err := q.Sealing()
	if err != nil {
		return err
	}
	return sealing.Require()
}

// Seal has all packets of a queue pair sealed, which is connected, and to and
// by which nothing was sent, or that has been told to Require it. The keys are
// master keys of the PSP Security Protocol that TLS exports (RFC 8446 7.5) with
// the label "EXPORTER-rocev2-psp-other". The context is 4 bytes of 0; 1 for
// packets to the side that has dialled, else 0; and the SHA-256 of numbers of 4
// bytes, in network byte order: those given, then the numbers of the queue
// pairs, first that of the side that has dialled. The SPI is the number of the
// queue pair.
//
// The numbers given are the same on both sides. A session in which the number
// of a queue pair may come again gives others then: with the same keys twice
// packets could be read.
func (s *Session) Seal(q *verbs.QP, numbers ...uint32) error {
	sealing, err := q.Sealing()
	if err != nil {
		return err
	}
	of := [2]uint32{uint32(q.QPN()), uint32(q.Query().DestQPN)}
	if !s.client {
		of[0], of[1] = of[1], of[0]
	}
	var bound []byte
	for _, list := range [][]uint32{numbers, of[:]} {
		for _, n := range list {
			bound = binary.BigEndian.AppendUint32(bound, n)
		}
	}
	keys, err := s.keys(q, otherLabel, bound)
	if err != nil {
		return err
	}
	defer keys.erase()
	if err := sealing.Accept(keys.into); err != nil {
		return err
	}
	if err := sealing.Seal(keys.from); err != nil {
		return err
	}
	return sealing.Require()
}

// Labels of what TLS exports (RFC 8446 7.5).
const (
	ownLabel   = "EXPORTER-rocev2-psp" // for the queue pair of the handshake
	otherLabel = ownLabel + "-other"   // for others
)

// keys are those of a queue pair.
type keys struct{ into, from verbs.Association }

func (k *keys) erase() {
	clear(k.into.Key)
	clear(k.from.Key)
}

// keys returns those of a queue pair, which is connected, for a label and what
// they are bound to, to be erased. The key log has them then.
func (s *Session) keys(q *verbs.QP, label string, bound []byte) (k keys, err error) {
	if k.into, err = s.association(label, bound, uint32(q.QPN()), s.client); err == nil {
		k.from, err = s.association(label, bound, uint32(q.Query().DestQPN), !s.client)
	}
	if err == nil {
		err = s.log.both(q, &k)
	}
	if err != nil {
		k.erase()
	}
	return k, err
}

// association returns that of an SPI, for packets in a direction.
func (s *Session) association(label string, bound []byte, spi uint32, toClient bool) (verbs.Association, error) {
	digest := sha256.Sum256(bound)
	context := []byte{4: 0}
	if toClient {
		context[4] = 1
	}
	secret, err := s.state.ExportKeyingMaterial(label, append(context, digest[:]...), psp.MasterKeyLen)
	if err != nil {
		return verbs.Association{}, fmt.Errorf("derive a key: %w", err)
	}
	var master psp.MasterKeys
	master.Rotate((*[psp.MasterKeyLen]byte)(secret))
	clear(secret)
	v := s.Version()
	key, _ := master.Derive(v, spi)
	return verbs.Association{SPI: spi, Version: v, Key: key}, nil
}
