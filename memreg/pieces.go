package memreg

import (
	"sort"

	"github.com/gosoftroce/rocev2/ib"
)

// pieces are buffers that follow one another.
type pieces struct {
	bufs []local
	ends []uint64 // where each ends
}

// Pieces returns buffers as one Memory, in which they follow each other: the
// scatter list of a fast registration (IBTA 10.6.3.3). A 64-bit word lies in
// one of them, or it is ib.FaultMisaligned. The caller keeps them in place and
// accessible, as for Local. Empty ones are left out.
func Pieces(bufs ...[]byte) Memory {
	p := &pieces{}
	var end uint64
	for _, b := range bufs {
		if len(b) > 0 {
			end += uint64(len(b))
			p.bufs, p.ends = append(p.bufs, b), append(p.ends, end)
		}
	}
	if len(p.bufs) == 1 {
		return p.bufs[0]
	}
	return p
}

func (p *pieces) Len() uint64 {
	if len(p.ends) == 0 {
		return 0
	}
	return p.ends[len(p.ends)-1]
}

func (p *pieces) Bytes() []byte { return nil }

// from returns the piece that has byte off, which is inside, and where in it.
func (p *pieces) from(off uint64) (i int, at uint64) {
	i = sort.Search(len(p.ends), func(i int) bool { return p.ends[i] > off })
	if i > 0 {
		off -= p.ends[i-1]
	}
	return i, off
}

// each calls f for the parts of n bytes at off, in order.
func (p *pieces) each(off, n uint64, f func(b []byte)) error {
	if !inside(off, n, p.Len()) {
		return ib.FaultOutOfBounds
	}
	for n > 0 {
		i, at := p.from(off)
		b := p.bufs[i][at:]
		b = b[:min(uint64(len(b)), n)]
		f(b)
		off, n = off+uint64(len(b)), n-uint64(len(b))
	}
	return nil
}

func (p *pieces) CopyIn(off uint64, src []byte) error {
	return p.each(off, uint64(len(src)), func(b []byte) { src = src[copy(b, src):] })
}

func (p *pieces) CopyOut(dst []byte, off uint64) error {
	return p.each(off, uint64(len(dst)), func(b []byte) { dst = dst[copy(dst, b):] })
}

// word returns the piece that has the 64-bit word at off, and where in it.
func (p *pieces) word(off uint64) (local, uint64, error) {
	if !inside(off, 8, p.Len()) {
		return nil, 0, ib.FaultOutOfBounds
	}
	i, at := p.from(off)
	if uint64(len(p.bufs[i]))-at < 8 {
		return nil, 0, ib.FaultMisaligned
	}
	return p.bufs[i], at, nil
}

func (p *pieces) Load64(off uint64) (uint64, error) {
	b, at, err := p.word(off)
	if err != nil {
		return 0, err
	}
	return b.Load64(at)
}

func (p *pieces) Store64(off, v uint64) error {
	b, at, err := p.word(off)
	if err != nil {
		return err
	}
	return b.Store64(at, v)
}

func (p *pieces) CompareSwap64(off, compare, swap uint64) (uint64, error) {
	b, at, err := p.word(off)
	if err != nil {
		return 0, err
	}
	return b.CompareSwap64(at, compare, swap)
}

func (p *pieces) FetchAdd64(off, add uint64) (uint64, error) {
	b, at, err := p.word(off)
	if err != nil {
		return 0, err
	}
	return b.FetchAdd64(at, add)
}
