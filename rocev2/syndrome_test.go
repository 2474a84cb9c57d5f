package rocev2

import (
	"testing"
	"time"
)

func TestSyndromeKinds(t *testing.T) {
	t.Parallel()
	for i := range 256 {
		s := Syndrome(i)
		// IBTA 9.7.5.2.1: bits 6-5 are 00 for ACK, 01 for RNR NAK, 10
		// reserved and 11 for NAK. With bit 7 set all are reserved.
		ack, rnr, nak := i>>5 == 0, i>>5 == 1, i>>5 == 3
		if s.IsACK() != ack || s.IsRNR() != rnr || s.IsNAK() != nak {
			t.Errorf("%#x: ACK %t, RNR %t, NAK %t", i, s.IsACK(), s.IsRNR(), s.IsNAK())
		}
		if s.Code() != uint8(i&31) {
			t.Errorf("%#x: code %d", i, s.Code())
		}
		if s.String() == "" {
			t.Errorf("%#x: no string", i)
		}
		if _, limited := s.Credits(); limited != (ack && i != 0x1f) {
			t.Errorf("%#x: limited %t", i, limited)
		}
		if ack && SyndromeACK(uint8(i)) != s || rnr && SyndromeRNR(uint8(i)) != s {
			t.Errorf("%#x is not made from its code", i)
		}
	}
	for s, want := range map[Syndrome]string{
		ACKNoCredits: "ACK", 0x05: "ACK, 6 credits", 0x2e: "RNR NAK, 1.28ms", 0x20: "RNR NAK, 655.36ms",
		NAKSequence: "NAK: PSN sequence error", NAKRemoteAccess: "NAK: remote access error",
		0x65: "reserved syndrome 0x65", 0x9f: "reserved syndrome 0x9f",
	} {
		if got := s.String(); got != want {
			t.Errorf("Syndrome(%#x).String() = %q, want %q", uint8(s), got, want)
		}
	}
}

func TestCredits(t *testing.T) {
	t.Parallel()
	// IBTA 9.7.7.2: codes 0 to 4 are themselves, then two codes for each
	// power of two.
	want := []int{0, 1, 2, 3, 4}
	for n := 6; len(want) < 31; n *= 2 {
		want = append(want, n, n/3*4)
	}
	for code, n := range want {
		if got, limited := SyndromeACK(uint8(code)).Credits(); got != n || !limited {
			t.Errorf("code %d: %d credits, limited %t; want %d", code, got, limited, n)
		}
		if got := CreditCode(n); got != uint8(code) {
			t.Errorf("CreditCode(%d) = %d, want %d", n, got, code)
		}
		if got := CreditCode(n + 1); code > 4 && got != uint8(code) {
			t.Errorf("CreditCode(%d) = %d, want %d, as for %d", n+1, got, code, n)
		}
	}
	for n, code := 0, 0; n <= 1<<16; n++ {
		if code+1 < len(credits) && int(credits[code+1]) <= n {
			code++
		}
		if got := CreditCode(n); got != uint8(code) {
			t.Fatalf("CreditCode(%d) = %d, want %d", n, got, code)
		}
	}
	if got := CreditCode(-1); got != 0 {
		t.Errorf("CreditCode(-1) = %d", got)
	}
	if got := CreditCode(1 << 30); got != 30 {
		t.Errorf("CreditCode(2^30) = %d, want 30", got)
	}
}

// IBTA 9.7.5.2.8: code 0 is 655.36 ms, the others grow from 0.01 ms to 491.52
// ms.
func TestRNRTimer(t *testing.T) {
	t.Parallel()
	// IBTA 9.7.5.2.8, in milliseconds.
	want := []float64{
		655.36, .01, .02, .03, .04, .06, .08, .12, .16, .24, .32, .48, .64, .96, 1.28, 1.92, 2.56, 3.84, 5.12, 7.68,
		10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52,
	}
	for code, ms := range want {
		d := time.Duration(ms*1000+.5) * time.Microsecond
		if got := RNRDelay(uint8(code)); got != d {
			t.Errorf("RNRDelay(%d) = %v, want %v", code, got, d)
		}
		if got := RNRDelay(uint8(code) | 0xe0); got != d {
			t.Errorf("RNRDelay(%#x) = %v, want %v: only five bits count", code|0xe0, got, d)
		}
		if got := RNRCode(d); got != uint8(code) {
			t.Errorf("RNRCode(%v) = %d, want %d", d, got, code)
		}
		if got := RNRCode(d - 1); got != uint8(code) {
			t.Errorf("RNRCode(%v) = %d, want %d", d-1, got, code)
		}
	}
	for d, code := range map[time.Duration]uint8{-1: 1, 0: 1, 10*time.Microsecond + 1: 2, time.Hour: 0} {
		if got := RNRCode(d); got != code {
			t.Errorf("RNRCode(%v) = %d, want %d", d, got, code)
		}
	}
}

// IBTA 9.7.6.1.3: 4.096 µs · 2^t, and no timeout for 0.
func TestAckTimeout(t *testing.T) {
	t.Parallel()
	for code, want := range map[uint8]time.Duration{
		0: 0, 1: 8192, 14: 67108864, 19: 2147483648, 31: 4096 << 31, 32: 0, 32 + 14: 67108864,
	} {
		if got := AckTimeout(code); got != want {
			t.Errorf("AckTimeout(%d) = %v, want %v", code, got, want)
		}
	}
}
