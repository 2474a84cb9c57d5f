package psp

import (
	"encoding/binary"
	"errors"
	"strconv"
)

const (
	// Port is the UDP port that PSP packets go to.
	Port = 1000
	// HeaderLen is the length of the header without cookie and extensions.
	HeaderLen = 16
	// ICVLen is the length of the integrity check value after the packet.
	ICVLen = 16
	// Overhead is by how much transport mode makes a UDP packet longer: the
	// UDP header to Port, the header and the integrity check value.
	Overhead = 8 + HeaderLen + ICVLen
	// UDP is the Next of a packet that has a UDP header after PSP's.
	UDP = 17

	// MaxCryptOffset is the largest CryptOffset of a header.
	MaxCryptOffset = 63 * 4
)

// Version is the algorithm of a packet.
type Version uint8

// Versions of the specification, 4.1.
const (
	GCM128  Version = iota // AES-GCM-128
	GCM256                 // AES-GCM-256
	GMAC128                // AES-GMAC-128: authenticates alone
	GMAC256                // AES-GMAC-256
	numVersions
)

var versionNames = [numVersions]string{"AES-GCM-128", "AES-GCM-256", "AES-GMAC-128", "AES-GMAC-256"}

// String returns the name of the algorithm.
func (v Version) String() string {
	if v < numVersions {
		return versionNames[v]
	}
	return "version " + strconv.Itoa(int(v))
}

// KeyLen returns the length of a key in bytes, 16 or 32.
func (v Version) KeyLen() int { return 16 << (v & 1) }

// Encrypts reports whether others cannot read the packet.
func (v Version) Encrypts() bool { return v < GMAC128 }

// Why a packet is refused. These are values to compare with, as a receiver
// counts packets by them.
var (
	ErrShort   = errors.New("psp: the packet is shorter than its header and the integrity check value")
	ErrFormat  = errors.New("psp: the header has a bit that is not as the specification has it: no PSP packet")
	ErrVersion = errors.New("psp: the packet has another version than the key, or one that is not known")
	ErrICV     = errors.New("psp: the integrity check value is wrong: the packet was changed, or sealed with another key")
)

// Header is the header of a packet.
type Header struct {
	Next        uint8 // IP protocol number of what follows: UDP
	CryptOffset uint8 // bytes after the first 16 of the header that are not encrypted, a multiple of 4
	Version     Version
	Sample      bool // the packet is to be looked at
	Drop        bool // the receiver shall drop the packet
	Virtual     bool // Cookie is there
	SPI         uint32
	IV          uint64
	Cookie      uint64 // virtualization cookie
}

// Bits of the fourth byte, the version in between.
const (
	sampleBit  = 1 << 7
	dropBit    = 1 << 6
	virtualBit = 1 << 1
	alwaysBit  = 1 << 0
)

// Len returns the length of the header in bytes.
func (h *Header) Len() int {
	if h.Virtual {
		return HeaderLen + 8
	}
	return HeaderLen
}

// AppendTo appends the header to b.
func (h *Header) AppendTo(b []byte) []byte {
	bits := uint8(h.Version)&15<<2 | alwaysBit
	if h.Sample {
		bits |= sampleBit
	}
	if h.Drop {
		bits |= dropBit
	}
	if h.Virtual {
		bits |= virtualBit
	}
	b = append(b, h.Next, uint8(h.Len()/8-1), h.CryptOffset/4&63, bits)
	b = binary.BigEndian.AppendUint32(b, h.SPI)
	b = binary.BigEndian.AppendUint64(b, h.IV)
	if h.Virtual {
		b = binary.BigEndian.AppendUint64(b, h.Cookie)
	}
	return b
}

// Parse decodes the header of a whole packet, and returns its length with
// extensions, which it does not look at. The packet is long enough for an
// integrity check value, too.
func Parse(packet []byte) (h Header, length int, err error) {
	if len(packet) < HeaderLen+ICVLen {
		return h, 0, ErrShort
	}
	bits := packet[3]
	h = Header{
		Next: packet[0], CryptOffset: packet[2] & 63 * 4, Version: Version(bits >> 2 & 15),
		Sample: bits&sampleBit != 0, Drop: bits&dropBit != 0, Virtual: bits&virtualBit != 0,
		SPI: binary.BigEndian.Uint32(packet[4:]), IV: binary.BigEndian.Uint64(packet[8:]),
	}
	length = (int(packet[1]) + 1) * 8
	switch {
	case bits&alwaysBit == 0 || length < h.Len():
		return h, 0, ErrFormat
	case h.Version >= numVersions:
		return h, 0, ErrVersion
	case len(packet) < length+ICVLen:
		return h, 0, ErrShort
	}
	if h.Virtual {
		h.Cookie = binary.BigEndian.Uint64(packet[HeaderLen:])
	}
	return h, length, nil
}
