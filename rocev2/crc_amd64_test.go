package rocev2

import (
	"math/big"
	"testing"
)

// P and the powers of x, as a textbook has them: the coefficient of x^i is bit
// i.
var polynomial = big.NewInt(0x104c11db7)

// divide returns quotient and remainder of polynomials.
func divide(p *big.Int) (quotient, remainder *big.Int) {
	quotient, remainder = new(big.Int), new(big.Int).Set(p)
	for remainder.BitLen() > 32 {
		shift := remainder.BitLen() - polynomial.BitLen()
		quotient.SetBit(quotient, shift, 1)
		remainder.Xor(remainder, new(big.Int).Lsh(polynomial, uint(shift)))
	}
	return quotient, remainder
}

func power(e int) *big.Int { return new(big.Int).Lsh(big.NewInt(1), uint(e)) }

// reversed turns a constant of the kernel, whose bit 0 is the coefficient of
// x^top, into a polynomial.
func reversed(c uint64, top int) *big.Int {
	p := new(big.Int)
	for i := range 64 {
		if c>>i&1 != 0 {
			p.SetBit(p, top-i, 1)
		}
	}
	return p
}

func TestMultipliers(t *testing.T) {
	t.Parallel()
	table := newFoldTable()
	check := func(name string, c uint64, e int) {
		t.Helper()
		if _, want := divide(power(e)); reversed(c, 32).Cmp(want) != 0 {
			t.Errorf("%s is %#x, not x^%d mod P = %#x", name, c, e, want)
		}
	}
	// The CRC multiplies by x^32. Of a product of 64 and 32 bits the lowest
	// power is in bit 95.
	behind := 0 // bits that follow in the packet
	for i := lastBlocks - 1; i >= 0; i-- {
		for j := 7; j >= 0; j-- {
			check("last", table.last[i][j], behind+32)
			behind += 64
		}
	}
	// In a vector it is in bit 127, 32 higher; the second 64 of 128 bits
	// have none after them.
	check("group", table.group[0], groupBlocks*512+64-32)
	check("group", table.group[1], groupBlocks*512-32)

	quotient, _ := divide(power(96))
	quotient.SetBit(quotient, 0, 0)
	if got := reversed(table.barrett[0], 64); got.Cmp(quotient) != 0 {
		t.Errorf("barrett[0] is %#x, want the quotient %#x", got, quotient)
	}
	if got := reversed(table.barrett[1], 32); got.Cmp(polynomial) != 0 {
		t.Errorf("barrett[1] is %#x, want P", got)
	}
}

// Every bit of a byte, and its images in the next group, leave the same
// remainder.
func TestMatrices(t *testing.T) {
	t.Parallel()
	table := newFoldTable()
	for i, from := range matrixBlocks {
		for bit := range 8 {
			sum := power((2*groupBlocks-1-from)*512 + 7 - bit)
			for j, to := range matrixBlocks {
				for out := range 8 {
					// As the instruction has it: bit out is
					// the parity of the operand and byte
					// 7-out of the matrix.
					if table.matrices[i][j]>>(8*(7-out)+bit)&1 != 0 {
						sum.Xor(sum, power((groupBlocks-1-to)*512+7-out))
					}
				}
			}
			if _, rest := divide(sum); rest.Sign() != 0 {
				t.Errorf("bit %d of block %d is off by %#x", bit, from, rest)
			}
		}
	}
}

func TestKernelOnThisMachine(t *testing.T) {
	if !haveKernel {
		t.Skip("this processor has no AVX-512 with VPCLMULQDQ and GFNI, so the vector kernel is not used; Ice Lake, Zen 4 and later have it")
	}
	b := make([]byte, 128)
	if got := testing.AllocsPerRun(10, func() {
		var b [128]byte
		updateKernel(0, b[:])
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
	for n := 4; n <= len(b); n += 4 {
		if foldWords(0, &b[0], n, folds) != 0 {
			t.Errorf("%d zero bytes change a zero register", n)
		}
	}
}

// kernels are the ways of the vector kernel to fold.
func kernels() map[string]func(r uint32, b []byte) uint32 {
	if !haveKernel {
		return nil
	}
	affine, products := *folds, *folds
	affine.multiply, products.multiply = 0, 1
	return map[string]func(r uint32, b []byte) uint32{
		"affine":   func(r uint32, b []byte) uint32 { return foldWords(r, &b[0], len(b), &affine) },
		"products": func(r uint32, b []byte) uint32 { return foldWords(r, &b[0], len(b), &products) },
	}
}
