package top

// keyReader makes keys of what a terminal sends, which may come in parts.
type keyReader struct {
	state keyState
	param byte // the first digit of a sequence
}

type keyState int

const (
	keyPlain  keyState = iota
	keyEscape          // after ESC
	keyCSI             // after ESC [: up to a letter or ~
	keySS3             // after ESC O: one letter
)

// sequences are the last bytes of sequences of arrows and their like.
var sequences = map[byte]Key{'A': KeyUp, 'B': KeyDown, 'C': KeyRight, 'D': KeyLeft, 'H': KeyHome, 'F': KeyEnd}

// numbered are those of ESC [ digit ~.
var numbered = map[byte]Key{'1': KeyHome, '4': KeyEnd, '5': KeyPageUp, '6': KeyPageDown, '7': KeyHome, '8': KeyEnd}

// next takes a byte, and returns the key that is complete with it, or KeyNone.
func (r *keyReader) next(c byte) Key {
	switch r.state {
	case keyEscape:
		switch c {
		case '[':
			r.state, r.param = keyCSI, 0
		case 'O':
			r.state = keySS3
		case 0x1b:
		default: // a letter with Alt
			r.state = keyPlain
		}
		return KeyNone
	case keySS3:
		r.state = keyPlain
		return named(sequences, c)
	case keyCSI:
		if r.param == 0 {
			r.param = c
		}
		if c < 0x40 || c > 0x7e { // parameters go on
			return KeyNone
		}
		r.state = keyPlain
		if c == '~' {
			return named(numbered, r.param)
		}
		return named(sequences, c)
	}
	switch {
	case c == 0x1b:
		r.state = keyEscape
		return KeyNone
	case c < 0x80:
		return Key(c)
	}
	return KeyNone
}

func named(keys map[byte]Key, c byte) Key {
	if k, ok := keys[c]; ok {
		return k
	}
	return KeyNone
}
