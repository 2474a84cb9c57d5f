package psp

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"io"
)

const (
	// MasterKeyLen is the length of a master key in bytes: it is one of
	// AES-256, whatever the version of the keys derived from it.
	MasterKeyLen = 32
	// SecondMaster is the bit of an SPI that chooses the second of the two
	// master keys.
	SecondMaster = 1 << 31
)

// MasterKeys are the two master keys of a receiver. The zero MasterKeys have
// none: Rotate sets the first.
type MasterKeys struct {
	keys   [2]cipher.Block // nil: there is none
	second uint8           // index of the newer
}

// Rotate replaces the older of the two, of which it keeps no copy. New SPIs are
// of this one; those of the other stay valid until Rotate is called again.
func (m *MasterKeys) Rotate(key *[MasterKeyLen]byte) {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // of another length
	}
	if m.keys != [2]cipher.Block{} {
		m.second = 1 - m.second
	}
	m.keys[m.second] = block
}

// SPI returns the SPI of a number, of which the highest bit is not looked at,
// with the newer master key.
func (m *MasterKeys) SPI(number uint32) uint32 {
	return number&^SecondMaster | uint32(m.second)<<31
}

// Derive returns the key of an SPI, of KeyLen bytes: the specification's
// derivation, which is that of NIST SP 800-108 with a counter and AES-CMAC. It
// reports false if the SPI's master key is not there. That an SPI of a master
// key that was replaced is another one's by now it cannot see: such packets do
// not open.
func (m *MasterKeys) Derive(v Version, spi uint32) (key []byte, ok bool) {
	block := m.keys[spi>>31]
	if block == nil || v >= numVersions {
		return nil, false
	}
	in := [aes.BlockSize]byte{3: 1, 4: 'P', 5: 'v', 6: '0' + uint8(v)}
	binary.BigEndian.PutUint32(in[8:], spi)
	binary.BigEndian.PutUint32(in[12:], uint32(v.KeyLen()*8))
	for len(key) < v.KeyLen() {
		mac := cmac(block, in)
		key = append(key, mac[:]...)
		in[3]++
	}
	return key, true
}

// Format keeps the keys out of whatever prints the struct that they are in.
func (MasterKeys) Format(s fmt.State, _ rune) { io.WriteString(s, "master keys") }

// cmac is AES-CMAC (RFC 4493) of a single whole block.
func cmac(b cipher.Block, in [aes.BlockSize]byte) (mac [aes.BlockSize]byte) {
	var sub [aes.BlockSize]byte
	b.Encrypt(sub[:], sub[:])
	high, low := binary.BigEndian.Uint64(sub[:]), binary.BigEndian.Uint64(sub[8:])
	const polynomial = 0x87 // of GF(2^128)
	last := low<<1 ^ -(high>>63)&polynomial
	binary.BigEndian.PutUint64(sub[:], high<<1|low>>63)
	binary.BigEndian.PutUint64(sub[8:], last)
	for i := range in {
		in[i] ^= sub[i]
	}
	b.Encrypt(mac[:], in[:])
	return mac
}
