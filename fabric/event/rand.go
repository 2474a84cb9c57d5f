package event

import "math/bits"

// golden is 2^64 divided by the golden ratio, the step of splitmix64.
const golden = 0x9e3779b97f4a7c15

// Mix is the finisher of splitmix64 (Steele, Lea, Flood: Fast Splittable
// Pseudorandom Number Generators): a bijection whose bits all depend on all
// bits of x.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Rand is a splitmix64 generator: a value of 8 bytes, integers only, the same
// numbers on every processor. It is for simulations, not for secrets.
type Rand struct{ state uint64 }

// NewRand returns a generator. Streams of one seed are independent of each
// other, so every switch and every flow can have its own.
func NewRand(seed, stream uint64) Rand {
	return Rand{Mix(seed+golden) ^ Mix(Mix(stream+golden))}
}

// Uint64 returns 64 random bits.
func (r *Rand) Uint64() uint64 {
	r.state += golden
	return Mix(r.state)
}

// Uint64n returns a number below n, each equally likely. Of n = 0 it returns 0.
// (Lemire: Fast Random Integer Generation in an Interval.)
func (r *Rand) Uint64n(n uint64) uint64 {
	hi, lo := bits.Mul64(r.Uint64(), n)
	if lo < n {
		for floor := -n % n; lo < floor; {
			hi, lo = bits.Mul64(r.Uint64(), n)
		}
	}
	return hi
}

// Digest is a running hash of words in their order. The zero Digest is ready.
// It tells runs apart, and does not withstand forgers.
type Digest uint64

// Add appends a word.
func (d *Digest) Add(word uint64) {
	x := (uint64(*d)^word)*golden + 1
	*d = Digest(x ^ x>>29)
}

// Sum returns the hash of all words so far.
func (d Digest) Sum() uint64 { return Mix(uint64(d)) }
