package dissect

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2/psp"
)

// Keys open sealed packets. They come from key logs: the lines that the
// KeyLogWriter of a TLS configuration gets (psp.LoggedKey). Lines of TLS are
// passed over.
//
// What is kept is bounded: a million keys, 16 of an SPI (the latest ones, as
// programs use the number of a queue pair again). A line may be as long as it
// likes.
type Keys struct {
	log  io.Reader // read on where a key is missing; nil: there is none
	name string    // of the log, for errors
	line uint64    // lines of the log that have ended
	rest []byte    // the beginning of one that has not
	long bool      // it is too long for one with a key

	newest map[uint32]int32 // by the number of an SPI: index of the key that is tried first
	all    []storedKey
	made   map[madeKey]*psp.Reader // of those that were tried lately
	buf    []byte

	wrong   uint64 // lines that should have a key
	problem error  // the first of them
	over    uint64 // keys beyond what is kept
	serial  uint32
}

// KeyLabel begins the lines of a key log that Keys takes.
const KeyLabel = psp.KeyLogLabel

// storedKey is a key without a pointer: there may be many.
type storedKey struct {
	spi      uint32 // of its first packets
	receiver [16]byte
	key      [32]byte
	size     uint8  // bytes of key
	worked   bool   // it has opened a packet
	older    int32  // the next one of the SPI; none: the last
	serial   uint32 // from 1
}

const none = -1

// Format keeps the keys out of what is printed.
func (k Keys) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "%d keys", len(k.all)) }

// Format keeps the key out of what is printed.
func (storedKey) Format(s fmt.State, _ rune) { io.WriteString(s, "key") }

type madeKey struct {
	index   int32
	version psp.Version
}

const (
	mostKeys  = 1 << 20
	maxOfSPI  = 16
	maxMade   = 4096
	keyBuffer = 1 << 15
)

func newKeys() *Keys { return &Keys{newest: map[uint32]int32{}, made: map[madeKey]*psp.Reader{}} }

// Len returns how many keys there are.
func (k *Keys) Len() int { return len(k.all) }

// Follow reads a key log to its end, and reads on in it when a packet comes
// that has no key: the log may still be written. Name is for errors. The error
// is one of r; see Problem for lines that are wrong.
func (k *Keys) Follow(r io.Reader, name string) error {
	k.endLog()
	k.log, k.name = r, name
	_, err := k.readOn()
	if err != nil {
		k.log = nil
		return fmt.Errorf("%s: %w", name, err)
	}
	k.last()
	return nil
}

// Add takes the text of a whole key log, such as the secrets of a capture.
func (k *Keys) Add(text []byte, name string) {
	k.endLog()
	k.log, k.name = nil, name
	k.take(text)
	k.endLog()
}

// Problem returns the first line with the label of a key that is none, and what
// else was not taken; nil if there is nothing.
func (k *Keys) Problem() error {
	switch {
	case k.wrong > 1:
		return fmt.Errorf("%w (and %d lines more)", k.problem, k.wrong-1)
	case k.wrong == 1:
		return k.problem
	case k.over > 0:
		return fmt.Errorf("%s: more than %d keys: %d were left out", k.name, mostKeys, k.over)
	}
	return nil
}

// readOn reads what the log has more, and reports whether there was any.
func (k *Keys) readOn() (more bool, err error) {
	if k.buf == nil {
		k.buf = make([]byte, keyBuffer)
	}
	for idle := 0; k.log != nil && idle < 10; idle++ {
		n, err := k.log.Read(k.buf)
		if n > 0 {
			more, idle = true, 0
			k.take(k.buf[:n])
		}
		switch {
		case errors.Is(err, io.EOF):
			return more, nil
		case err != nil:
			return more, err
		}
	}
	return more, nil
}

// take takes a part of a log.
func (k *Keys) take(b []byte) {
	for len(b) > 0 {
		end := bytes.IndexByte(b, '\n')
		part := b
		if end >= 0 {
			part = b[:end]
		}
		if !k.long && len(k.rest)+len(part) <= psp.MaxKeyLogLine {
			k.rest = append(k.rest, part...)
		} else if !k.long {
			k.long = true
			k.rest = append(k.rest, part[:max(0, min(len(part), psp.MaxKeyLogLine-len(k.rest)))]...)
		}
		if end < 0 {
			return
		}
		b = b[end+1:]
		k.endLine()
	}
}

// endLine takes the line in rest.
func (k *Keys) endLine() {
	k.line++
	key, ours, err := psp.ParseKeyLog(k.rest)
	switch {
	case ours && k.long:
		k.bad(errors.New("a line with a key is longer than any"))
	case ours && err != nil:
		k.bad(err)
	case ours:
		k.add(&key)
	}
	k.rest, k.long = k.rest[:0], false
}

func (k *Keys) bad(err error) {
	if k.wrong++; k.wrong == 1 {
		k.problem = fmt.Errorf("%s:%d: %w", k.name, k.line, err)
	}
}

// last takes a line that has no end, if it is a key: people edit such files. It
// stays, as more of it may come.
func (k *Keys) last() {
	if key, ours, err := psp.ParseKeyLog(k.rest); ours && err == nil && !k.long {
		k.add(&key)
	}
}

