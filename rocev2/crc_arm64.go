//go:build !portable

package rocev2

import (
	"math/bits"

	"golang.org/x/sys/cpu"
)

// The CRC32X instruction runs a register over 8 bytes. The next one waits 2 or
// 3 cycles for its result, and a processor begins one every cycle. A single
// chain of them, which is what hash/crc32 has, waits for most of the time.
// There are two ways out, and one that is both:
//
//   - Four chains over four parts of the packet. Each register is then taken
//     over the parts after its own. Every processor with CRC32X can do that.
//   - Folding by multiplication (PMULL), see crc_amd64.go: two multiplications
//     for 16 bytes, of which processors begin one to four every cycle. A block
//     of 128 bytes is folded to the next one, so eight vectors are under way
//     side by side. What is left in the end is 16 bytes: two CRC32X make the
//     register of them, and no other reduction is needed.
//   - Folding the first half while four chains run over the second one. The
//     two use different units of the processor.
//
// For 64 bytes a single chain is 16 instructions, 8 of which wait for each
// other. Four chains are 14, where 2 wait; folding is 18, or 14 with the
// three-way sum, and 3 or 2 wait for each other every 128 bytes; both together
// are 15. Which is the fastest depends on the units that a processor has, so it
// is measured at the start. What is slower than a single chain is not taken.
//
// What is no whole block comes first, in a single chain.
const (
	blockLen  = 128
	vectorLen = 16

	// bothMax is how long a packet may be for both: most of a jumbo frame.
	bothMax = 32 * 2 * blockLen
	// chainStep is how many bytes of each chain both takes beside a block.
	chainStep = blockLen / 4
)

// foldTable holds the constants of the kernels.
type foldTable struct {
	// last has the multipliers that take vectors 0 to 6 of a block to its
	// vector 7, and then those that take any vector over a block.
	last [blockLen / vectorLen][2]uint64
	// chains[k] takes a register over k*chainStep bytes, but for a last
	// CRC32X.
	chains [4*bothMax/(2*blockLen) + 1]uint64
}

// way is a way to run a register over bytes.
type way uint8

const (
	wayChain  way = iota // one chain, as hash/crc32 does
	wayChains            // four chains
	wayFold              // folding
	wayFold3             // folding, with the three-way sum of SHA3
	wayBoth              // folding beside four chains
	ways
)

// can reports whether this processor has the instructions.
func (w way) can() bool {
	switch f := &cpu.ARM64; w {
	case wayFold, wayBoth:
		return f.HasCRC32 && f.HasPMULL
	case wayFold3:
		return f.HasCRC32 && f.HasPMULL && f.HasSHA3
	default:
		return f.HasCRC32
	}
}

// The sizes of the parts that four chains run over, and what takes a register
// over one of them.
const (
	longPart  = 1024
	shortPart = 256
)

var (
	// haveKernel says whether updateWords may be called.
	haveKernel = wayChain.can()

	folds               = newFoldTable()
	overLong, overShort = newSkip(longPart), newSkip(shortPart)

	// fastest has the way to take by length: from 256 bytes, from 1024, and
	// from 4096. Below, there is one chain.
	fastest = chooseWays()
)

// chain runs a register over n bytes at p. n is a multiple of 4, and not 0.
//
//go:noescape
func chain(r uint32, p *byte, n int) uint32

// fourChains runs four registers over n bytes each. n is a multiple of 16, and
// not 0.
//
//go:noescape
func fourChains(r *[4]uint32, p *byte, n int)

// fold is chain by folding, for n from blockLen.
//
//go:noescape
func fold(r uint32, p *byte, n int, t *foldTable) uint32

// fold3 is fold with the three-way sum.
//
//go:noescape
func fold3(r uint32, p *byte, n int, t *foldTable) uint32

// both is chain by folding beside four chains, for n from 2*blockLen to
// less than bothMax+2*blockLen.
//
//go:noescape
func both(r uint32, p *byte, n int, t *foldTable) uint32

// ticks reads the system's counter, whose frequency may be as low as 24 MHz.
func ticks() uint64

// updateWords is update by the kernels. The length of b is a multiple of 4, and
// not 0.
func updateWords(r uint32, b []byte) uint32 {
	n := len(b)
	if n < shortest {
		return chain(r, &b[0], n)
	}
	return fastest[class(n)].update(r, b)
}

