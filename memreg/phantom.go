package memreg

import "github.com/gosoftroce/rocev2/ib"

// Phantom returns a Memory of n bytes that has none: for simulations, in which
// thousands of adapters move data that is never looked at. Keys, rights, bounds
// and alignment are checked as ever, and there the work ends: CopyIn drops what
// it is given, CopyOut leaves dst as it is, and every word is always 0.
//
// So what is sent from it is whatever the buffer of the packet held before. A
// region on it is for networks that carry the lengths of payloads and not their
// bytes (package fabric/adapter), never for a link to others.
func Phantom(n uint64) Memory { return phantom(n) }

type phantom uint64

func (m phantom) Len() uint64 { return uint64(m) }
func (phantom) Bytes() []byte { return nil }

func (m phantom) check(off uint64, n int) error {
	if !inside(off, uint64(n), uint64(m)) {
		return ib.FaultOutOfBounds
	}
	return nil
}

func (m phantom) CopyIn(off uint64, src []byte) error  { return m.check(off, len(src)) }
func (m phantom) CopyOut(dst []byte, off uint64) error { return m.check(off, len(dst)) }

// word checks the word at off. The memory is as aligned as offsets are.
func (m phantom) word(off uint64) error {
	switch {
	case !inside(off, 8, uint64(m)):
		return ib.FaultOutOfBounds
	case off%8 != 0:
		return ib.FaultMisaligned
	}
	return nil
}

func (m phantom) Load64(off uint64) (uint64, error)                      { return 0, m.word(off) }
func (m phantom) Store64(off, _ uint64) error                            { return m.word(off) }
func (m phantom) CompareSwap64(off, _, _ uint64) (old uint64, err error) { return 0, m.word(off) }
func (m phantom) FetchAdd64(off, _ uint64) (old uint64, err error)       { return 0, m.word(off) }
