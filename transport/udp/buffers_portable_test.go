//go:build !linux || portable

package udp

import (
	"net/netip"
	"testing"
)

// TestAskBuffer: where a system refuses more than its limit, the buffer is most
// of the limit, and never smaller than it was.
func TestAskBuffer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ ask, now, limit, least, most int64 }{
		{16 << 20, 42080, 64 << 20, 16 << 20, 16 << 20}, // all
		{16 << 20, 42080, 1864135, 1398101, 1864135},    // FreeBSD
		{16 << 20, 41600, 262144, 196608, 262144},       // NetBSD
		{16 << 20, 786896, 700000, 786896, 786896},      // nothing above what it is
		{1, 42080, 262144, 1, 1},                        // less than it is
		{1, 42080, 0, 42080, 42080},
		{5 << 30, 42080, 1 << 40, 1<<31 - 1, 1<<31 - 1}, // more than the option takes
	} {
		if int64(int(c.ask)) != c.ask {
			continue // a processor of 32 bits
		}
		got, calls := c.now, 0
		askBuffer(int(c.ask), int(c.now), func(n int) error {
			if calls++; int64(n) > c.limit {
				return noRoom
			}
			got = int64(n)
			return nil
		})
		if got < c.least || got > c.most || calls > 64 {
			t.Errorf("asked for %d, with %d and a limit of %d: %d, in %d calls", c.ask, c.now, c.limit, got, calls)
		}
	}
}

// TestPortableBuffers: the link tells what its buffers hold.
func TestPortableBuffers(t *testing.T) {
	t.Parallel()
	l := open(t, netip.MustParseAddr("127.0.0.1"), Config{Port: port(), RecvBuffer: 1 << 16, SendBuffer: 1 << 15})
	if c := l.Capabilities(); c.RecvBuffer != 1<<16 || c.SendBuffer != 1<<15 {
		t.Errorf("capabilities %+v", c)
	}
}
