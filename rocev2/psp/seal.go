package psp

import (
	"crypto/aes"
	"crypto/cipher"
	"fmt"
)

// Key seals and opens packets with one algorithm. It is safe for concurrent
// use: the caller counts the IVs.
type Key struct {
	aead    cipher.AEAD
	version Version
}

// NewKey returns a key of a version, of KeyLen bytes, of which it keeps no
// copy.
func NewKey(v Version, key []byte) (*Key, error) {
	if err := v.check(key); err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("psp: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("psp: %w", err)
	}
	return &Key{aead, v}, nil
}

// check reports what is wrong with a key.
func (v Version) check(key []byte) error {
	switch {
	case v >= numVersions:
		return fmt.Errorf("psp: there is no %v: there are 0 to %d", v, numVersions-1)
	case len(key) != v.KeyLen():
		return fmt.Errorf("psp: a key of %d bytes: one of %v has %d", len(key), v, v.KeyLen())
	}
	return nil
}

// Version returns the algorithm of the key.
func (k *Key) Version() Version { return k.version }

// Format keeps a key out of whatever prints the struct that it is in.
func (k Key) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "key of %v", k.version) }

// Seal appends a packet to dst: a header, what follows it, and the integrity
// check value. Of what follows, clear is only authenticated, and secret is
// encrypted, too, with the versions that encrypt. The header's Version and
// CryptOffset are the key's and the length of clear, which is a multiple of 4,
// at most MaxCryptOffset less a cookie. dst must not overlap the two. It does
// not allocate if dst has room for all.
func (k *Key) Seal(dst []byte, h *Header, clear, secret []byte) []byte {
	return k.SealAfter(append(k.AppendHeader(dst, h, len(clear)), clear...), len(dst), secret)
}

// AppendHeader appends the header of packets to b, as Seal does. The clear
// bytes after it are only authenticated.
func (k *Key) AppendHeader(b []byte, h *Header, clear int) []byte {
	head := *h
	head.Version = k.version
	offset := head.Len() - HeaderLen + clear
	if offset%4 != 0 || offset > MaxCryptOffset {
		panic("psp: a header with a part in clear that it cannot tell")
	}
	head.CryptOffset = uint8(offset)
	return head.AppendTo(b)
}

// SealAfter is the rest of Seal, for callers that keep the header from packet
// to packet: from begin on dst has what AppendHeader has written, with the IV
// of the packet, and then the bytes that are only authenticated.
func (k *Key) SealAfter(dst []byte, begin int, secret []byte) []byte {
	if !k.version.Encrypts() {
		dst, secret = append(dst, secret...), nil
	}
	packet := dst[begin:]
	return k.aead.Seal(dst, nonce(packet), secret, packet)
}

// Open appends what is in a packet after its header to dst, if the packet was
// sealed with the key; else dst is as it was, and the error is one of ErrShort,
// ErrFormat, ErrVersion and ErrICV. The two must not overlap: see OpenInPlace.
// It does not allocate if dst has room for the packet.
func (k *Key) Open(dst, packet []byte) (h Header, plain []byte, err error) {
	h, n, err := Parse(packet)
	if err != nil {
		return h, dst, err
	}
	if h.Version != k.version {
		return h, dst, ErrVersion
	}
	end := n + k.clear(&h, n, len(packet)-ICVLen-n)
	plain = append(dst, packet[n:end]...)
	plain, err = k.aead.Open(plain, nonce(packet), packet[end:], packet[:end])
	if err != nil {
		return h, dst, ErrICV
	}
	return h, plain, nil
}

// OpenInPlace opens a packet of which Parse has returned the header and its
// length, and returns what is after the header, in its place. The error is
// ErrVersion or ErrICV; what was in the packet is lost then.
func (k *Key) OpenInPlace(packet []byte, h *Header, header int) (plain []byte, err error) {
	if h.Version != k.version {
		return nil, ErrVersion
	}
	last := len(packet) - ICVLen
	end := header + k.clear(h, header, last-header)
	if _, err := k.aead.Open(packet[end:end], nonce(packet), packet[end:], packet[:end]); err != nil {
		return nil, ErrICV
	}
	return packet[header:last], nil
}

// nonce is what AES-GCM takes for each packet: SPI and IV, as they stand in the
// header.
func nonce(packet []byte) []byte { return packet[4:HeaderLen] }

// clear returns how many bytes of size after a header of a length are not
// encrypted.
func (k *Key) clear(h *Header, header, size int) int {
	if !k.version.Encrypts() {
		return size
	}
	return min(max(HeaderLen+int(h.CryptOffset)-header, 0), size)
}