// endLog takes the last line of the log that was read before.
func (k *Keys) endLog() {
	if len(k.rest) > 0 || k.long {
		k.endLine()
	}
	k.line = 0
}

// add adds a key, which is tried first from now on.
func (k *Keys) add(l *psp.LoggedKey) {
	number := psp.Number(l.SPI)
	s := storedKey{spi: l.SPI, receiver: l.Receiver.As16(), size: uint8(len(l.Key)), older: none}
	copy(s.key[:], l.Key)
	k.serial++
	s.serial = k.serial
	first, known := k.newest[number]
	count, before, last := 0, int32(none), int32(none)
	if known {
		for i := first; i != none; i = k.all[i].older {
			if o := &k.all[i]; o.key == s.key && o.size == s.size && o.spi == s.spi && o.receiver == s.receiver {
				return // both sides may write to the same log
			}
			count++
			before, last = last, i
		}
		s.older = first
	}
	switch {
	case count == maxOfSPI: // the place of the oldest
		k.all[before].older = none
		k.forget(last)
		k.all[last] = s
		k.newest[number] = last
	case len(k.all) == mostKeys:
		k.over++
	default:
		k.all = append(k.all, s)
		k.newest[number] = int32(len(k.all) - 1)
	}
}

// forgetSome makes room in made: readers go that can be made again as they are,
// or else any.
func (k *Keys) forgetSome() {
	maps.DeleteFunc(k.made, func(_ madeKey, r *psp.Reader) bool { return !r.Followed() })
	for name := range k.made {
		if len(k.made) < maxMade {
			break
		}
		delete(k.made, name)
	}
}

// forget forgets what was made of a key.
func (k *Keys) forget(i int32) {
	for v := range psp.Version(psp.GMAC256 + 1) {
		delete(k.made, madeKey{i, v})
	}
}

// reader returns what opens the packets of a key and of those that follow it,
// nil if it is of another length than those of a version.
func (k *Keys) reader(i int32, v psp.Version) *psp.Reader {
	s := &k.all[i]
	if int(s.size) != v.KeyLen() {
		return nil
	}
	name := madeKey{i, v}
	made := k.made[name]
	if made == nil {
		var err error
		if made, err = psp.NewReader(v, s.spi, s.key[:s.size]); err != nil {
			return nil
		}
		if len(k.made) >= maxMade {
			k.forgetSome()
		}
		k.made[name] = made
	}
	return made
}

// Why a packet stays closed, and what is wrong with one for which there is a
// key.
var (
	ErrNoKey    = errors.New("sealed, and there is no key for its SPI")
	ErrWrongKey = errors.New("sealed, and no key of its SPI opens it: the keys are of another connection, or it was changed on its way")
	ErrBadICV   = errors.New("its integrity check value is wrong for the key that opens others with its SPI: it was changed on its way, or forged, or the key of a later connection is missing")
)

// open appends what is in a packet after its header to dst, and returns the
// serial number of the key.
func (k *Keys) open(dst, packet []byte, h *psp.Header, receiver netip.Addr) (plain []byte, key uint32, err error) {
	plain, key, err = k.try(dst, packet, h, receiver)
	if err == nil || errors.Is(err, ErrBadICV) || k.log == nil {
		return plain, key, err
	}
	more, failed := k.readOn()
	if failed != nil {
		k.bad(failed)
		k.log = nil
	}
	if !more {
		return plain, 0, err
	}
	return k.try(dst, packet, h, receiver)
}

// try tries the keys of an SPI: those of the receiver first, then others, as
// its address may have been translated.
func (k *Keys) try(dst, packet []byte, h *psp.Header, receiver netip.Addr) (plain []byte, serial uint32, err error) {
	first, known := k.newest[psp.Number(h.SPI)]
	if !known {
		return dst, 0, ErrNoKey
	}
	addr := receiver.As16()
	err = ErrWrongKey
	for _, same := range []bool{true, false} {
		for i := first; i != none; i = k.all[i].older {
			s := &k.all[i]
			if (s.receiver == addr) != same {
				continue
			}
			key := k.reader(i, h.Version)
			if key == nil {
				continue
			}
			if _, plain, failed := key.Open(dst, packet); failed == nil {
				s.worked, serial = true, s.serial
				k.prefer(first, i)
				return plain, serial, nil
			}
			if s.worked && same {
				err = ErrBadICV
			}
		}
	}
	return dst, 0, err
}

// prefer has the key at i tried first, in place of the one at first.
func (k *Keys) prefer(first, i int32) {
	if first == i {
		return
	}
	a, b := &k.all[first], &k.all[i]
	a.older, b.older = b.older, a.older
	*a, *b = *b, *a
	for v := range psp.Version(psp.GMAC256 + 1) { // a reader knows how far its keys have come
		of, to := madeKey{first, v}, madeKey{i, v}
		was, is := k.made[of], k.made[to]
		delete(k.made, of)
		delete(k.made, to)
		if was != nil {
			k.made[to] = was
		}
		if is != nil {
			k.made[of] = is
		}
	}
}
