package rocev2

import (
	"encoding/binary"
	"hash/crc32"
)

// The ICRC (IBTA 7.8.1) is the CRC-32 of IEEE 802.3. Below, a register is the
// state of the reflected division as it runs: all ones at the start, inverted
// at the end (hash/crc32 inverts at both ends of every call).
//
// The register after some bytes is linear in the register before and in the
// bytes. Three things follow, and the tables below are all that they need:
//
//   - What the length fields and the Identification contribute to the register
//     at the end of the UDP header can be looked up and added to that of a
//     flow, instead of running the CRC over a pseudo header for every packet.
//   - To change a byte of the BTH, as masking does, one may as well change the
//     register in front of the BTH. So a packet is one run of the CRC over its
//     own bytes, unchanged.
//   - The difference of two registers can be taken back over any number of
//     bytes: see recoverID.

var le = binary.LittleEndian

const (
	ipv4Len = 20
	ipv6Len = 40
	udpLen  = 8
)

// byteTable is what a byte adds to the register, by value.
type byteTable [256]uint32

var (
	// sliceTables[k] is for a byte with k bytes after it.
	sliceTables = buildSliceTables()

	// The fields of the pseudo header, most significant byte first, with
	// what lies between them and the BTH.
	ipv4LengthTables = fieldTables(ipv4Len + udpLen - 4)
	ipv4IDTables     = fieldTables(ipv4Len + udpLen - 6)
	ipv6LengthTables = fieldTables(ipv6Len + udpLen - 6)
	udpLengthTables  = fieldTables(udpLen - 6)

	// maskTable is what makes byte 4 of the BTH count as 0xff, by the value
	// that it has. It is added to the register in front of the BTH.
	maskTable = buildMaskTable()

	// recede4 and recede128 take a register back over 0 to 31 words of 4
	// bytes, and over 0 to 32 blocks of 128 bytes. Two of them cover every
	// length of packet, so nothing has to be built, or bounded, while
	// packets arrive.
	recede4, recede128 = buildRecede()
)

// advance runs a register over n zero bytes.
func advance(r uint32, n int) uint32 {
	for range 8 * n {
		r = r>>1 ^ crc32.IEEE&-(r&1)
	}
	return r
}

// recede is the inverse of advance.
func recede(r uint32, n int) uint32 {
	for range 8 * n {
		out := r >> 31 // IEEE has its top bit set, so this tells whether it was added
		r = (r^crc32.IEEE&-out)<<1 | out
	}
	return r
}

// newByteTable returns the table of a linear function.
func newByteTable(f func(x uint32) uint32) (t byteTable) {
	for x := 1; x < len(t); x++ {
		if rest := x & (x - 1); rest != 0 {
			t[x] = t[rest] ^ t[x^rest]
		} else {
			t[x] = f(uint32(x))
		}
	}
	return t
}

func buildSliceTables() (t [16]byteTable) {
	for k := range t {
		t[k] = newByteTable(func(x uint32) uint32 { return advance(x, k+1) })
	}
	return t
}

// fieldTables returns the tables of the two bytes of a 16-bit field with n
// bytes after it.
func fieldTables(n int) [2]byteTable {
	return [2]byteTable{
		newByteTable(func(x uint32) uint32 { return advance(x, n+2) }),
		newByteTable(func(x uint32) uint32 { return advance(x, n+1) }),
	}
}

func field(t *[2]byteTable, v uint16) uint32 { return t[0][v>>8] ^ t[1][uint8(v)] }

func buildMaskTable() (t byteTable) {
	change := newByteTable(func(x uint32) uint32 { return recede(x, 4) })
	for x := range t {
		t[x] = change[x^0xff]
	}
	return t
}

// linearMap is a linear map of registers, by the nibbles of its argument.
type linearMap [8][16]uint32

func (m *linearMap) apply(r uint32) uint32 {
	return m[0][r&15] ^ m[1][r>>4&15] ^ m[2][r>>8&15] ^ m[3][r>>12&15] ^
		m[4][r>>16&15] ^ m[5][r>>20&15] ^ m[6][r>>24&15] ^ m[7][r>>28]
}

// newLinearMap returns the map that takes the register with only bit i set to
// image(i).
func newLinearMap(image func(i int) uint32) (m linearMap) {
	for i := range 32 {
		v, bit := image(i), 1<<(i&3)
		for x := range 16 {
			if x&bit != 0 {
				m[i>>2][x] ^= v
			}
		}
	}
	return m
}

