package rocev2

import (
	"fmt"
	"strings"
	"testing"
	"testing/quick"
)

// PSNs are counted modulo 2^24; half of them precede any PSN (IBTA 9.7.2).
func TestPSNArithmetic(t *testing.T) {
	t.Parallel()
	tests := []struct {
		p, q PSN
		sub  int
	}{
		{0, 0, 0},
		{1, 0, 1},
		{0, 1, -1},
		{0, MaxPSN, 1},
		{MaxPSN, 0, -1},
		{0x7fffff, 0, 0x7fffff},
		{0x800000, 0, -0x800000},
		{0, 0x800000, -0x800000},
		{0x800001, 0, -0x7fffff},
		{5, 0xfffff0, 21},
	}
	for _, tt := range tests {
		if got := tt.p.Sub(tt.q); got != tt.sub {
			t.Errorf("%#x.Sub(%#x) = %d, want %d", tt.p, tt.q, got, tt.sub)
		}
		if got := tt.q.Add(tt.sub); got != tt.p {
			t.Errorf("%#x.Add(%d) = %#x, want %#x", tt.q, tt.sub, got, tt.p)
		}
		if before, after := tt.p.Before(tt.q), tt.p.After(tt.q); before != (tt.sub < 0) || after != (tt.sub > 0) {
			t.Errorf("%#x against %#x: before %t, after %t; distance %d", tt.p, tt.q, before, after, tt.sub)
		}
	}
	if MaxPSN.Next() != 0 {
		t.Errorf("MaxPSN.Next() = %#x, want 0", MaxPSN.Next())
	}
}

// The order of PSNs does not depend on where the count starts (IBTA 9.7.2).
func TestPSNProperties(t *testing.T) {
	t.Parallel()
	properties := map[string]any{
		"stays in 24 bits": func(a uint32, n int) bool {
			p := PSN(a) & PSNMask
			return p.Add(n)&^PSNMask == 0 && p.Next()&^PSNMask == 0
		},
		"Sub undoes Add": func(a uint32, n int32) bool {
			n = n << 8 >> 8
			p := PSN(a) & PSNMask
			return p.Add(int(n)).Sub(p) == int(n)
		},
		"Add undoes Sub": func(a, b uint32) bool {
			p, q := PSN(a)&PSNMask, PSN(b)&PSNMask
			return q.Add(p.Sub(q)) == p
		},
		"Add adds up": func(a uint32, m, n int16) bool {
			p := PSN(a) & PSNMask
			return p.Add(int(m)).Add(int(n)) == p.Add(int(m)+int(n))
		},
		"Next is Add(1)": func(a uint32) bool {
			p := PSN(a) & PSNMask
			return p.Next() == p.Add(1) && p.Before(p.Next()) && p.Next().After(p)
		},
		"one of before, equal, after": func(a, b uint32) bool {
			p, q := PSN(a)&PSNMask, PSN(b)&PSNMask
			n := 0
			for _, is := range []bool{p.Before(q), p == q, p.After(q)} {
				if is {
					n++
				}
			}
			return n == 1
		},
		"before is the reverse of after": func(a, b uint32) bool {
			p, q := PSN(a)&PSNMask, PSN(b)&PSNMask
			return p.Before(q) == q.After(p) || p.Sub(q) == -1<<23
		},
		"order does not depend on where the count starts": func(a, b, shift uint32) bool {
			p, q := PSN(a)&PSNMask, PSN(b)&PSNMask
			return p.Sub(q) == p.Add(int(shift)).Sub(q.Add(int(shift)))
		},
	}
	for name, property := range properties {
		if err := quick.Check(property, &quick.Config{MaxCount: 5000}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestQPNString(t *testing.T) {
	t.Parallel()
	for q, want := range map[QPN]string{0: "0x000000", 1: "0x000001", 0x11: "0x000011", 0x123456: "0x123456", MulticastQPN: "0xffffff"} {
		if got := q.String(); got != want {
			t.Errorf("QPN(%d).String() = %q, want %q", uint32(q), got, want)
		}
	}
}

// The path MTUs are the codes 1 to 5 for 256 to 4096 bytes (IBTA 5.2.1).
func TestMTU(t *testing.T) {
	t.Parallel()
	for m, want := range map[MTU]int{0: 0, MTU256: 256, MTU512: 512, MTU1024: 1024, MTU2048: 2048, MTU4096: 4096, 6: 0, 255: 0} {
		if got := m.Bytes(); got != want || m.Valid() != (want != 0) {
			t.Errorf("MTU(%d): %d bytes, valid %t; want %d", uint8(m), got, m.Valid(), want)
		}
		if back, err := MTUOf(want); (err == nil) != (want != 0) || err == nil && back != m {
			t.Errorf("MTUOf(%d) = %d, %v, want %d", want, back, err, m)
		}
	}
	for _, n := range []int{-1, 1, 255, 257, 8192} {
		if m, err := MTUOf(n); err == nil {
			t.Errorf("MTUOf(%d) = %v", n, m)
		}
	}
	for link, want := range map[int]MTU{
		-1: MTU256, 0: MTU256, 335: MTU256, 336: MTU256, 591: MTU256, 592: MTU512, 1500: MTU1024, 2127: MTU1024,
		2128: MTU2048, 2200: MTU2048, 4175: MTU2048, 4176: MTU4096, 9000: MTU4096, 65536: MTU4096,
	} {
		if got := LargestMTU(link); got != want {
			t.Errorf("LargestMTU(%d) = %v, want %v", link, got, want)
		}
	}
	if got := MTU(9).String(); got != "invalid MTU code 9" {
		t.Errorf("MTU(9).String() = %q", got)
	}
}

// The error for a number of bytes in place of a code says so.
func TestMTUOfBytes(t *testing.T) {
	t.Parallel()
	for m := MTU256; m <= MTU4096; m++ {
		n := m.Bytes()
		got, err := MTUOf(n)
		if got != m || err != nil || m.Err() != nil {
			t.Errorf("MTUOf(%d) = %v, %v; Err %v", n, got, err, m.Err())
		}
		mistaken := MTU(n)
		if err := mistaken.Err(); mistaken.Valid() || err == nil || !strings.Contains(err.Error(), fmt.Sprintf("use MTU%d or MTUOf(%d)", n, n)) {
			t.Errorf("MTU(%d): %v", n, err)
		}
	}
	for _, n := range []int{-1, 0, 5, 1000, 1 << 30} {
		if m, err := MTUOf(n); m != 0 || err == nil {
			t.Errorf("MTUOf(%d) = %v, %v", n, m, err)
		}
	}
	for _, m := range []MTU{0, 6, 1000} {
		if err := m.Err(); err == nil || !strings.Contains(err.Error(), "codes 1 to 5") {
			t.Errorf("%d: %v", m, err)
		}
	}
}

// Distances are counted modulo 2^24 too (IBTA 9.7.2).
func TestAhead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		p, q PSN
		want uint32
	}{{5, 5, 0}, {6, 5, 1}, {0, 0xffffff, 1}, {4, 5, 0xffffff}, {0x800000, 0, 0x800000}} {
		if got := c.p.Ahead(c.q); got != c.want {
			t.Errorf("%#x.Ahead(%#x) = %#x, want %#x", c.p, c.q, got, c.want)
		}
	}
}
