package secure

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"fmt"

	"github.com/gosoftroce/rocev2/rocev2/psp"
	"github.com/gosoftroce/rocev2/verbs"
)

// Other is the connection of two queue pairs that is made beside one that was
// secured, between the same two sides.
type Other struct {
	Client bool // this side has dialled

	// Numbers name it. They are the same on both sides, and no other beside
	// the first connection has them: with the same keys twice packets could
	// be read.
	Numbers []uint32
}

// Require has a queue pair, which is in RESET or INIT, take nothing in clear.
// Seal follows when it is in RTR.
func (o *Other) Require(q *verbs.QP) error {
	s, err := q.Sealing()
	if err != nil {
		return err
	}
	return s.Require()
}

// Seal has packets of a queue pair opened, and sealed, with keys that the first
// connection gives: master keys of the PSP Security Protocol that TLS exports
// (RFC 8446 7.5) with the label "EXPORTER-rocev2-psp-other". The context is 4
// bytes of 0; 1 for packets to the side that has dialled, else 0; and the
// SHA-256 of the numbers, in network byte order. The SPI is the number of the
// queue pair.
func (o *Other) Seal(q *verbs.QP, state *tls.ConnectionState) error {
	s, err := q.Sealing()
	if err != nil {
		return err
	}
	into, err := o.association(state, s.SPI(0), o.Client)
	if err != nil {
		return err
	}
	from, err := o.association(state, uint32(q.Query().DestQPN), !o.Client)
	if err != nil {
		return err
	}
	defer clear(into.Key)
	defer clear(from.Key)
	if err := s.Accept(into); err != nil {
		return err
	}
	return s.Seal(from)
}

const otherLabel = exporterLabel + "-other"

func (o *Other) association(state *tls.ConnectionState, spi uint32, toClient bool) (verbs.Association, error) {
	var named []byte
	for _, n := range o.Numbers {
		named = binary.BigEndian.AppendUint32(named, n)
	}
	digest := sha256.Sum256(named)
	direction := []byte{4: 0}
	if toClient {
		direction[4] = 1
	}
	secret, err := state.ExportKeyingMaterial(otherLabel, append(direction, digest[:]...), psp.MasterKeyLen)
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
