package rocev2

import (
	"math/bits"
	"strconv"
	"time"
)

// Syndrome is the first byte of an AETH (IBTA 9.7.5.2.1): bits 6-5 are the
// kind, bits 4-0 a credit code, an RNR timer code or a NAK code. Bit 7 is
// reserved: a syndrome that has it set is of no kind.
type Syndrome uint8

// The syndromes with a fixed meaning.
const (
	// ACKNoCredits is an ACK that does not limit what the requester may
	// send: its credit count is to be ignored.
	ACKNoCredits Syndrome = 0x1f

	NAKSequence          Syndrome = 0x60 // PSN sequence error
	NAKInvalidRequest    Syndrome = 0x61
	NAKRemoteAccess      Syndrome = 0x62 // remote access error
	NAKRemoteOperational Syndrome = 0x63 // remote operational error
	NAKInvalidRD         Syndrome = 0x64 // invalid RD request

	syndromeKind Syndrome = 0xe0
	syndromeACK  Syndrome = 0x00
	syndromeRNR  Syndrome = 0x20
	syndromeNAK  Syndrome = 0x60
	syndromeCode Syndrome = 0x1f
)

// SyndromeACK returns the ACK with a credit code, of which five bits are used:
// a result of CreditCode, or 0x1f for no limit.
func SyndromeACK(creditCode uint8) Syndrome { return syndromeACK | Syndrome(creditCode)&syndromeCode }

// SyndromeRNR returns the receiver-not-ready NAK with a timer code, of which
// five bits are used: see RNRCode.
func SyndromeRNR(timer uint8) Syndrome { return syndromeRNR | Syndrome(timer)&syndromeCode }

// IsACK reports whether s is a positive acknowledgement.
func (s Syndrome) IsACK() bool { return s&syndromeKind == syndromeACK }

// IsRNR reports whether s says that the receiver was not ready.
func (s Syndrome) IsRNR() bool { return s&syndromeKind == syndromeRNR }

// IsNAK reports whether s is a negative acknowledgement other than receiver not
// ready. Its code may be a reserved one.
func (s Syndrome) IsNAK() bool { return s&syndromeKind == syndromeNAK }

// Code returns the lower five bits: the credit code of an ACK, the timer code
// of an RNR NAK, the code of a NAK.
func (s Syndrome) Code() uint8 { return uint8(s & syndromeCode) }

// Credits returns how many more messages that consume receive requests may be
// sent beyond the acknowledged one. It reports false if s is no ACK or does not
// limit them.
func (s Syndrome) Credits() (n int, limited bool) {
	if !s.IsACK() || s == ACKNoCredits {
		return 0, false
	}
	return int(credits[s]), true
}

// String returns what the syndrome says.
func (s Syndrome) String() string {
	switch {
	case s == ACKNoCredits:
		return "ACK"
	case s.IsACK():
		return "ACK, " + strconv.Itoa(int(credits[s])) + " credits"
	case s.IsRNR():
		return "RNR NAK, " + RNRDelay(s.Code()).String()
	}
	switch s {
	case NAKSequence:
		return "NAK: PSN sequence error"
	case NAKInvalidRequest:
		return "NAK: invalid request"
	case NAKRemoteAccess:
		return "NAK: remote access error"
	case NAKRemoteOperational:
		return "NAK: remote operational error"
	case NAKInvalidRD:
		return "NAK: invalid RD request"
	}
	return "reserved syndrome 0x" + string(hexDigits[s>>4]) + string(hexDigits[s&15])
}

// credits is the end-to-end credit encoding of IBTA 9.7.7.2.
var credits = [31]uint16{
	0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
	6144, 8192, 12288, 16384, 24576, 32768,
}

// CreditCode returns the code of the largest credit count that is not larger
// than n (IBTA 9.7.7.2).
func CreditCode(n int) uint8 {
	if n < 4 {
		return uint8(max(n, 0))
	}
	// Two codes for each power of two: it, and half as much again.
	log := bits.Len(uint(n)) - 1
	return uint8(min(2*log+n>>(log-1)&1, len(credits)-1))
}

// rnrDelays is the RNR NAK timer encoding of IBTA 9.7.5.2.8, in units of 10
// microseconds. Code 0 is the longest.
var rnrDelays = [32]uint32{
	0: 65536, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 7: 12, 8: 16, 9: 24, 10: 32, 11: 48, 12: 64, 13: 96, 14: 128, 15: 192,
	16: 256, 17: 384, 18: 512, 19: 768, 20: 1024, 21: 1536, 22: 2048, 23: 3072, 24: 4096, 25: 6144, 26: 8192,
	27: 12288, 28: 16384, 29: 24576, 30: 32768, 31: 49152,
}

// RNRDelay returns the least time that a requester waits after an RNR NAK with
// this timer code, of which five bits are used.
func RNRDelay(code uint8) time.Duration {
	return time.Duration(rnrDelays[code&31]) * 10 * time.Microsecond
}

// RNRCode returns the code of the smallest delay that is not shorter than d.
// Beyond 655.36 ms, the longest, it returns the code of that, 0.
func RNRCode(d time.Duration) uint8 {
	for code := uint8(1); code < 32; code++ {
		if RNRDelay(code) >= d {
			return code
		}
	}
	return 0
}

// AckTimeout returns the local ACK timeout of a queue pair attribute, of which
// five bits are used: 4.096 µs · 2^t (IBTA 9.7.6.1.3), or 0, no timeout, for 0.
func AckTimeout(t uint8) time.Duration {
	t &= 31
	if t == 0 {
		return 0
	}
	return 4096 * time.Nanosecond << t
}
