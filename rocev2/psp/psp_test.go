package psp

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "", "\t", "").Replace(s))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestDerive has the examples of the specification: two master keys, and keys
// of two SPIs and versions.
func TestDerive(t *testing.T) {
	t.Parallel()
	var m MasterKeys
	m.Rotate((*[MasterKeyLen]byte)(unhex(t, "34448a06 4292601b 11a0978f 56a2d34c f3fc35ed e1a6bc04 f8db3e52 43a2b0ca")))
	m.Rotate((*[MasterKeyLen]byte)(unhex(t, "56395256 5d3a78ae 773ec1b7 79f2f2d9 9f4a7f53 a6fbb9b0 7d5b71f3 9364d739")))
	for _, c := range []struct {
		v    Version
		spi  uint32
		want string
	}{
		{GCM128, 0x12345678, "96c22dc7 99198090 b74b70ae 468e4e30"},
		{GCM128, 0x9a345678, "3946da25 54eae46a d1ef77a6 4372edc4"},
		{GCM256, 0x12345678, "2b7d7207 4e42ca33 4487f299 0e3f8c40 37e436f3 8283449b 76463e9b 7fb2e3de"},
	} {
		key, ok := m.Derive(c.v, c.spi)
		if want := unhex(t, c.want); !ok || !bytes.Equal(key, want) {
			t.Errorf("%v, SPI %08x: key %x, want %x", c.v, c.spi, key, want)
		}
	}
	seen := map[string]Version{}
	for v := range numVersions {
		key, _ := m.Derive(v, 1)
		if len(key) != v.KeyLen() {
			t.Errorf("%v: key of %d bytes, want %d", v, len(key), v.KeyLen())
		}
		if other, ok := seen[string(key[:16])]; ok {
			t.Errorf("%v and %v have the same key", v, other)
		}
		seen[string(key[:16])] = v
	}
	if _, ok := m.Derive(numVersions, 1); ok {
		t.Error("a key of a version that there is not")
	}
}

// TestCMAC has the examples of RFC 4493 and NIST SP 800-38B with one block.
func TestCMAC(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ key, mac string }{
		{"2b7e1516 28aed2a6 abf71588 09cf4f3c", "070a16b4 6b4d4144 f79bdd9d d04a287c"},
		{"603deb10 15ca71be 2b73aef0 857d7781 1f352c07 3b6108d7 2d9810a3 0914dff4", "28a7023f 452e8f82 bd4bf28d 8c37c35c"},
	} {
		b, err := aes.NewCipher(unhex(t, c.key))
		if err != nil {
			t.Fatal(err)
		}
		in, mac := unhex(t, "6bc1bee2 2e409f96 e93d7e11 7393172a"), make([]byte, aes.BlockSize)
		subkey(b, mac)
		subtle.XORBytes(mac, mac, in)
		if b.Encrypt(mac, mac); !bytes.Equal(mac, unhex(t, c.mac)) {
			t.Errorf("%x, want %s", mac, c.mac)
		}
	}
}

func TestRotate(t *testing.T) {
	t.Parallel()
	random := rand.NewChaCha8([32]byte{1})
	var m MasterKeys
	if _, ok := m.Derive(GCM128, 1); ok {
		t.Fatal("a key without a master key")
	}
	rotate := func() uint32 {
		var key [MasterKeyLen]byte
		random.Read(key[:])
		m.Rotate(&key)
		return m.SPI(0xffffffff)
	}
	derive := func(spi uint32) string {
		key, ok := m.Derive(GCM128, spi)
		if !ok {
			t.Fatalf("no key of SPI %08x", spi)
		}
		return string(key)
	}
	first := rotate()
	if first != 0x7fffffff {
		t.Errorf("the first SPI is %08x", first)
	}
	if _, ok := m.Derive(GCM128, first|SecondMaster); ok {
		t.Error("a key of the second master key, which is not there")
	}
	key := derive(first)
	second := rotate()
	if second != 0xffffffff || derive(first) != key || derive(second) == key {
		t.Errorf("after one rotation the SPI is %08x, or keys have changed", second)
	}
	if third := rotate(); third != first || derive(first) == key {
		t.Errorf("after two rotations the SPI is %08x, or its key has not changed", third)
	}
}

