package psp

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
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

// OneMaster returns two master keys that are the same one: the highest bit of
// an SPI chooses nothing.
func OneMaster(key *[MasterKeyLen]byte) *MasterKeys {
	m := new(MasterKeys)
	m.Rotate(key)
	m.keys[1] = m.keys[0]
	return m
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
	work := new([2][aes.BlockSize]byte) // in one piece: strangers can have keys derived
	sub, in := work[0][:], work[1][:]
	subkey(block, sub)
	key = make([]byte, v.KeyLen())
	for at := 0; at < len(key); at += aes.BlockSize {
		copy(in, []byte{3: uint8(1 + at/aes.BlockSize), 4: 'P', 5: 'v', 6: '0' + uint8(v), 7: 0})
		binary.BigEndian.PutUint32(in[8:], spi)
		binary.BigEndian.PutUint32(in[12:], uint32(v.KeyLen()*8))
		subtle.XORBytes(in, in, sub)
		block.Encrypt(key[at:], in)
	}
	return key, true
}

// Format keeps the keys out of whatever prints the struct that they are in.
func (MasterKeys) Format(s fmt.State, _ rune) { io.WriteString(s, "master keys") }

// subkey is K1 of AES-CMAC (RFC 4493 2.3), for messages of whole blocks. The
// code of a message of one block is the block, plus the subkey, encrypted.
func subkey(b cipher.Block, sub []byte) {
	clear(sub)
	b.Encrypt(sub, sub)
	high, low := binary.BigEndian.Uint64(sub), binary.BigEndian.Uint64(sub[8:])
	const polynomial = 0x87 // of GF(2^128)
	binary.BigEndian.PutUint64(sub, high<<1|low>>63)
	binary.BigEndian.PutUint64(sub[8:], low<<1^-(high>>63)&polynomial)
}
