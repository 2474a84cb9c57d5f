package dissect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"time"
)

// Block types and options of pcapng (draft-ietf-opsawg-pcapng).
const (
	ngSection   = 0x0a0d0d0a
	ngIDB       = 1
	ngPacket    = 2 // obsolete
	ngSimple    = 3
	ngEnhanced  = 6
	ngSecrets   = 10
	ngByteOrder = 0x1a2b3c4d

	ngOptionEnd     = 0
	ngOptionTSResol = 9
	ngOptionTSOff   = 14
)

const (
	maxBlock      = 1 << 24 // of blocks that are skipped, too
	maxInterfaces = 4096    // of a section
	maxIDB        = 1 << 16 // bytes

	// ngKeyLog is the type of secrets that are a key log of TLS.
	ngKeyLog = 0x544c534b
)

// ngInterface is what frames of an interface need.
type ngInterface struct {
	link   LinkType
	snap   uint32
	units  uint64 // of time stamps, in a second
	offset int64  // of time stamps, in seconds
}

// section reads a section header; its type has been looked at, but not taken.
func (f *file) section() error {
	h := f.head[:12]
	if err := f.whole(h); err != nil {
		return err
	}
	return f.sectionRest(h)
}

// sectionRest reads a section header after its type, its length and its byte
// order, which are h.
func (f *file) sectionRest(h []byte) error {
	switch {
	case binary.BigEndian.Uint32(h[8:]) == ngByteOrder:
		f.order = binary.BigEndian
	case binary.LittleEndian.Uint32(h[8:]) == ngByteOrder:
		f.order = binary.LittleEndian
	default:
		return f.wrong(errors.New("a pcapng section without byte order: the file is damaged"))
	}
	n := f.order.Uint32(h[4:])
	if n < 28 || n > maxBlock || n&3 != 0 {
		return f.wrongBlock(ngSection, n)
	}
	version := f.head[12:16]
	if err := f.whole(version); err != nil {
		return err
	}
	if major := f.order.Uint16(version); major != 1 {
		return f.wrong(fmt.Errorf("version %d of pcapng, which is not known; 1 is the only one", major))
	}
	f.interfaces = f.interfaces[:0]
	return f.skip(n - 16)
}

func (f *file) wrongBlock(kind, n uint32) error {
	return f.wrong(fmt.Errorf("a pcapng block of type %d with length %d: the file is damaged", kind, n))
}

func (f *file) skip(n uint32) error {
	m, err := f.r.Discard(int(n))
	f.offset += int64(m)
	if errors.Is(err, io.EOF) {
		return f.wrong(errCut)
	}
	return err
}

// nextBlock reads blocks up to the next frame.
func (f *file) nextBlock(to *Frame) error {
	for {
		h := f.head[:8]
		if err := f.read(h); err != nil {
			return f.end(err)
		}
		kind := f.order.Uint32(h)
		if kind == ngSection { // the same in both byte orders
			if err := f.whole(f.head[8:12]); err != nil {
				return err
			}
			if err := f.sectionRest(f.head[:12]); err != nil {
				return err
			}
			continue
		}
		n := f.order.Uint32(h[4:])
		if n < 12 || n > maxBlock || n&3 != 0 {
			return f.wrongBlock(kind, n)
		}
		found, err := f.block(to, kind, n-8)
		if found || err != nil {
			return err
		}
	}
}

// block reads a block, of which n bytes are left, and reports whether it is a
// frame.
func (f *file) block(to *Frame, kind, n uint32) (frame bool, err error) {
	switch {
	case kind == ngIDB:
		return false, f.describe(n)
	case (kind == ngEnhanced || kind == ngPacket) && n >= 24:
		h := f.head[:20]
		if err := f.whole(h); err != nil {
			return false, err
		}
		id := f.order.Uint32(h)
		if kind == ngPacket {
			id = uint32(f.order.Uint16(h))
		}
		stamp := uint64(f.order.Uint32(h[4:]))<<32 | uint64(f.order.Uint32(h[8:]))
		return true, f.frame(to, id, stamp, f.order.Uint32(h[12:]), f.order.Uint32(h[16:]), n-20)
	case kind == ngSecrets && n >= 12:
		return false, f.secrets(n)
	case kind == ngSimple && n >= 8:
		h := f.head[:4]
		if err := f.whole(h); err != nil {
			return false, err
		}
		length := f.order.Uint32(h)
		captured := min(length, n-8)
		if len(f.interfaces) > 0 && f.interfaces[0].snap > 0 {
			captured = min(captured, f.interfaces[0].snap)
		}
		return true, f.frame(to, 0, 0, captured, length, n-4)
	case kind == ngEnhanced || kind == ngPacket || kind == ngSimple:
		return false, f.wrongBlock(kind, n+8)
	}
	return false, f.skip(n)
}

