package traffic

import (
	"fmt"
	"math/bits"
	"slices"
)

// Point is a point of a distribution: of 10,000 flows, Share have at most Bytes
// bytes.
type Point struct {
	Bytes int64
	Share int32 // of 10,000
}

// whole is the share of all flows.
const whole = 10_000

// Sizes is a distribution of flow sizes. Between two points it is linear.
type Sizes struct {
	name   string
	points []Point // the first is 0, 0
}

// The published distributions, from traffic_gen of
// alibaba-edu/High-Precision-Congestion-Control (2019). WebSearch is that of
// the DCTCP paper (SIGCOMM 2010), with a mean of 1.71 MB; Hadoop that of
// Facebook's clusters (Roy et al., SIGCOMM 2015), 120 KB; AliStorage that of
// Alibaba's storage in 2019, 40.9 KB. A KB is 1000 bytes there.
var (
	WebSearch = published("websearch", []Point{
		{10_000, 1500}, {20_000, 2000}, {30_000, 3000}, {50_000, 4000}, {80_000, 5300},
		{200_000, 6000}, {1_000_000, 7000}, {2_000_000, 8000}, {5_000_000, 9000},
		{10_000_000, 9700}, {30_000_000, whole},
	})
	Hadoop = published("hadoop", []Point{
		{100, 100}, {200, 200}, {300, 500}, {350, 1500}, {400, 2000}, {500, 3000},
		{600, 4000}, {700, 5000}, {1000, 6000}, {2000, 6700}, {7000, 7000},
		{30_000, 7200}, {50_000, 8200}, {80_000, 8700}, {120_000, 9000},
		{300_000, 9500}, {1_000_000, 9750}, {2_000_000, 9900}, {10_000_000, whole},
	})
	AliStorage = published("alistorage", []Point{
		{4000, 2293}, {8000, 6921}, {16_000, 8061}, {32_000, 9047}, {64_000, 9353},
		{128_000, 9677}, {256_000, 9753}, {2_000_000, whole},
	})
)

func published(name string, points []Point) *Sizes {
	return &Sizes{name, append([]Point{{}}, points...)}
}

// All returns the published distributions.
func All() []*Sizes { return []*Sizes{WebSearch, Hadoop, AliStorage} }

// ByName returns a published distribution: "websearch", "hadoop" or
// "alistorage". Of another name there is an error.
func ByName(name string) (*Sizes, error) {
	for _, s := range All() {
		if s.name == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("traffic: no flow sizes %q; there are websearch, hadoop and alistorage", name)
}

// maxBytes is the largest flow.
const maxBytes = 1 << 40

// NewSizes returns a distribution of its own. The bytes of the points rise,
// their shares do not fall, and the last share is 10,000. The error says which
// point is wrong.
func NewSizes(name string, points ...Point) (*Sizes, error) {
	last := Point{}
	for i, p := range points {
		if p.Bytes <= last.Bytes || p.Share < last.Share || p.Bytes > maxBytes || p.Share > whole {
			return nil, fmt.Errorf("traffic: point %d of sizes %q is %d bytes for %d of 10000 flows, after %d bytes for %d; bytes rise to at most %d, and shares do not fall",
				i, name, p.Bytes, p.Share, last.Bytes, last.Share, int64(maxBytes))
		}
		last = p
	}
	if last.Share != whole {
		return nil, fmt.Errorf("traffic: the points of sizes %q end at %d of 10000 flows; they must end at 10000", name, last.Share)
	}
	return published(name, slices.Clone(points)), nil
}

// Fixed returns the distribution of flows that all have one size.
func Fixed(bytes int64) (*Sizes, error) {
	if bytes < 1 || bytes > maxBytes {
		return nil, fmt.Errorf("traffic: flows of %d bytes; a flow has 1 to %d", bytes, int64(maxBytes))
	}
	if bytes == 1 {
		return NewSizes("1", Point{1, whole})
	}
	return NewSizes(fmt.Sprint(bytes), Point{bytes - 1, 0}, Point{bytes, whole})
}

// String returns the name.
func (s *Sizes) String() string { return s.name }

// Points returns the points after 0.
func (s *Sizes) Points() []Point { return slices.Clone(s.points[1:]) }

// Draw returns the size of a flow: from 1 byte to that of the last point.
func (s *Sizes) Draw(r Source) int64 {
	return s.at(r.Uint64())
}

// at is the inverse of the distribution at u/2^64, rounded up.
func (s *Sizes) at(u uint64) int64 {
	hi, lo := bits.Mul64(u, whole)
	share := hi<<32 | lo>>32 // in units of 2^-32 of a share
	i := 1
	for uint64(s.points[i].Share)<<32 <= share {
		i++
	}
	a, b := s.points[i-1], s.points[i]
	// a.Bytes + (b.Bytes-a.Bytes) * (share-a.Share) / (b.Share-a.Share)
	hi, lo = bits.Mul64(uint64(b.Bytes-a.Bytes), share-uint64(a.Share)<<32)
	part, _ := bits.Div64(hi, lo, uint64(b.Share-a.Share)<<32)
	return a.Bytes + int64(part) + 1
}

// Mean returns the mean of what Draw returns, rounded down to a byte.
func (s *Sizes) Mean() int64 {
	var hi, lo uint64 // of the sum of sizes by 2 * whole
	for i, b := range s.points[1:] {
		a := s.points[i]
		h, l := bits.Mul64(uint64(a.Bytes+b.Bytes), uint64(b.Share-a.Share))
		var carry uint64
		lo, carry = bits.Add64(lo, l, 0)
		hi += h + carry
	}
	lo, carry := bits.Add64(lo, whole, 0)
	mean, _ := bits.Div64(hi+carry, lo, 2*whole)
	return int64(mean)
}
