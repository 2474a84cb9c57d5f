//go:build !portable

#include "go_asm.h"
#include "textflag.h"

// FOLD takes a vector over a block by multiplication, and adds data. V31 has the multipliers.
#define FOLD(vector, data, product) \
	VPMULL V31.D1, vector.D1, product.Q1;            \
	VEOR data.B16, product.B16, product.B16;         \
	VPMULL2 V31.D2, vector.D2, vector.Q1;            \
	VEOR product.B16, vector.B16, vector.B16

// FOLD3 is FOLD with the three-way sum of SHA3.
#define FOLD3(vector, data, product) \
	VPMULL V31.D1, vector.D1, product.Q1;            \
	VPMULL2 V31.D2, vector.D2, vector.Q1;            \
	VEOR3 data.B16, product.B16, vector.B16, vector.B16

// CRC2 runs the register of a chain over its next 16 bytes.
#define CRC2(place, register) \
	LDP.P 16(place), (R10, R11); \
	CRC32X R10, register;        \
	CRC32X R11, register

// HEAD runs R3 over the first R4 bytes at R0, a multiple of 4.
#define HEAD \
head:                       \
	SUBS $8, R4, R4;        \
	BLT word;               \
	MOVD.P 8(R0), R10;      \
	CRC32X R10, R3;         \
	B head;                 \
word:                       \
	TBZ $2, R4, blocks;     \
	MOVWU.P 4(R0), R10;     \
	CRC32W R10, R3;         \
blocks:

// FIRST loads the first block, adds R3 to it, and loads the multipliers at R2.
#define FIRST \
	VLD1.P 64(R0), [V0.B16, V1.B16, V2.B16, V3.B16];       \
	VLD1.P 64(R0), [V4.B16, V5.B16, V6.B16, V7.B16];       \
	ADD $foldTable_last, R2, R10;                          \
	VLD1.P 64(R10), [V24.B16, V25.B16, V26.B16, V27.B16];  \
	VLD1 (R10), [V28.B16, V29.B16, V30.B16, V31.B16];      \
	FMOVD R3, F16;                                         \
	VEOR V16.B16, V0.B16, V0.B16

// PRODUCT multiplies a vector.
#define PRODUCT(multipliers, vector, product) \
	VPMULL multipliers.D1, vector.D1, product.Q1;   \
	VPMULL2 multipliers.D2, vector.D2, vector.Q1;   \
	VEOR product.B16, vector.B16, vector.B16

// LAST sets R3 to the register behind the block in V0 to V7.
#define LAST \
	PRODUCT(V24, V0, V16);       \
	PRODUCT(V25, V1, V17);       \
	PRODUCT(V26, V2, V18);       \
	PRODUCT(V27, V3, V19);       \
	PRODUCT(V28, V4, V20);       \
	PRODUCT(V29, V5, V21);       \
	PRODUCT(V30, V6, V22);       \
	VEOR V0.B16, V1.B16, V1.B16; \
	VEOR V2.B16, V3.B16, V3.B16; \
	VEOR V4.B16, V5.B16, V5.B16; \
	VEOR V6.B16, V7.B16, V7.B16; \
	VEOR V1.B16, V3.B16, V3.B16; \
	VEOR V5.B16, V7.B16, V7.B16; \
	VEOR V3.B16, V7.B16, V7.B16; \
	VMOV V7.D[0], R10;           \
	VMOV V7.D[1], R11;           \
	MOVD ZR, R3;                 \
	CRC32X R10, R3;              \
	CRC32X R11, R3

// func chain(r uint32, p *byte, n int) uint32
TEXT ·chain(SB), NOSPLIT, $0-28
	MOVWU r+0(FP), R3
	MOVD p+8(FP), R0
	MOVD n+16(FP), R4
	SUBS $32, R4, R4
	BLT few

many:
	CRC2(R0, R3)
	CRC2(R0, R3)
	SUBS $32, R4, R4
	BGE many

few:
	AND $31, R4, R4
	HEAD
	MOVW R3, ret+24(FP)
	RET

// func fourChains(r *[4]uint32, p *byte, n int)
//
// R6 to R9: what is next in each chain. R12 to R15: their registers. R4: bytes left of each.
TEXT ·fourChains(SB), NOSPLIT, $0-24
	MOVD r+0(FP), R2
	MOVD p+8(FP), R6
	MOVD n+16(FP), R4
	ADD R4, R6, R7
	ADD R4, R7, R8
	ADD R4, R8, R9
	LDPW 0(R2), (R12, R13)
	LDPW 8(R2), (R14, R15)

four: // no instruction follows the one that it waits for: there are processors that wait then
	LDP.P 16(R6), (R10, R11)
	LDP.P 16(R7), (R19, R20)
	LDP.P 16(R8), (R21, R22)
	LDP.P 16(R9), (R23, R24)
	CRC32X R10, R12
	CRC32X R19, R13
	CRC32X R21, R14
	CRC32X R23, R15
	SUBS $16, R4, R4
	CRC32X R11, R12
	CRC32X R20, R13
	CRC32X R22, R14
	CRC32X R24, R15
	BGT four
	STPW (R12, R13), 0(R2)
	STPW (R14, R15), 8(R2)
	RET

