package perftest

import (
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/verbs"
)

const (
	goldenAddress = "0000:0080:00001a:9f3c21:00007e5d:00007f1a2b3c4000:" +
		"00:00:00:00:00:00:00:00:00:00:ff:ff:c6:12:00:02:00000000:\x00"
	goldenShort = "0000:0080:00001a:9f3c21:00007e5d:00007f1a2b3c4000:00000000\x00"
)

var goldenParsed = Address{
	OutReads: 128, QPN: 0x1a, PSN: 0x9f3c21, RKey: 0x7e5d, VAddr: 0x7f1a2b3c4000,
	GID: interop.GIDOf(netip.MustParseAddr("198.18.0.2")),
}

func TestItemsAreByteExact(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		what      string
		got, want string
	}{
		{"version of the originals", string(appendVersion(nil, false)), "6.06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"},
		{"version", string(appendVersion(nil, true)), "6.06\x00rocev2\x01\x00\x00\x00\x00"},
		{"page size", string(appendNumber(nil, pageSize)), "\x00\x00\x10\x00"},
		{"cache line size", string(appendNumber(nil, cacheLine)), "\x00\x00\x00\x40"},
		{"path MTU 1024", string(appendMTU(nil, verbs.MTU1024)), "3\x00"},
		{"path MTU 4096", string(appendMTU(nil, verbs.MTU4096)), "5\x00"},
		{"address", string(goldenParsed.append(nil)), goldenAddress},
	} {
		if tt.got != tt.want {
			t.Errorf("%s is %q, expected %q", tt.what, tt.got, tt.want)
		}
	}
	if len(goldenAddress) != addressLen || addressLen != 108 || len(goldenShort) != shortAddressLen || shortAddressLen != 59 {
		t.Errorf("addresses have %d and %d bytes; they must have 108 and 59", len(goldenAddress), len(goldenShort))
	}
	if a, err := parseAddress("address", []byte(goldenAddress)); err != nil || a != goldenParsed {
		t.Errorf("parsed %+v, %v; expected %+v", a, err, goldenParsed)
	}
	if !isShortAddress([]byte(goldenShort)) || isShortAddress([]byte(goldenAddress)) {
		t.Error("the two forms of address are taken for each other")
	}
}

func TestReportIsByteExact(t *testing.T) {
	t.Parallel()
	r := report{size: 65536, iterations: 5000, peak: 1000, average: 0.5, msgRate: 2}
	want := [5]uint64{65536, 5000, 0x408f400000000000, 0x3fe0000000000000, 0x4000000000000000}
	if r.items() != want || reportOf(want) != r {
		t.Errorf("report is %x, expected %x", r.items(), want)
	}
	nan := math.Float64bits(math.NaN())
	got := reportOf([5]uint64{1, 2, nan, math.Float64bits(math.Inf(1)), math.Float64bits(-1)})
	if (got != report{size: 1, iterations: 2}) {
		t.Errorf("a report without numbers is %+v", got)
	}
	big := resultOf(report{size: math.MaxUint64, iterations: math.MaxUint64, msgRate: 1e-300})
	if big.Size < 0 || big.Elapsed < 0 {
		t.Errorf("a huge report is %+v", big)
	}
}

func TestBadItems(t *testing.T) {
	t.Parallel()
	for _, v := range []string{"", "5.69", "abc", "-6.06", "6.0.6.1", "\xff\xff", "NaN", "1e9"} {
		b := make([]byte, versionLen)
		copy(b, v)
		if got, _, err := parseVersion(b); err == nil {
			t.Errorf("version %q is taken for %s", v, got)
		}
	}
	for _, v := range []string{"5.70", "6.06", "6.29", "6.06-rc1"} {
		b := make([]byte, versionLen)
		copy(b, v)
		if _, _, err := parseVersion(b); err != nil {
			t.Errorf("version %q: %v", v, err)
		}
	}
	for _, v := range []string{"0\x00", "6\x00", "33", "\x00\x00", "\xff\xff"} {
		if m, err := parseMTU([]byte(v)); err == nil {
			t.Errorf("MTU %q is taken for %v", v, m)
		}
	}
	for _, v := range []string{"\xff\xff\xff\xff", "\x7f\xff\xff\xff", "\x00\x10\x00\x01"} {
		if n, err := parseNumber("page size", []byte(v), maxCycle); err == nil {
			t.Errorf("page size %q is taken for %d", v, n)
		}
	}
	for i := range len(goldenAddress) {
		b := []byte(goldenAddress)
		b[i] = '~'
		if _, err := parseAddress("address", b); err == nil && i < addressLen-1 {
			t.Errorf("an address with a wrong byte at %d is accepted", i)
		}
		if i < addressLen-1 {
			if _, err := parseAddress("address", b[:i]); err == nil {
				t.Errorf("%d bytes of an address are accepted", i)
			}
		}
	}
	if _, err := parseAddress("address", []byte(strings.Replace(goldenAddress, "00001a", "100001a", 1))); err == nil {
		t.Error("a QPN of more than 24 bits is accepted")
	}
}

func FuzzAddress(f *testing.F) {
	f.Add([]byte(goldenAddress))
	f.Add([]byte(goldenShort))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseAddress("address", b)
		if err != nil {
			return
		}
		if again, err := parseAddress("address", a.append(nil)); err != nil || again != a {
			t.Errorf("%q parses to %+v, which is written and read back as %+v, %v", b, a, again, err)
		}
	})
}

func TestHistogram(t *testing.T) {
	t.Parallel()
	h := NewHistogram()
	if h.Quantile(0.5) != 0 || h.Latencies(2) != (Latencies{}) {
		t.Error("an empty histogram has latencies")
	}
	for i := 1; i <= 1000; i++ {
		h.Add(time.Duration(i) * time.Microsecond)
	}
	l := h.Latencies(1)
	near := func(what string, got, want time.Duration) {
		if d := got - want; d < -want/500 || d > want/500 {
			t.Errorf("%s is %v, expected about %v", what, got, want)
		}
	}
	near("median", l.Typical, 500*time.Microsecond)
	near("99 %", l.P99, 990*time.Microsecond)
	near("99.9 %", l.P999, 999*time.Microsecond)
	near("average", l.Average, 500500*time.Nanosecond)
	near("deviation", l.StdDev, 288675*time.Nanosecond)
	if l.Min != time.Microsecond || l.Max != time.Millisecond {
		t.Errorf("least and most are %v and %v", l.Min, l.Max)
	}
	if half := h.Latencies(2); half.Min != time.Microsecond/2 {
		t.Errorf("half a round trip is %v", half.Min)
	}
	h.Reset()
	for _, d := range []time.Duration{-1, 0, 2047, 2048, 2049, 4095, 4096, 1<<63 - 1} {
		h.Add(d)
		if b := bucketOf(max(d, 0)); b < 0 || b >= len(h.counts) {
			t.Errorf("%d falls into bucket %d of %d", d, b, len(h.counts))
		}
	}
	for b := range len(h.counts) {
		if got := bucketOf(valueOf(b)); got != b {
			t.Fatalf("the middle of bucket %d falls into bucket %d", b, got)
		}
	}
}
