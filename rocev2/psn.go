package rocev2

import (
	"fmt"
	"strconv"
)

const (
	// PSNMask has the bits of a PSN. Every PSN value has only these.
	PSNMask PSN = 1<<24 - 1
	// MaxPSN is the largest PSN; the next one is 0.
	MaxPSN = PSNMask
)

// PSN is a packet sequence number: 24 bits, counted modulo 2^24 (IBTA 9.2.6).
// Message sequence numbers (MSN) have the same arithmetic.
type PSN uint32

// Add returns the PSN that is n packets after p (before it, if n is negative).
func (p PSN) Add(n int) PSN { return (p + PSN(uint32(n))) & PSNMask }

// Next returns the PSN after p.
func (p PSN) Next() PSN { return (p + 1) & PSNMask }

// Sub returns the signed distance from q to p, in [-2^23, 2^23).
func (p PSN) Sub(q PSN) int { return int(int32((p-q)<<8) >> 8) }

// Before reports whether p comes before q: it is one of the 2^23 PSNs that
// precede q.
func (p PSN) Before(q PSN) bool { return p.Sub(q) < 0 }

// After reports whether p comes after q: it is one of the 2^23-1 PSNs that
// follow q. The PSN that is exactly 2^23 away comes before.
func (p PSN) After(q PSN) bool { return p.Sub(q) > 0 }

// Ahead returns the distance from q forward to p, 0 to 2^24-1. Unlike Sub it
// does not take the shorter way: it is for a p that is known not to precede q.
func (p PSN) Ahead(q PSN) uint32 { return uint32(p-q) & uint32(PSNMask) }

// QPN is a queue pair number: 24 bits.
type QPN uint32

const (
	// QPNMask has the bits of a QPN.
	QPNMask QPN = 1<<24 - 1
	// GSIQPN is the general services interface (IBTA chapter 16), which
	// carries connection management (chapter 12).
	GSIQPN QPN = 1
	// MulticastQPN is the destination of multicast packets (IBTA 10.5).
	MulticastQPN QPN = 0xffffff
)

// String returns the number as the field's tools print it: 0x and six
// hexadecimal digits.
func (q QPN) String() string {
	b := append(make([]byte, 0, 10), "0x"...)
	for shift := 20; shift > 0 && q>>shift == 0; shift -= 4 {
		b = append(b, '0')
	}
	return string(strconv.AppendUint(b, uint64(q), 16))
}

// MTU is a path MTU, which counts the payload of a packet. Its values are the
// codes 1 to 5 of connection management and verbs (enum ibv_mtu), not bytes:
// Bytes returns the bytes of a code, MTUOf the code of a number of bytes. The
// type has room for a number of bytes that a caller converts by mistake, so
// that it is recognised and refused.
type MTU uint16

// The path MTUs (IBTA 5.2.1): codes, whose names say the bytes.
const (
	MTU256  MTU = 1
	MTU512  MTU = 2
	MTU1024 MTU = 3
	MTU2048 MTU = 4
	MTU4096 MTU = 5
)

// mtuOverhead is what Linux sets aside for headers when it derives a port's MTU
// from that of its network interface. Peers use the same rule, so both ends
// arrive at the same path MTU.
const mtuOverhead = 80

// Bytes returns the MTU in bytes, or 0 if m is not valid.
func (m MTU) Bytes() int {
	if !m.Valid() {
		return 0
	}
	return 128 << m
}

// Valid reports whether m is one of the five MTUs.
func (m MTU) Valid() bool { return m >= MTU256 && m <= MTU4096 }

// String returns the MTU in bytes, as a decimal number.
func (m MTU) String() string {
	if !m.Valid() {
		return "invalid MTU code " + strconv.Itoa(int(m))
	}
	return strconv.Itoa(m.Bytes())
}

// Err says what is wrong with an MTU that is not valid, and what to do; nil if
// it is valid.
func (m MTU) Err() error {
	if m.Valid() {
		return nil
	}
	if of, err := MTUOf(int(m)); err == nil {
		return fmt.Errorf("MTU(%d) is a number of bytes, where a code is wanted: use MTU%d or MTUOf(%d), which is code %d",
			uint16(m), uint16(m), uint16(m), uint16(of))
	}
	return fmt.Errorf("MTU(%d) is not one of the codes 1 to 5, for 256, 512, 1024, 2048 and 4096 bytes: use MTU256 to MTU4096, or MTUOf",
		uint16(m))
}

// MTUOf returns the MTU of exactly n bytes, or an error that lists the MTUs.
func MTUOf(n int) (MTU, error) {
	for m := MTU256; m <= MTU4096; m++ {
		if m.Bytes() == n {
			return m, nil
		}
	}
	return 0, fmt.Errorf("no path MTU has %d bytes: there are 256, 512, 1024, 2048 and 4096", n)
}

// LargestMTU returns the largest path MTU that Linux gives a port on a network
// interface with an MTU of linkMTU bytes: the largest that leaves 80 bytes for
// headers. It is MTU256 when none does.
func LargestMTU(linkMTU int) MTU {
	for m := MTU4096; m > MTU256; m-- {
		if m.Bytes() <= linkMTU-mtuOverhead {
			return m
		}
	}
	return MTU256
}
