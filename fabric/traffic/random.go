package traffic

import "math/bits"

// Source is a stream of random words.
type Source interface {
	Uint64() uint64
}

// below returns a number from 0 to n-1, each as likely as the others (Lemire,
// "Fast random integer generation in an interval", 2019).
func below(r Source, n int) int {
	bound := uint64(n)
	hi, lo := bits.Mul64(r.Uint64(), bound)
	if lo < bound {
		least := -bound % bound
		for lo < least {
			hi, lo = bits.Mul64(r.Uint64(), bound)
		}
	}
	return int(hi)
}

// shuffled returns 0 to n-1 in random order.
func shuffled(r Source, n int) []int32 {
	order := make([]int32, n)
	for i := range order {
		order[i] = int32(i)
	}
	for i := n - 1; i > 0; i-- {
		j := below(r, i+1)
		order[i], order[j] = order[j], order[i]
	}
	return order
}

// cyclic returns a permutation of 0 to n-1 that is one cycle, so that nothing
// stays where it is when n > 1 (Sattolo 1986).
func cyclic(r Source, n int) []int32 {
	order := make([]int32, n)
	for i := range order {
		order[i] = int32(i)
	}
	for i := n - 1; i > 0; i-- {
		j := below(r, i)
		order[i], order[j] = order[j], order[i]
	}
	return order
}

// ln2 is the natural logarithm of 2 in units of 2^-64.
const ln2 uint64 = 0xB17217F7D1CF79AB

// exponential returns a number with the exponential distribution of mean 1, in
// units of 2^-32. It is at most 45.
func exponential(r Source) uint64 {
	return minusLog(r.Uint64() | 1) // never 0
}

// minusLog returns -ln(u/2^64) in units of 2^-32, rounded down, for u > 0.
// The bits of the logarithm to base 2 come one by one: squaring a number
// doubles its logarithm.
func minusLog(u uint64) uint64 {
	zeros := bits.LeadingZeros64(u)
	x := u << zeros // from 1 to 2, in units of 2^-63
	var fraction uint64
	for range 40 {
		hi, lo := bits.Mul64(x, x) // from 1 to 4, in units of 2^-126
		fraction <<= 1
		if hi>>63 != 0 {
			fraction |= 1
			x = hi
		} else {
			x = hi<<1 | lo>>63
		}
	}
	// -log2(u/2^64) = zeros + 1 - log2(x), in units of 2^-40.
	log := uint64(zeros+1)<<40 - fraction
	hi, _ := bits.Mul64(log, ln2)
	return hi >> 8
}
