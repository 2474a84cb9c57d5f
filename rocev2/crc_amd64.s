#include "go_asm.h"
#include "textflag.h"

// FOLD4 sets out to the sum of data and of what the matrices make of blocks 0, 2, 3 and 4.
#define FOLD4(m0, m2, m3, m4, data, out) \
	VGF2P8AFFINEQB $0, m0, Z0, out;   \
	VGF2P8AFFINEQB $0, m2, Z2, Z12;   \
	VPTERNLOGD $0x96, data, Z12, out; \
	VGF2P8AFFINEQB $0, m3, Z3, Z13;   \
	VGF2P8AFFINEQB $0, m4, Z4, Z14;   \
	VPTERNLOGD $0x96, Z13, Z14, out

// PRODUCT takes a block to the same one of the next group by multiplication, and adds data.
#define PRODUCT(block, data) \
	VPCLMULQDQ $0x00, Z15, block, Z5;     \
	VPCLMULQDQ $0x11, Z15, block, block;  \
	VPTERNLOGD $0x96, data, Z5, block

// LAST adds a block, multiplied, to the sums of the low and the high products.
#define LAST(multipliers, block) \
	VMOVDQU64 multipliers, Z12;         \
	VPCLMULQDQ $0x00, Z12, block, Z13;  \
	VPCLMULQDQ $0x11, Z12, block, Z14;  \
	VPXORQ Z13, Z10, Z10;               \
	VPXORQ Z14, Z11, Z11

// func foldWords(r uint32, p *byte, n int, t *foldTable) uint32
//
// SI: what is next in the packet. CX: blocks behind that. R8: t. DI: multipliers of the block before SI.
// Z0 to Z4: a group of blocks. Z10, Z11: sums of products.
TEXT ·foldWords(SB), NOSPLIT, $0-36
	MOVQ p+8(FP), SI
	MOVQ n+16(FP), CX
	MOVQ t+24(FP), R8

	// The first block, of 1 to 16 words, at the end of a vector: so that all others are whole. DX: its words, less 1.
	SHRQ $2, CX
	DECQ CX
	MOVL CX, DX
	ANDL $15, DX
	SHRQ $4, CX
	MOVL DX, BX
	XORL $15, BX
	MOVL $0xffff, AX
	SHRXL BX, AX, R9
	SHLXL BX, AX, R10
	KMOVW R9, K1
	KMOVW R10, K2
	VMOVSS r+0(FP), X5
	VMOVDQU32.Z (SI), K1, Z0 // does not touch what is masked
	VPXORD Z5, Z0, Z0
	VPEXPANDD.Z Z0, K2, Z0
	LEAQ 4(SI)(DX*4), SI

	VPXOR X10, X10, X10
	VPXOR X11, X11, X11
	CMPQ CX, $const_lastBlocks
	JGE groups

	MOVQ CX, DX
	SHLQ $6, DX
	LEAQ (foldTable_last+64*(const_lastBlocks-1))(R8), DI
	SUBQ DX, DI
	LAST((DI), Z0)
	TESTQ CX, CX
	JZ reduce

rest:
	VMOVDQU64 (SI), Z0
	ADDQ $64, SI
	ADDQ $64, DI
	LAST((DI), Z0)
	DECQ CX
	JNZ rest

reduce:
	// Add up the products, each of degree below 96.
	VPXORQ Z11, Z10, Z0
	VEXTRACTI64X4 $1, Z0, Y1
	VPXOR Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPXOR X1, X0, X0

	// The upper 64 bits tell the quotient by P, that the remainder.
	VMOVDQU foldTable_barrett(R8), X2
	VPCLMULQDQ $0x00, X2, X0, X1
	VPCLMULQDQ $0x10, X2, X1, X1
	VPXOR X1, X0, X0
	VPEXTRD $2, X0, AX
	VZEROUPPER
	MOVL AX, ret+32(FP)
	RET

groups:
	VPBROADCASTQ (foldTable_matrices+0)(R8), Z16
	VPBROADCASTQ (foldTable_matrices+8)(R8), Z17
	VPBROADCASTQ (foldTable_matrices+16)(R8), Z18
	VPBROADCASTQ (foldTable_matrices+24)(R8), Z19
	VPBROADCASTQ (foldTable_matrices+32)(R8), Z20
	VPBROADCASTQ (foldTable_matrices+40)(R8), Z21
	VPBROADCASTQ (foldTable_matrices+48)(R8), Z22
	VPBROADCASTQ (foldTable_matrices+56)(R8), Z23
	VPBROADCASTQ (foldTable_matrices+64)(R8), Z24
	VPBROADCASTQ (foldTable_matrices+72)(R8), Z25
	VPBROADCASTQ (foldTable_matrices+80)(R8), Z26
	VPBROADCASTQ (foldTable_matrices+88)(R8), Z27
	VPBROADCASTQ (foldTable_matrices+96)(R8), Z28
	VPBROADCASTQ (foldTable_matrices+104)(R8), Z29
	VPBROADCASTQ (foldTable_matrices+112)(R8), Z30
	VPBROADCASTQ (foldTable_matrices+120)(R8), Z31
	VBROADCASTI32X4 foldTable_group(R8), Z15
	VMOVDQU64 (SI), Z1
	VMOVDQU64 64(SI), Z2
	VMOVDQU64 128(SI), Z3
	VMOVDQU64 192(SI), Z4
	ADDQ $(64*(const_groupBlocks-1)), SI
	SUBQ $(2*const_groupBlocks-1), CX
	CMPQ foldTable_multiply(R8), $0
	JNE products

group:
	FOLD4(Z16, Z20, Z24, Z28, (SI), Z6)
	VPCLMULQDQ $0x00, Z15, Z1, Z5
	VPCLMULQDQ $0x11, Z15, Z1, Z1
	VPTERNLOGD $0x96, 64(SI), Z5, Z1
	FOLD4(Z17, Z21, Z25, Z29, 128(SI), Z7)
	FOLD4(Z18, Z22, Z26, Z30, 192(SI), Z8)
	FOLD4(Z19, Z23, Z27, Z31, 256(SI), Z9)
	VMOVDQA64 Z6, Z0
	VMOVDQA64 Z7, Z2
	VMOVDQA64 Z8, Z3
	VMOVDQA64 Z9, Z4
	ADDQ $(64*const_groupBlocks), SI
	SUBQ $const_groupBlocks, CX
	JGE group

ending:
	ADDQ $const_groupBlocks, CX
	MOVQ CX, DX
	SHLQ $6, DX
	LEAQ (foldTable_last+64*(const_lastBlocks-const_groupBlocks))(R8), DI
	SUBQ DX, DI
	LAST(0(DI), Z0)
	LAST(64(DI), Z1)
	LAST(128(DI), Z2)
	LAST(192(DI), Z3)
	LAST(256(DI), Z4)
	ADDQ $(64*(const_groupBlocks-1)), DI
	TESTQ CX, CX
	JNZ rest
	JMP reduce

products:
	PRODUCT(Z0, 0(SI))
	PRODUCT(Z1, 64(SI))
	PRODUCT(Z2, 128(SI))
	PRODUCT(Z3, 192(SI))
	PRODUCT(Z4, 256(SI))
	ADDQ $(64*const_groupBlocks), SI
	SUBQ $const_groupBlocks, CX
	JGE products
	JMP ending

// func ticks() uint64
TEXT ·ticks(SB), NOSPLIT, $0-8
	LFENCE // all that comes before is done
	RDTSC
	SHLQ $32, DX
	ORQ DX, AX
	MOVQ AX, ret+0(FP)
	RET
