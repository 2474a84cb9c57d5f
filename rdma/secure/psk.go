package secure

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// MinPSK is how many bytes a secret of PSK has at least.
const MinPSK = 16

// ErrOtherPSK is the error of a handshake whose peer does not have the secret
// of PSK.
var ErrOtherPSK = errors.New("the peer does not have the pre-shared secret of this side")

// PSK returns a configuration for both sides, dialler and listener, that takes
// those peers that have the same secret, and no others: for tests, and for a
// few hosts of one owner, where certificates of an authority are too much.
//
// The secret gives an Ed25519 key (HKDF-SHA-256, RFC 5869). Each side presents
// a certificate that this key has signed itself, and takes that public key
// alone. So the handshake is that of TLS 1.3 with both sides authenticated: its
// keys are new each time, and the secret alone does not open what was recorded
// before.
//
// All that have the secret can pass for each other. A host that connects, or
// that is connected to, sees the public key and can try secrets against it
// without any further packet. So the secret is of random bytes, such as 32
// bytes of crypto/rand, and not a password: PSK takes none below MinPSK bytes.
func PSK(secret []byte) (*tls.Config, error) {
	if len(secret) < MinPSK {
		return nil, fmt.Errorf("a pre-shared secret of %d bytes: it has at least %d, of random bytes", len(secret), MinPSK)
	}
	seed, err := hkdf.Key(sha256.New, secret, nil, "rocev2 psk ed25519 v1", ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("derive a key of a pre-shared secret: %w", err)
	}
	key := ed25519.NewKeyFromSeed(seed)
	clear(seed)
	cert, err := selfSigned(key)
	if err != nil {
		return nil, err
	}
	public := key.Public().(ed25519.PublicKey)
	return &tls.Config{
		Certificates:           []tls.Certificate{cert},
		MinVersion:             tls.VersionTLS13,
		SessionTicketsDisabled: true,
		ClientAuth:             tls.RequireAnyClientCert, // VerifyConnection says which one
		InsecureSkipVerify:     true,                     // the same
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return ErrOtherPSK
			}
			theirs, ok := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
			if !ok || subtle.ConstantTimeCompare(theirs, public) != 1 {
				return ErrOtherPSK
			}
			return nil
		},
	}, nil
}

// selfSigned returns the certificate of a key. It is the same on both sides, as
// nothing in it is random, and no side looks at more of it than the key.
func selfSigned(key crypto.Signer) (tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "rocev2 psk"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // "none": RFC 5280 4.1.2.5
	}
	der, err := x509.CreateCertificate(bytes.NewReader(nil), template, template, key.Public(), key) // Ed25519 signs without randomness
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a certificate of a pre-shared secret: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
