package psp

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testshort"
)

// seals returns a packet that a key has sealed.
func seals(k *Key, spi uint32) []byte {
	return k.Seal(nil, &Header{Next: UDP, SPI: spi, IV: 1}, make([]byte, 8), []byte("a secret"))
}

func opens(k *Key, packet []byte) bool {
	_, _, err := k.Open(nil, packet)
	return err == nil
}

func newChain(t testing.TB, v Version, key []byte) *Chain {
	t.Helper()
	c, err := NewChain(v, key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestChainDerives computes keys from HMAC-SHA-256 by hand, by the lines of RFC
// 5869 for one block.
func TestChainDerives(t *testing.T) {
	t.Parallel()
	mac := func(key []byte, parts ...string) []byte {
		h := hmac.New(sha256.New, key)
		for _, p := range parts {
			h.Write([]byte(p))
		}
		return h.Sum(nil)
	}
	for _, v := range []Version{GCM128, GCM256, GMAC128, GMAC256} {
		key := bytes.Repeat([]byte{0x5a}, v.KeyLen())
		c := newChain(t, v, key)
		secret := mac([]byte("rocev2 psp"), string(key))
		for g := range 600 {
			spi := Later(0x7e000102, uint64(g))
			bytes := mac(secret, "key", string([]byte{byte(v), byte(spi >> 24), 0, 1, 2}), "\x01")
			want, err := NewKey(v, bytes[:v.KeyLen()])
			if err != nil {
				t.Fatal(err)
			}
			if got := c.Key(0x7e000102); c.Generation() != uint64(g) || !opens(want, seals(got, spi)) {
				t.Fatalf("%v, generation %d (%d): another key", v, g, c.Generation())
			}
			secret = mac(secret, "next", "\x01")
			c.Next()
		}
	}
}

// TestChainKeysDiffer has the keys of 600 generations, of associations, and of
// versions: none opens what another one has sealed.
func TestChainKeysDiffer(t *testing.T) {
	t.Parallel()
	const first = 0x00001234
	one := newChain(t, GCM128, make([]byte, 16))
	var keys []*Key
	for range testshort.Rounds(600) {
		keys = append(keys, one.Key(first))
		one.Next()
	}
	other := newChain(t, GCM128, append(make([]byte, 15), 1))
	keys = append(keys, other.Key(first), newChain(t, GCM128, make([]byte, 16)).Key(first+1), newChain(t, GCM128, make([]byte, 16)).Key(first+1<<24))
	for i, k := range keys {
		packet := seals(k, first)
		for j, o := range keys {
			if opens(o, packet) != (i == j) {
				t.Fatalf("key %d opens a packet of key %d: %v", j, i, i != j)
			}
		}
	}
	if a, b := newChain(t, GCM128, make([]byte, 16)).Fingerprint(), other.Fingerprint(); a == b {
		t.Error("two keys have the same fingerprint")
	}
	if a, b := newChain(t, GCM128, make([]byte, 16)).Fingerprint(), newChain(t, GCM128, make([]byte, 16)).Fingerprint(); a != b {
		t.Error("a key has two fingerprints")
	}
}

func TestChainErases(t *testing.T) {
	t.Parallel()
	c := newChain(t, GCM256, bytes.Repeat([]byte{7}, 32))
	before, was := c.secret, *c.secret
	if c.Next(); *c.secret == was || *c.secret == [32]byte{} || *before != [32]byte{} {
		t.Error("the secret has not changed, or is still there")
	}
	last := c.secret
	if c.Erase(); *last != [32]byte{} || c.secret != nil {
		t.Error("the secret is still there")
	}
	for _, bad := range []struct {
		v Version
		n int
	}{{GCM128, 32}, {GCM256, 16}, {GMAC128, 0}, {numVersions, 16}, {255, 32}} {
		if _, err := NewChain(bad.v, make([]byte, bad.n)); err == nil {
			t.Errorf("%v with %d bytes: no error", bad.v, bad.n)
		}
	}
}

func TestGenerations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first uint32
		by    uint64
		want  uint32
	}{
		{0x00123456, 0, 0x00123456}, {0x00123456, 1, 0x01123456}, {0x7f123456, 1, 0x00123456}, {0xff123456, 1, 0x80123456},
		{0x00ffffff, 128, 0x00ffffff}, {0x05000000, 1<<40 + 3, 0x08000000},
	} {
		if got := Later(c.first, c.by); got != c.want || Number(got) != Number(c.first) {
			t.Errorf("%d after %08x: %08x, want %08x", c.by, c.first, got, c.want)
		}
		if got, want := Between(Later(c.first, c.by), c.first), int(int8(c.by<<1))/2; got != want {
			t.Errorf("%d after %08x: %d between, want %d", c.by, c.first, got, want)
		}
	}
	if got := Between(0x7f000001, 0x3f000001); got != -64 {
		t.Errorf("half way round: %d", got)
	}
	if got := Between(0x05000001, 0x04ffffff); got != 1 {
		t.Errorf("of other numbers: %d", got)
	}
}