func buildRecede() (words [32]linearMap, blocks [33]linearMap) {
	identity := newLinearMap(func(i int) uint32 { return 1 << i })
	one := newLinearMap(func(i int) uint32 { return recede(1<<i, 4) })
	words[0], blocks[0] = identity, identity
	for k := 1; k < len(words); k++ {
		words[k] = newLinearMap(func(i int) uint32 { return one.apply(words[k-1].apply(1 << i)) })
	}
	for k := 1; k < len(blocks); k++ {
		words := &words[len(words)-1]
		blocks[k] = newLinearMap(func(i int) uint32 { return one.apply(words.apply(blocks[k-1].apply(1 << i))) })
	}
	return words, blocks
}

// maxRecede is the largest number of bytes that recoverID goes back.
const maxRecede = (32*33 - 1) * 4

// recoverID returns the IPv4 Identification that causes the difference between
// two registers, given that they are those of the same packet with
// Identification 0 and with the one sought, n bytes after the field's first
// byte. A field of 16 bits reaches 2^16 of the 2^32 differences; the others
// mean that there is none. n is a multiple of 4, up to maxRecede.
func recoverID(diff uint32, n int) (ipID uint16, ok bool) {
	words := uint(n) / 4
	diff = recede128[words/32].apply(recede4[words%32].apply(diff))
	// A register in front of two bytes differs as they do, the first byte
	// in its lowest bits.
	return uint16(diff<<8 | diff>>8&0xff), diff>>16 == 0
}

const (
	// kernelLen is the length from which the vector kernel, where there is
	// one, is faster than updateTables.
	kernelLen = 24
	// bulkLen is the length from which hash/crc32 is faster than
	// updateTables. It folds blocks of 16 bytes and does what is left over
	// byte by byte, which updateStd spares it.
	bulkLen = 64
)

// update runs a register over b. It makes b escape, as hash/crc32 does.
func update(r uint32, b []byte) uint32 {
	switch {
	case len(b) < kernelLen:
		return updateTables(r, b)
	case haveKernel && len(b)&3 == 0:
		return updateWords(r, b)
	case haveKernel:
		return updateKernel(r, b)
	case len(b) < bulkLen:
		return updateTables(r, b)
	}
	return updateStd(r, b)
}

// updateShort is update for short b, or for b that shall stay on the stack.
func updateShort(r uint32, b []byte) uint32 {
	if haveKernel && len(b) >= kernelLen {
		return updateKernel(r, b)
	}
	return updateTables(r, b)
}

// updateKernel is update by the vector kernel, for b of at least 7 bytes.
func updateKernel(r uint32, b []byte) uint32 {
	odd := len(b) & 3
	return updateWords(updateTables(r, b[:odd]), b[odd:])
}

// updateStd is update by hash/crc32.
func updateStd(r uint32, b []byte) uint32 {
	head := len(b) & 15
	r = updateTables(r, b[:head])
	return ^crc32.Update(^r, crc32.IEEETable, b[head:])
}

// updateTables is update by tables alone.
func updateTables(r uint32, b []byte) uint32 {
	t := &sliceTables
	for ; len(b) >= 16; b = b[16:] {
		r ^= le.Uint32(b)
		r = t[15][uint8(r)] ^ t[14][uint8(r>>8)] ^ t[13][uint8(r>>16)] ^ t[12][r>>24] ^
			t[11][b[4]] ^ t[10][b[5]] ^ t[9][b[6]] ^ t[8][b[7]] ^
			t[7][b[8]] ^ t[6][b[9]] ^ t[5][b[10]] ^ t[4][b[11]] ^
			t[3][b[12]] ^ t[2][b[13]] ^ t[1][b[14]] ^ t[0][b[15]]
	}
	if len(b) >= 8 {
		r ^= le.Uint32(b)
		r = t[7][uint8(r)] ^ t[6][uint8(r>>8)] ^ t[5][uint8(r>>16)] ^ t[4][r>>24] ^
			t[3][b[4]] ^ t[2][b[5]] ^ t[1][b[6]] ^ t[0][b[7]]
		b = b[8:]
	}
	if len(b) >= 4 {
		r ^= le.Uint32(b)
		r = t[3][uint8(r)] ^ t[2][uint8(r>>8)] ^ t[1][uint8(r>>16)] ^ t[0][r>>24]
		b = b[4:]
	}
	for _, x := range b {
		r = r>>8 ^ t[0][uint8(r)^x]
	}
	return r
}
