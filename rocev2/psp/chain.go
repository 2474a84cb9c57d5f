package psp

import (
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
	"io"
)

const (
	// MaxPackets is how many packets a key may seal. With the largest ones
	// it is as many bytes as AES-GCM may have by RFC 9001 6.6: 2^28 packets
	// of 2^11 bytes, which look random but for a chance of 2^-57. (NIST SP
	// 800-38D 8.3 bounds a key to 2^32 packets where the initialization
	// vectors are not counted.)
	MaxPackets = 1 << 27

	// generationBits are those of an SPI that are the generation of a key
	// of a Chain, above the 24 of the number.
	generationBits = SecondMaster - 1<<24
)

// Number returns the number of an SPI: the low 24 bits.
func Number(spi uint32) uint32 { return spi & (1<<24 - 1) }

// Later returns the SPI of the key of a Chain that is so many generations after
// that of spi. It comes round after 128; the keys do not.
func Later(spi uint32, generations uint64) uint32 {
	return spi&^generationBits | (spi+uint32(generations)<<24)&generationBits
}

// Between returns how many generations the key of an SPI is after that of
// another one, from -64 to 63, as far as SPIs can say.
func Between(spi, after uint32) int { return int(int8(spi>>24-after>>24) << 1 >> 1) }

// Chain is the keys of a security association, one after the other. Each
// generation has a secret, from which its key is derived, and the secret of the
// next one, as in RFC 8446 7.2. So an attacker that learns a key knows no other
// one, and with a secret no key before it.
//
//	secret 0   = HKDF-Extract("rocev2 psp", key of the association)
//	key n      = HKDF-Expand(secret n, "key" version SPI, length of the key)
//	secret n+1 = HKDF-Expand(secret n, "next", 32)
//
// HKDF is that of RFC 5869 with SHA-256; the version has one byte, and the SPI
// four, with the generation of the key. A Chain is not safe for concurrent use.
type Chain struct {
	version    Version
	generation uint64
	secret     *[sha256.Size]byte // a pointer, which package fmt does not follow
}

// NewChain returns the chain of an association with a key of KeyLen bytes, of
// which it keeps no copy.
func NewChain(v Version, key []byte) (*Chain, error) {
	if err := v.check(key); err != nil {
		return nil, err
	}
	secret, err := hkdf.Extract(sha256.New, key, []byte("rocev2 psp"))
	if err != nil {
		return nil, fmt.Errorf("psp: %w", err)
	}
	return &Chain{version: v, secret: (*[sha256.Size]byte)(secret)}, nil
}

// Version returns the algorithm of the keys.
func (c *Chain) Version() Version { return c.version }

// Generation returns how many keys have been before the present one.
func (c *Chain) Generation() uint64 { return c.generation }

// Key returns the present key, for packets of an association whose first key
// has an SPI.
func (c *Chain) Key(first uint32) *Key {
	spi := Later(first, c.generation)
	bytes := c.derive(string([]byte{'k', 'e', 'y', byte(c.version), byte(spi >> 24), byte(spi >> 16), byte(spi >> 8), byte(spi)}), c.version.KeyLen())
	k, err := NewKey(c.version, bytes)
	if err != nil {
		panic(err) // of another length
	}
	clear(bytes)
	return k
}

// Next goes on to the next generation. The secret of this one is gone then.
func (c *Chain) Next() {
	next := c.derive("next", len(c.secret))
	clear(c.secret[:])
	c.secret = (*[sha256.Size]byte)(next)
	c.generation++
}

// clone returns another chain at the same generation.
func (c *Chain) clone() *Chain {
	secret := *c.secret
	return &Chain{c.version, c.generation, &secret}
}

// Fingerprint returns what is the same for the same key of an association, to
// find one that is used again. It says nothing of the key.
func (c *Chain) Fingerprint() (f [16]byte) {
	copy(f[:], c.derive("fingerprint", len(f)))
	return f
}

// Erase overwrites the secret. The chain must not be used after that.
func (c *Chain) Erase() {
	clear(c.secret[:])
	*c = Chain{}
}

func (c *Chain) derive(info string, n int) []byte {
	out, err := hkdf.Expand(sha256.New, c.secret[:], info, n)
	if err != nil {
		panic(err) // of another length
	}
	return out
}

// Format keeps the secret out of whatever prints the struct that it is in.
func (Chain) Format(s fmt.State, _ rune) { io.WriteString(s, "keys") }