// example is the packet in the documentation of scapy's layer.
var example = struct{ key, clear, sealed string }{
	key: "ffeeddccbbaa99887766554433221100",
	clear: `04 01 05 01 11 22 33 44 01 02 03 04 05 06 07 08
		45 00 00 25 00 01 00 00 40 11 7c c5 7f 00 00 01
		7f 00 00 01 04 d2 16 2e 00 11 a0 c4 41 41 41 41
		41 41 41 41 41`,
	sealed: `04 01 05 01 11 22 33 44 01 02 03 04 05 06 07 08
		45 00 00 25 00 01 00 00 40 11 7c c5 7f 00 00 01
		7f 00 00 01 8e 3e 2b 13 45 c7 6b f9 5c da c3 9b
		86 17 62 a0 cf df fb be bb c6 31 3a 2b 9d e0 64
		75 9c dd 71 c9`,
}

func TestForeignPacket(t *testing.T) {
	t.Parallel()
	k, err := NewKey(GCM128, unhex(t, example.key))
	if err != nil {
		t.Fatal(err)
	}
	clear, sealed := unhex(t, example.clear), unhex(t, example.sealed)
	h, plain, err := k.Open(nil, sealed)
	want := Header{Next: 4, CryptOffset: 20, SPI: 0x11223344, IV: 0x0102030405060708}
	if err != nil || h != want || !bytes.Equal(plain, clear[HeaderLen:]) {
		t.Fatalf("opened: %+v, %x, %v", h, plain, err)
	}
	if again := k.Seal(nil, &h, plain[:20], plain[20:]); !bytes.Equal(again, sealed) {
		t.Errorf("sealed: %x, want %x", again, sealed)
	}
	if plain, err := k.OpenInPlace(sealed, &h, HeaderLen); err != nil || !bytes.Equal(plain, clear[HeaderLen:]) {
		t.Errorf("opened in its place: %x, %v", plain, err)
	}
}

// oracle opens a packet with crypto/cipher alone, at offsets counted by hand.
func oracle(t *testing.T, key, packet []byte, header, clear int) []byte {
	t.Helper()
	b, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	g, err := cipher.NewGCM(b)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := g.Open(nil, packet[4:16], packet[header+clear:], packet[:header+clear])
	if err != nil {
		t.Fatal(err)
	}
	return append(bytes.Clone(packet[header:header+clear]), plain...)
}

func TestSeal(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for v := range numVersions {
		secret := make([]byte, v.KeyLen())
		rand.NewChaCha8([32]byte{byte(v)}).Read(secret)
		k, err := NewKey(v, secret)
		if err != nil {
			t.Fatal(err)
		}
		for range 300 {
			h := Header{Next: UDP, Version: v, Sample: r.IntN(2) == 0, Drop: r.IntN(2) == 0,
				Virtual: r.IntN(2) == 0, SPI: r.Uint32(), IV: r.Uint64()}
			plain := make([]byte, 300+r.IntN(200))
			for i := range plain {
				plain[i] = byte(r.Uint32())
			}
			clear := r.IntN(62) * 4
			h.CryptOffset = uint8(clear)
			if h.Virtual {
				h.Cookie = r.Uint64()
				h.CryptOffset += 8
			}
			packet := k.Seal([]byte("before"), &h, plain[:clear], plain[clear:])[len("before"):]
			if want := h.Len() + len(plain) + ICVLen; len(packet) != want {
				t.Fatalf("%v: %d bytes, want %d", v, len(packet), want)
			}
			if !v.Encrypts() {
				clear = len(plain)
			}
			if got := oracle(t, secret, packet, h.Len(), clear); !bytes.Equal(got, plain) {
				t.Fatalf("%v, %+v: opens to %x, want %x", v, h, got, plain)
			}
			got, opened, err := k.Open([]byte("before"), packet)
			if err != nil || got != h || string(opened) != "before"+string(plain) {
				t.Fatalf("%v: %+v, %x, %v, want %+v, %x", v, got, opened, err, h, plain)
			}
			bit := r.IntN(len(packet) * 8)
			packet[bit/8] ^= 1 << (bit % 8)
			if _, opened, err = k.Open([]byte("before"), packet); err == nil || string(opened) != "before" {
				t.Fatalf("%v, bit %d of byte %d changed: %x, %v", v, bit%8, bit/8, opened, err)
			}
		}
	}
}

