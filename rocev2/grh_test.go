package rocev2

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
)

// IBTA A17.4.5.1: an IPv6 header fills the 40 bytes, an IPv4 header the last
// 20.
func TestGRH(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		h    GRH
		want string
	}{
		{
			"IPv4",
			GRH{
				Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), HopLimit: 64, NextHeader: 17,
				Length: 0x1c, ID: 0x1234,
			},
			"0000000000000000000000000000000000000000 4500003012344000401114870a0000010a000002",
		},
		{
			"IPv6",
			GRH{
				Src: netip.MustParseAddr("fe80::200:ff:fe00:1"), Dst: netip.MustParseAddr("fe80::200:ff:fe00:2"),
				TrafficClass: 0xa3, HopLimit: 64, NextHeader: 17, Length: 0x1c, FlowLabel: 0x54321,
			},
			"6a354321001c1140fe80000000000000020000fffe000001fe80000000000000020000fffe000002",
		},
	}
	for _, tt := range tests {
		want := unhex(t, tt.want)
		got := tt.h.AppendTo(poisoned(GRHLen))
		if !bytes.Equal(got, want) {
			t.Errorf("%s:\n got %x\nwant %x", tt.name, got, want)
		}
		var h GRH
		if err := h.Parse(append(want, "payload"...)); err != nil || h != tt.h {
			t.Errorf("%s: parsed %+v, %v; want %+v", tt.name, h, err, tt.h)
		}
		for n := range GRHLen {
			if err := h.Parse(want[:n:n]); !errors.Is(err, ErrShort) {
				t.Errorf("%s, %d bytes: %v, want %v", tt.name, n, err, ErrShort)
			}
		}
	}
}

// Without addresses the 40 bytes are zero, which is no header (IBTA 8.3). Nor
// is an IPv4 header with a wrong checksum (RFC 791).
func TestGRHWithoutHeader(t *testing.T) {
	t.Parallel()
	var h GRH
	zero := h.AppendTo(poisoned(GRHLen))
	if !bytes.Equal(zero, make([]byte, GRHLen)) {
		t.Errorf("without addresses: %x, want zeros", zero)
	}
	if err := h.Parse(zero); !errors.Is(err, ErrGRH) {
		t.Errorf("zeros: %v, want %v", err, ErrGRH)
	}
	ip := GRH{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), NextHeader: 17}
	b := ip.AppendTo(nil)
	b[30]++ // the checksum
	if err := h.Parse(b); !errors.Is(err, ErrGRH) {
		t.Errorf("wrong checksum: %v, want %v", err, ErrGRH)
	}
}
