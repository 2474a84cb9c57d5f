package rocev2

import (
	"hash/crc32"
	"math/bits"

	"golang.org/x/sys/cpu"
)

// The vector kernel follows V. Gopal et al., "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ Instruction" (Intel, 2009), in that it folds:
// what is far from the end of the packet is replaced by something nearer to the
// end that leaves the same remainder. P is the CRC's polynomial. Bits are in
// the order of transmission, the first bit (the lowest bit of the first byte)
// being the highest power of x, so a register holds x^31 in its lowest bit.
//
// A packet is a sequence of blocks of 64 bytes, of which the first one is
// filled up with zeros in front: these change nothing once the register has
// been added to the first 4 bytes of the packet.
//
// There are two ways to fold. Multiplying takes 64 bits v at a distance of e
// bits to v·(x^e mod P): two multiplications for every vector, and Zen 5 does
// one every other cycle, however wide. The other way takes bytes, and has the
// polynomials of degree below 8 at four places, 32 dimensions in all, make up
// the remainders modulo P. If none of these is in the span of the others, every
// bit of a byte further away has its image there: four matrices of 8 by 8 bits,
// which the affine transformation of GFNI applies to all bytes of a vector, two
// vectors a cycle. The places being whole blocks apart, nothing has to be
// shifted. Four blocks in a row happen to be dependent, but blocks 0, 2, 3 and
// 4 of a group of 5 are not. So these blocks go to the same ones of the next
// group by matrices, and meanwhile block 1 to block 1 by multiplication.
const (
	groupBlocks = 5
	blockBits   = 64 * 8
	lastBlocks  = 2*groupBlocks - 1 // the last group, and what is too little for another
)

// foldTable holds the constants of the kernel.
type foldTable struct {
	// last has, for every 64 bits of the last blocks of a packet, the
	// multiplier that takes them to its remainder.
	last [lastBlocks][8]uint64
	// matrices[i][j] takes matrixBlocks[i] of a group to matrixBlocks[j] of
	// the next group.
	matrices [4][4]uint64
	// group takes the first and the second 64 bits of 128 bits over a whole
	// group.
	group [2]uint64
	// barrett reduces a polynomial of degree below 96: x^96/P, without its
	// lowest bit, and P.
	barrett [2]uint64
	// multiply, if not 0, has all blocks of a group go to the next one by
	// multiplication.
	multiply uint64
}

var (
	matrixBlocks = [4]int{0, 2, 3, 4}

	// haveKernel says whether updateWords may be called. Package cpu sees
	// to it that the system saves the registers.
	haveKernel = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasAVX512GFNI &&
		cpu.X86.HasPCLMULQDQ && cpu.X86.HasAVX2 && cpu.X86.HasBMI2

	folds = fastest(newFoldTable())
)

// foldWords runs a register over n bytes at p. n is a multiple of 4, and not 0.
//
//go:noescape
func foldWords(r uint32, p *byte, n int, t *foldTable) uint32

// updateWords is update by the vector kernel. The length of b is a multiple of
// 4, and not 0.
func updateWords(r uint32, b []byte) uint32 { return foldWords(r, &b[0], len(b), folds) }

// ticks reads the time stamp counter of the processor.
func ticks() uint64

// fastest has t fold in the way that is faster here. Processors that multiply
// every cycle (Intel) are faster by multiplication alone: they do no more
// affine transformations than that.
func fastest(t *foldTable) *foldTable {
	if !haveKernel {
		return t
	}
	const tries = 16 // the least time counts: the first ones load what they use
	var b [4096]byte
	var least [2]uint64
	for i := range 2 * tries {
		way := i % 2
		t.multiply = uint64(way)
		start := ticks()
		foldWords(0, &b[0], len(b), t)
		if took := ticks() - start; i < 2 || took < least[way] {
			least[way] = took
		}
	}
	t.multiply = 0
	if least[1] < least[0] {
		t.multiply = 1
	}
	return t
}

func newFoldTable() *foldTable {
	// x^e mod P, as far as needed.
	var powers [(2*groupBlocks + 1) * blockBits]uint32
	powers[0] = 1 << 31
	for e := 1; e < len(powers); e++ {
		powers[e] = powers[e-1]>>1 ^ crc32.IEEE&-(powers[e-1]&1)
	}
	// The product of two numbers has its bits one lower than where the
	// product of two polynomials in this order of bits belongs. Multipliers
	// are shifted by one to make up for it, and leave 32 bits less than
	// 128.
	multiplier := func(e int) uint64 { return uint64(powers[e]) << 1 }

	t := new(foldTable)
	for i := range t.last {
		for j := range t.last[i] {
			t.last[i][j] = multiplier(blockBits*(lastBlocks-1-i) + 64*(7-j) + 32)
		}
	}
	t.group = [2]uint64{multiplier(blockBits*groupBlocks + 32), multiplier(blockBits*groupBlocks - 32)}
	t.matrices = foldMatrices(powers[:])
	t.barrett = [2]uint64{1, crc32.IEEE<<1 | 1}
	for i, r := 1, uint32(crc32.IEEE); i < 64; i++ { // division of x^96 by P, bit by bit
		t.barrett[0] |= uint64(r&1) << i
		r = r>>1 ^ crc32.IEEE&-(r&1)
	}
	return t
}

// foldMatrices solves for the images of all bits of a byte. powers are those of
// x modulo P.
func foldMatrices(powers []uint32) (m [4][4]uint64) {
	// place is the power of x that a bit of the first byte of a block of a
	// group is, but for a factor common to all.
	place := func(block, bit int) int { return blockBits*(groupBlocks-1-block) + 7 - bit }
	// basis[b] is a remainder whose lowest bit is b, and terms the bits
	// that it is the sum of, 8 for each of matrixBlocks.
	var basis [32]struct{ value, terms uint32 }
	// express returns which of the basis add up to v, and what is missing.
	express := func(v uint32) (terms, rest uint32) {
		for b := range basis {
			if v>>b&1 != 0 && basis[b].value != 0 {
				v ^= basis[b].value
				terms ^= basis[b].terms
			}
		}
		return terms, v
	}
	for i := range basis {
		terms, rest := express(powers[place(matrixBlocks[i/8], i%8)])
		at := bits.TrailingZeros32(rest) // out of range, were the places dependent
		basis[at].value, basis[at].terms = rest, terms^1<<i
	}
	for i, block := range matrixBlocks {
		for bit := range 8 {
			image, _ := express(powers[blockBits*groupBlocks+place(block, bit)])
			for out := range 32 { // a matrix has the row of bit 7 in its lowest byte
				m[i][out/8] |= uint64(image>>out&1) << (8*(7-out%8) + bit)
			}
		}
	}
	return m
}