// TestChanged has every bit of a packet changed.
func TestChanged(t *testing.T) {
	t.Parallel()
	for v := range numVersions {
		k, err := NewKey(v, make([]byte, v.KeyLen()))
		if err != nil {
			t.Fatal(err)
		}
		packet := k.Seal(nil, &Header{Next: UDP, SPI: 7, IV: 1}, []byte("UDP head"), []byte("a packet of a queue pair"))
		for bit := range len(packet) * 8 {
			packet[bit/8] ^= 1 << (bit % 8)
			_, plain, err := k.Open(nil, packet)
			if err == nil || len(plain) != 0 {
				t.Errorf("%v, bit %d of byte %d changed: %q, %v", v, bit%8, bit/8, plain, err)
			}
			packet[bit/8] ^= 1 << (bit % 8)
		}
		for n := range packet {
			if _, _, err := k.Open(nil, packet[:n]); err == nil {
				t.Errorf("%v, the first %d bytes open", v, n)
			}
		}
		other, _ := NewKey(v^2, make([]byte, v.KeyLen())) // the same key, to another end
		if _, _, err := other.Open(nil, packet); !errors.Is(err, ErrVersion) {
			t.Errorf("%v opened as %v: %v", v, v^2, err)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	packet := func(head ...byte) []byte {
		b := make([]byte, HeaderLen+8+ICVLen)
		copy(b, head)
		return b
	}
	for _, c := range []struct {
		name   string
		packet []byte
		err    error
		length int
	}{
		{"empty", nil, ErrShort, 0},
		{"a byte too short", packet(17, 1, 0, 1)[:31], ErrShort, 0},
		{"just long enough", packet(17, 1, 0, 1)[:32], nil, 16},
		{"the bit that is always 1 is 0", packet(17, 1, 0, 0), ErrFormat, 0},
		{"shorter than a header", packet(17, 0, 0, 1), ErrFormat, 0},
		{"a cookie, and no room for it", packet(17, 1, 0, 3), ErrFormat, 0},
		{"a cookie", packet(17, 2, 0, 3), nil, 24},
		{"an extension", packet(17, 2, 0, 1), nil, 24},
		{"an extension beyond the packet", packet(17, 3, 0, 1), ErrShort, 0},
		{"the longest extension", packet(17, 255, 0, 1), ErrShort, 0},
		{"version 3", packet(17, 1, 0, 3<<2|1), nil, 16},
		{"version 4", packet(17, 1, 0, 4<<2|1), ErrVersion, 0},
		{"version 15", packet(17, 1, 0, 15<<2|1), ErrVersion, 0},
		{"reserved bits, which are not looked at", packet(17, 1, 0xc1, 1), nil, 16},
	} {
		h, n, err := Parse(c.packet)
		if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || n != c.length {
			t.Errorf("%s: header of %d bytes, %v; want %d, %v", c.name, n, err, c.length, c.err)
		}
		if c.name == "reserved bits, which are not looked at" && h.CryptOffset != 4 {
			t.Errorf("%s: offset %d, want 4", c.name, h.CryptOffset)
		}
	}
}

// TestOffsets opens packets whose part in clear begins inside of the cookie, or
// ends after the packet, as Seal makes none.
func TestOffsets(t *testing.T) {
	t.Parallel()
	secret := make([]byte, 16)
	k, err := NewKey(GCM128, secret)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := aes.NewCipher(secret)
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	plain := []byte("sixteen bytes ..")
	for _, c := range []struct {
		virtual       bool
		offset, clear int
	}{{true, 0, 0}, {true, 4, 0}, {true, 8, 0}, {true, 12, 4}, {false, 16, 16}, {false, 20, 16}, {false, MaxCryptOffset, 16}} {
		h := Header{Next: UDP, SPI: 1, IV: 1, Virtual: c.virtual, CryptOffset: uint8(c.offset)}
		packet := append(h.AppendTo(nil), plain[:c.clear]...)
		packet = gcm.Seal(packet, packet[4:16], plain[c.clear:], packet)
		if _, got, err := k.Open(nil, packet); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}

func TestNewKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		v Version
		n int
	}{{GCM128, 32}, {GCM256, 16}, {GMAC128, 0}, {numVersions, 16}, {255, 32}} {
		if _, err := NewKey(c.v, make([]byte, c.n)); err == nil {
			t.Errorf("%v with %d bytes: no error", c.v, c.n)
		}
	}
}

// TestNothingPrintsKeys prints keys, and structs that they are in, in all ways.
func TestNothingPrintsKeys(t *testing.T) {
	t.Parallel()
	secret := bytes.Repeat([]byte{0xa7}, 32)
	k, err := NewKey(GCM256, secret)
	if err != nil {
		t.Fatal(err)
	}
	var m MasterKeys
	m.Rotate((*[MasterKeyLen]byte)(secret))
	c := &Chain{secret: (*[32]byte)(secret)}
	type holder struct {
		Key  *Key
		Copy Key
		Keys MasterKeys
		Next *Chain
		key  *Key
		keys MasterKeys
		next *Chain
		copy Key
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q", "%d"} {
		for _, what := range []any{k, *k, m, &m, c, *c, holder{k, *k, m, c, k, m, c, *k}, &holder{k, *k, m, c, k, m, c, *k}} {
			text := strings.ToLower(fmt.Sprintf(verb, what))
			for _, trace := range []string{"a7a7", "a7 a7", "0xa7, 0xa7", "167 167", "167, 167"} {
				if strings.Contains(text, trace) {
					t.Errorf("%s of %T prints the key: %s", verb, what, text)
				}
			}
		}
	}
}

func TestNoAllocation(t *testing.T) {
	k, err := NewKey(GCM128, make([]byte, 16))
	if err != nil {
		t.Fatal(err)
	}
	plain, sealed, opened := make([]byte, 4096), make([]byte, 0, 8192), make([]byte, 0, 8192)
	h := Header{Next: UDP, SPI: 1}
	if n := testing.AllocsPerRun(100, func() {
		h.IV++
		packet := k.Seal(sealed, &h, plain[:8], plain[8:])
		if _, _, err := k.Open(opened, packet); err != nil {
			t.Fatal(err)
		}
		h, n, err := Parse(packet)
		if err == nil {
			_, err = k.OpenInPlace(packet, &h, n)
		}
		if err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations for a packet", n)
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(unhex(f, example.sealed))
	f.Add(make([]byte, 64))
	k, err := NewKey(GCM128, unhex(f, example.key))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		before := bytes.Clone(packet)
		h, n, perr := Parse(packet)
		got, plain, err := k.Open(nil, packet)
		if !bytes.Equal(packet, before) {
			t.Fatal("the packet was changed")
		}
		if perr == nil {
			placed, perr := k.OpenInPlace(bytes.Clone(packet), &h, n)
			if perr != err || !bytes.Equal(placed, plain) {
				t.Fatalf("in its place: %x, %v; else %x, %v", placed, perr, plain, err)
			}
		}
		if err != nil {
			if len(plain) != 0 {
				t.Fatalf("refused, and %d bytes returned", len(plain))
			}
			return
		}
		if perr != nil || got != h || len(plain) != len(packet)-n-ICVLen {
			t.Fatalf("opened, and Parse says %v: %+v, %+v", perr, got, h)
		}
		if clear := int(h.CryptOffset) + HeaderLen - n; n == h.Len() && packet[2]>>6 == 0 && clear >= 0 && clear <= len(plain) {
			if again := k.Seal(nil, &h, plain[:clear], plain[clear:]); !bytes.Equal(again, packet) {
				t.Fatalf("sealed again: %x", again)
			}
		}
	})
}

// BenchmarkNextKey is what a new key costs: its secret, and itself.
func BenchmarkNextKey(b *testing.B) {
	c, err := NewChain(GCM128, make([]byte, 16))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		c.Next()
		c.Key(1)
	}
}
