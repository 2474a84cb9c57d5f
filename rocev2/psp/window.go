package psp

// WindowSize is how many packets may be late by reordering: a packet that is
// that far before the newest one is refused, as nothing is known of it.
const WindowSize = windowWords*64 - 64

const windowWords = 128

// Window remembers which IVs have come of one key, so that none counts twice.
// The zero Window has seen none. It is not safe for concurrent use.
//
// It is a ring of bits, as in RFC 6479: nothing is shifted when it moves.
type Window struct {
	newest uint64
	seen   [windowWords]uint64
}

// Verdict is what a Window says of an IV.
type Verdict uint8

// Verdicts.
const (
	Fresh  Verdict = iota // it has not come before
	Replay                // it has
	Stale                 // it is older than what the window knows of, or 0
)

// Look says what an IV is, and changes nothing: it is for before a packet is
// opened.
func (w *Window) Look(iv uint64) Verdict {
	switch {
	case iv == 0 || iv <= w.newest && w.newest-iv >= WindowSize:
		return Stale
	case iv <= w.newest && w.seen[iv/64%windowWords]>>(iv%64)&1 != 0:
		return Replay
	}
	return Fresh
}

// Take says what an IV is, and if it is fresh, notes that it has come. It must
// be called for packets that have been opened alone: else a forged packet would
// move the window.
func (w *Window) Take(iv uint64) Verdict {
	v := w.Look(iv)
	if v != Fresh {
		return v
	}
	if iv > w.newest {
		from, to := w.newest/64, iv/64
		for i := range min(to-from, windowWords) {
			w.seen[(to-i)%windowWords] = 0
		}
		w.newest = iv
	}
	w.seen[iv/64%windowWords] |= 1 << (iv % 64)
	return Fresh
}
