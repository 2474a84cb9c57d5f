package rocev2

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// updates are all ways to run a register over bytes that this machine has.
func updates() map[string]func(r uint32, b []byte) uint32 {
	m := map[string]func(r uint32, b []byte) uint32{
		"update": update, "updateShort": updateShort, "updateStd": updateStd, "updateTables": updateTables,
	}
	for name, f := range kernels() {
		m[name] = func(r uint32, b []byte) uint32 {
			odd := len(b) & 3
			if r = updateTables(r, b[:odd]); odd < len(b) {
				r = f(r, b[odd:])
			}
			return r
		}
	}
	if haveKernel {
		m["updateKernel"] = func(r uint32, b []byte) uint32 {
			if len(b) < 7 { // 4, and up to 3 bytes that are no word
				return updateTables(r, b)
			}
			return updateKernel(r, b)
		}
	}
	return m
}

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// checkUpdate holds a way to run a register over bytes against hash/crc32.
func checkUpdate(t *testing.T, name string, f func(r uint32, b []byte) uint32, r uint32, b []byte) {
	t.Helper()
	if got, want := f(r, b), ^crc32.Update(^r, crc32.IEEETable, b); got != want {
		t.Fatalf("%s of %d bytes from %#x: %#x, want %#x", name, len(b), r, got, want)
	}
}

func TestUpdateEveryLength(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	lengths := []int{MaxPacketLen, 16383, 65535, 65536, 65600}
	for n := range 9001 {
		lengths = append(lengths, n)
	}
	b := randomBytes(rng, 65600)
	for name, f := range updates() {
		for _, n := range lengths {
			at := rng.IntN(len(b) - n + 1)
			checkUpdate(t, name, f, rng.Uint32(), b[at:at+n])
		}
		for _, n := range []int{16, 64, 76, 268, 640, 700, 1036, 4108} {
			for at := range 64 {
				checkUpdate(t, name, f, rng.Uint32(), b[at:at+n])
			}
		}
	}
}

// A register may be run over a packet in any parts.
func TestUpdateParts(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(15, 16))
	b := randomBytes(rng, 9000)
	for name, f := range updates() {
		for range 200 {
			start := rng.Uint32()
			at := rng.IntN(64)
			r, n := start, 0
			for at+n < len(b) {
				part := min(rng.IntN(1<<rng.IntN(14)), len(b)-at-n)
				r = f(r, b[at+n:at+n+part])
				n += part
			}
			if want := ^crc32.Update(^start, crc32.IEEETable, b[at:at+n]); r != want {
				t.Fatalf("%s of %d bytes in parts from %#x: %#x, want %#x", name, n, start, r, want)
			}
		}
	}
}

// The reference shares nothing with hash/crc32. Both are the CRC-32 of IEEE
// 802.3 (IBTA 7.8.1).
func TestUpdateBitwise(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(9, 10))
	b := randomBytes(rng, 4200)
	for name, f := range updates() {
		for n := 0; n < len(b); n += 1 + n/7 {
			if got, want := ^f(^uint32(0), b[:n]), bitwiseCRC(b[:n]); got != want {
				t.Fatalf("%s of %d bytes: %#x, want %#x", name, n, got, want)
			}
		}
	}
}

// One bit at a time shows a wrong constant wherever it is used.
func TestUpdateEveryBit(t *testing.T) {
	t.Parallel()
	for name, f := range updates() {
		for _, n := range []int{640, 1036} {
			b := make([]byte, n)
			for bit := range 8 * n {
				b[bit/8] = 1 << (bit % 8)
				checkUpdate(t, name, f, 0, b)
				b[bit/8] = 0
			}
		}
	}
}

func FuzzUpdate(f *testing.F) {
	for _, n := range []int{0, 3, 16, 76, 640, 1036} {
		f.Add(uint32(n), uint8(n), randomBytes(rand.New(rand.NewPCG(11, 12)), n))
	}
	f.Fuzz(func(t *testing.T, r uint32, repeat uint8, b []byte) {
		var long []byte
		for range int(repeat)%32 + 1 { // the fuzzer alone stays with short inputs
			if long = append(long, b...); len(long) > 8192 {
				break
			}
		}
		long = long[:min(len(long), 16384)]
		for name, f := range updates() {
			checkUpdate(t, name, f, r, long)
		}
	})
}

func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{16, 28, 44, 76, 268, 1036, 4108} {
		packet := make([]byte, n)
		for _, name := range []string{"update", "updateTables", "updateStd"} {
			f := updates()[name]
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					f(1, packet)
				}
			})
			// Each call waits for the one before.
			b.Run(fmt.Sprintf("%s/%d/latency", name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				r := uint32(1)
				for b.Loop() {
					r = f(r, packet)
				}
			})
		}
	}
}