// shortest is the length from which there are ways to choose from: the least
// that both takes.
const shortest = 2 * blockLen

// classLens are where the classes of length begin.
var classLens = [3]int{shortest, 4 * shortest, 16 * shortest}

// class returns the class of a length from shortest.
func class(n int) int { return min((bits.Len(uint(n))-bits.Len(shortest))/2, len(classLens)-1) }

// update is updateWords in one way, for b from shortest.
func (w way) update(r uint32, b []byte) uint32 {
	switch w {
	case wayChains:
		return updateChains(r, b)
	case wayFold:
		return fold(r, &b[0], len(b), folds)
	case wayFold3:
		return fold3(r, &b[0], len(b), folds)
	case wayBoth:
		for ; len(b) >= bothMax+shortest; b = b[bothMax:] {
			r = both(r, &b[0], bothMax, folds)
		}
		return both(r, &b[0], len(b), folds)
	}
	return chain(r, &b[0], len(b))
}

// updateChains is update by four chains.
func updateChains(r uint32, b []byte) uint32 {
	for ; len(b) >= 4*longPart; b = b[4*longPart:] {
		r = updateParts(r, &b[0], longPart, overLong)
	}
	for ; len(b) >= 4*shortPart; b = b[4*shortPart:] {
		r = updateParts(r, &b[0], shortPart, overShort)
	}
	if len(b) > 0 {
		r = chain(r, &b[0], len(b))
	}
	return r
}

// updateParts runs a register over four parts of n bytes. over takes a register
// over one.
func updateParts(r uint32, p *byte, n int, over *linearMap) uint32 {
	c := [4]uint32{r}
	fourChains(&c, p, n)
	return over.apply(over.apply(over.apply(c[0])^c[1])^c[2]) ^ c[3]
}

// newSkip returns what takes a register over n bytes, a multiple of 64.
func newSkip(n int) *linearMap {
	var zeros [64]byte
	m := newLinearMap(func(i int) uint32 {
		r := uint32(1) << i
		for range n / len(zeros) {
			r = updateTables(r, zeros[:])
		}
		return r
	})
	return &m
}

// chooseWays measures which way is the fastest here.
func chooseWays() (chosen [len(classLens)]way) {
	if !haveKernel {
		return chosen
	}
	var b [16*shortest + BTHLen]byte
	for i, n := range classLens {
		// As long as packets are: their headers are no whole block.
		chosen[i] = fastestWay(b[:n+BTHLen])
	}
	return chosen
}

// fastestWay returns the fastest way for packets that are as long as b.
func fastestWay(b []byte) (best way) {
	const (
		tries   = 5    // the least time counts: the first ones load what they use
		enough  = 64   // ticks
		atLeast = 8192 // bytes, so that reading the counter does not count
	)
	calls := atLeast/len(b) + 1
	measure := func(w way) uint64 {
		start := ticks()
		for range calls {
			w.update(0, b)
		}
		return ticks() - start
	}
	for calls < 1024 && measure(wayChain) < enough {
		calls *= 2
	}
	var least [ways]uint64
	for try := range tries {
		for w := range ways {
			if !w.can() {
				continue
			}
			if took := measure(w); try == 0 || took < least[w] {
				least[w] = took
			}
		}
	}
	for w := range ways {
		if w.can() && least[w] < least[best] {
			best = w
		}
	}
	return best
}

func newFoldTable() *foldTable {
	// A register of 1<<31 is 1, and n zero bytes make it x^8n mod P. It is
	// shifted by one as in crc_amd64.go, and takes 64 bits 8n+32 bits far.
	// That leaves the first half of a vector 4 bytes more than its
	// distance, and the second 4 less.
	var zeros [blockLen + 8]byte
	multiplier := func(n int) uint64 { return uint64(updateTables(1<<31, zeros[:n])) << 1 }
	t := new(foldTable)
	for i := range t.last {
		n := blockLen - vectorLen*(i+1)
		if n == 0 {
			n = blockLen
		}
		t.last[i] = [2]uint64{multiplier(n + 4), multiplier(n - 4)}
	}
	r := updateTables(1<<31, zeros[:chainStep-4])
	for k := 1; k < len(t.chains); k++ {
		t.chains[k] = uint64(r) << 1
		r = updateTables(r, zeros[:chainStep])
	}
	return t
}
