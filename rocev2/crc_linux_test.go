package rocev2

import (
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"
)

// No byte before or after a packet is read: there may be no memory.
func TestUpdateStaysInside(t *testing.T) {
	t.Parallel()
	page := unix.Getpagesize()
	const size = 2 // pages that may be read
	m, err := unix.Mmap(-1, 0, (size+2)*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(m); err != nil {
			t.Error(err)
		}
	})
	b := m[page : (size+1)*page]
	copy(b, randomBytes(rand.New(rand.NewPCG(13, 14)), len(b)))
	for _, guard := range [][]byte{m[:page], m[(size+1)*page:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	for name, f := range updates() {
		for n := range min(1200, len(b)) + 1 {
			checkUpdate(t, name, f, 1, b[:n])
			checkUpdate(t, name, f, 1, b[len(b)-n:])
		}
		for _, n := range []int{2060, 4096, 4108, len(b)} {
			checkUpdate(t, name, f, 1, b[:n])
			checkUpdate(t, name, f, 1, b[len(b)-n:])
		}
	}
}