// secrets reads a decryption secrets block, of which n bytes are left: keys of
// connections whose packets follow.
func (f *file) secrets(n uint32) error {
	h := f.head[:8]
	if err := f.whole(h); err != nil {
		return err
	}
	n -= 8
	size := f.order.Uint32(h[4:])
	if size > n-4 {
		return f.wrong(fmt.Errorf("secrets of %d bytes in a block of %d: the file is damaged", size, n+16))
	}
	if f.order.Uint32(h) != ngKeyLog || f.keys == nil {
		return f.skip(n)
	}
	text := make([]byte, size)
	if err := f.whole(text); err != nil {
		return err
	}
	f.keys.Add(text, "secrets of the capture")
	return f.skip(n - size)
}

// frame reads the data of a frame, and skips the rest of its block, of which n
// bytes are left.
func (f *file) frame(to *Frame, id uint32, stamp uint64, captured, length, n uint32) error {
	if id >= uint32(len(f.interfaces)) {
		return f.wrong(fmt.Errorf("a frame of interface %d, but the section describes only %d", id, len(f.interfaces)))
	}
	if captured > n-4 {
		return f.wrong(fmt.Errorf("a frame of %d bytes in a block of %d: the file is damaged", captured, n))
	}
	i := &f.interfaces[id]
	to.Link = i.link
	to.Time = i.time(stamp)
	to.Segment = 0
	if err := f.data(to, captured, length); err != nil {
		return err
	}
	return f.skip(n - captured)
}

// time converts a time stamp.
func (i *ngInterface) time(stamp uint64) time.Time {
	seconds, rest := stamp/i.units, stamp%i.units
	hi, lo := bits.Mul64(rest, uint64(time.Second)) // hi < units, because rest is
	nanos, _ := bits.Div64(hi, lo, i.units)
	return time.Unix(int64(seconds)+i.offset, int64(nanos)).UTC()
}

// describe reads an interface description block, of which n bytes are left.
func (f *file) describe(n uint32) error {
	if n < 12 || n > maxIDB {
		return f.wrongBlock(ngIDB, n+8)
	}
	if len(f.interfaces) == maxInterfaces {
		return f.wrong(fmt.Errorf("more than %d interfaces in a section", maxInterfaces))
	}
	b := make([]byte, n)
	if err := f.whole(b); err != nil {
		return err
	}
	i := ngInterface{link: LinkType(f.order.Uint16(b)), snap: f.order.Uint32(b[4:]), units: 1e6}
	for b = b[8 : n-4]; len(b) >= 4; {
		code, size := f.order.Uint16(b), int(f.order.Uint16(b[2:]))
		if code == ngOptionEnd {
			break
		}
		padded := 4 + (size+3)&^3
		if padded > len(b) {
			return f.wrong(fmt.Errorf("option %d of an interface goes beyond its block: the file is damaged", code))
		}
		value := b[4 : 4+size]
		switch {
		case code == ngOptionTSResol && size == 1:
			if i.units = resolution(value[0]); i.units == 0 {
				return f.wrong(fmt.Errorf("an interface has time stamps of resolution %#x, which is too fine", value[0]))
			}
		case code == ngOptionTSOff && size == 8:
			i.offset = int64(f.order.Uint64(value))
		}
		b = b[padded:]
	}
	f.interfaces = append(f.interfaces, i)
	return nil
}

// resolution returns how many units a second has, or 0 if too many: v is the
// negative exponent, of 2 if bit 7 is set, of 10 if not.
func resolution(v byte) uint64 {
	if exp := v & 0x7f; v != exp {
		if exp > 63 {
			return 0
		}
		return 1 << exp
	} else if exp > 19 {
		return 0
	}
	units := uint64(1)
	for range v {
		units *= 10
	}
	return units
}
