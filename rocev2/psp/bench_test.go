package psp

import (
	"fmt"
	"testing"
)

// BenchmarkKey seals and opens packets, as sockets carry them, beside what
// package crypto/cipher takes for the same bytes.
func BenchmarkKey(b *testing.B) {
	for _, v := range []Version{GCM128, GMAC128} {
		for _, size := range []int{40, 4112} { // a WRITE of 8 bytes, the middle of a long one
			k, err := NewKey(v, make([]byte, v.KeyLen()))
			if err != nil {
				b.Fatal(err)
			}
			h := Header{Next: UDP, SPI: 5, IV: 1}
			clear, secret := make([]byte, 8), make([]byte, size)
			packet := k.Seal(nil, &h, clear, secret)
			work := make([]byte, 0, len(packet))
			run := func(name string, f func()) {
				b.Run(fmt.Sprintf("%v/%d/%s", v, size, name), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						f()
					}
				})
			}
			run("seal", func() { k.Seal(work, &h, clear, secret) })
			run("seal/cipher", func() {
				if v.Encrypts() {
					k.aead.Seal(work[:24], packet[4:16], secret, packet[:24])
				} else {
					k.aead.Seal(work[:24], packet[4:16], nil, packet[:len(packet)-ICVLen])
				}
			})
			run("open", func() {
				w := append(work, packet...)
				h, n, _ := Parse(w)
				if _, err := k.OpenInPlace(w, &h, n); err != nil {
					b.Fatal(err)
				}
			})
			run("open/cipher", func() {
				w := append(work, packet...)
				at := 24
				if !v.Encrypts() {
					at = len(packet) - ICVLen
				}
				if _, err := k.aead.Open(w[at:at], w[4:16], w[at:], w[:at]); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
