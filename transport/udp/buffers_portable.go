//go:build !linux || portable

package udp

import "math"

// askBuffer asks for a buffer of n bytes, where the system gives now bytes, and
// for less and less while it refuses: the BSDs and macOS grant nothing at all
// above their limit (kern.ipc.maxsockbuf). If they refuse everything above now,
// that stays.
func askBuffer(n, now int, set func(n int) error) {
	n = min(n, math.MaxInt32) // what the option takes
	for set(n) != nil && n-n/4 > now {
		n -= max(n/4, 1)
	}
}