// func fold(r uint32, p *byte, n int, t *foldTable) uint32
//
// R0: what is next. R1: bytes behind the block in V0 to V7. R2: t. R3: the register.
TEXT ·fold(SB), NOSPLIT, $0-36
	MOVWU r+0(FP), R3
	MOVD p+8(FP), R0
	MOVD n+16(FP), R1
	MOVD t+24(FP), R2
	AND $(const_blockLen-1), R1, R4
	BIC $(const_blockLen-1), R1, R1
	HEAD
	FIRST
	SUBS $const_blockLen, R1, R1
	BEQ last

block:
	VLD1.P 64(R0), [V16.B16, V17.B16, V18.B16, V19.B16]
	FOLD(V0, V16, V20)
	FOLD(V1, V17, V21)
	FOLD(V2, V18, V22)
	FOLD(V3, V19, V23)
	VLD1.P 64(R0), [V16.B16, V17.B16, V18.B16, V19.B16]
	FOLD(V4, V16, V20)
	FOLD(V5, V17, V21)
	FOLD(V6, V18, V22)
	FOLD(V7, V19, V23)
	SUBS $const_blockLen, R1, R1
	BNE block

last:
	LAST
	MOVW R3, ret+32(FP)
	RET

// func fold3(r uint32, p *byte, n int, t *foldTable) uint32
TEXT ·fold3(SB), NOSPLIT, $0-36
	MOVWU r+0(FP), R3
	MOVD p+8(FP), R0
	MOVD n+16(FP), R1
	MOVD t+24(FP), R2
	AND $(const_blockLen-1), R1, R4
	BIC $(const_blockLen-1), R1, R1
	HEAD
	FIRST
	SUBS $const_blockLen, R1, R1
	BEQ last

block:
	VLD1.P 64(R0), [V16.B16, V17.B16, V18.B16, V19.B16]
	FOLD3(V0, V16, V20)
	FOLD3(V1, V17, V21)
	FOLD3(V2, V18, V22)
	FOLD3(V3, V19, V23)
	VLD1.P 64(R0), [V16.B16, V17.B16, V18.B16, V19.B16]
	FOLD3(V4, V16, V20)
	FOLD3(V5, V17, V21)
	FOLD3(V6, V18, V22)
	FOLD3(V7, V19, V23)
	SUBS $const_blockLen, R1, R1
	BNE block

last:
	LAST
	MOVW R3, ret+32(FP)
	RET

// func both(r uint32, p *byte, n int, t *foldTable) uint32
//
// R5: blocks to fold, of which chains take as many bytes behind them, a quarter each. R6 to R9: what is next in each
// chain. R12 to R15: their registers. The rest is as in fold.
TEXT ·both(SB), NOSPLIT, $0-36
	MOVWU r+0(FP), R3
	MOVD p+8(FP), R0
	MOVD n+16(FP), R1
	MOVD t+24(FP), R2
	AND $(2*const_blockLen-1), R1, R4
	LSR $8, R1, R5
	HEAD
	LSL $5, R5, R4
	ADD R4<<2, R0, R6
	ADD R4, R6, R7
	ADD R4, R7, R8
	ADD R4, R8, R9
	MOVD ZR, R12
	MOVD ZR, R13
	MOVD ZR, R14
	MOVD ZR, R15
	FIRST
	SUBS $1, R5, R1
	BEQ last

block:
	VLD1.P 64(R0), [V16.B16, V17.B16, V18.B16, V19.B16]
	FOLD(V0, V16, V20)
	CRC2(R6, R12)
	FOLD(V1, V17, V21)
	CRC2(R7, R13)
	FOLD(V2, V18, V22)
	CRC2(R8, R14)
	FOLD(V3, V19, V23)
	CRC2(R9, R15)
	VLD1.P 64(R0), [V16.B16, V17.B16, V18.B16, V19.B16]
	FOLD(V4, V16, V20)
	CRC2(R6, R12)
	FOLD(V5, V17, V21)
	CRC2(R7, R13)
	FOLD(V6, V18, V22)
	CRC2(R8, R14)
	FOLD(V7, V19, V23)
	CRC2(R9, R15)
	SUBS $1, R1, R1
	BNE block

last:
	CRC2(R6, R12)
	CRC2(R7, R13)
	CRC2(R8, R14)
	CRC2(R9, R15)
	CRC2(R6, R12)
	CRC2(R7, R13)
	CRC2(R8, R14)
	CRC2(R9, R15)
	LAST

	// Take each register over the chains behind it, and add them up.
	ADD $foldTable_chains, R2, R2
	LSL $3, R5, R5
	ADD R5, R2, R2
	FMOVD (R2), F20
	ADD R5, R2, R2
	FMOVD (R2), F21
	ADD R5, R2, R2
	FMOVD (R2), F22
	ADD R5, R2, R2
	FMOVD (R2), F23
	FMOVD R14, F16
	FMOVD R13, F17
	FMOVD R12, F18
	FMOVD R3, F19
	VPMULL V20.D1, V16.D1, V16.Q1
	VPMULL V21.D1, V17.D1, V17.Q1
	VPMULL V22.D1, V18.D1, V18.Q1
	VPMULL V23.D1, V19.D1, V19.Q1
	VEOR V16.B16, V17.B16, V17.B16
	VEOR V18.B16, V17.B16, V17.B16
	VEOR V19.B16, V17.B16, V17.B16
	FMOVD F17, R10
	MOVD ZR, R3
	CRC32X R10, R3
	EORW R15, R3, R3
	MOVW R3, ret+32(FP)
	RET

// func ticks() uint64
TEXT ·ticks(SB), NOSPLIT, $0-8
	ISB $15 // all that comes before is done
	MRS CNTVCT_EL0, R0
	MOVD R0, ret+0(FP)
	RET
