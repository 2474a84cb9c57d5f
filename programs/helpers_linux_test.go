package programs

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
)

// shortDir returns a directory whose path has room for a socket's.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "roce")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

var loopback = sync.OnceValue(func() func() netip.Addr {
	var mu sync.Mutex
	at, next := [2]byte{byte(1 + rand.IntN(250)), byte(rand.IntN(250))}, byte(0)
	return func() netip.Addr {
		mu.Lock()
		defer mu.Unlock()
		next++
		return netip.AddrFrom4([4]byte{127, at[0], at[1], next})
	}
})

// realHost serves a device, whose own packets go past the network.
func realHost(t testing.TB, config Config) *Host {
	t.Helper()
	return hostOf(t, config, verbs.Config{Loopback: true})
}

func hostOf(t testing.TB, config Config, device verbs.Config) *Host {
	t.Helper()
	if config.Dir == "" {
		config.Dir = shortDir(t)
	}
	h, err := Listen(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	if err := h.OpenDevice(loopback()(), device); err != nil {
		t.Fatal(err)
	}
	if err := h.Ready(); err != nil {
		t.Fatal(err)
	}
	return h
}
