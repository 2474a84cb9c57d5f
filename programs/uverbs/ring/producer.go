package ring

import (
	"errors"
	"sync/atomic"
	"unsafe"
)

// ErrFull says that a ring has no room.
var ErrFull = errors.New("ring: full")

// Producer is a ring that the program empties: of completions.
type Producer struct {
	buffer
	next uint64 // position of the next one to put
}

// Init makes an empty ring in mem.
func (p *Producer) Init(mem []byte, s Shape) error {
	p.next = 0
	return p.init(mem, s)
}

// Len returns how many elements the program has not taken yet.
func (p *Producer) Len() (int, error) {
	i, err := p.index(p.consumer)
	if err != nil {
		return 0, err
	}
	return int((p.next - i) & p.mask), nil
}

// Put adds an element, which has at most the size of one: it is there before
// the program sees that it is.
func (p *Producer) Put(e []byte) error {
	n, err := p.Len()
	if err != nil {
		return err
	}
	if n == p.shape.Cap() {
		return ErrFull
	}
	copyShared(p.elem(p.next), e)
	p.next++
	atomic.StoreUint32(p.producer, uint32(p.next&p.mask))
	return nil
}

// Next returns the position of the next element to put. Positions count up from
// 0 for as long as the ring lives.
func (p *Producer) Next() uint64 { return p.next }

// AtOnce is how many elements a call looks at that goes over a ring. The
// program says how many there are, and others may wait meanwhile.
const AtOnce = 64

// Unread returns the position of the first element that the program has not
// taken yet.
func (p *Producer) Unread() (uint64, error) {
	n, err := p.Len()
	if err != nil {
		return 0, err
	}
	return p.next - min(uint64(n), p.next), nil
}

// Forget marks the completions of a queue pair that the program has not taken
// yet. They stay in the ring, for the program may be reading them; what polls
// for it drops those with the mark. A call looks at few, between two positions,
// and returns where the next call goes on: at end if there is none left.
func (p *Producer) Forget(qpn uint32, from, end uint64) uint64 {
	first, err := p.Unread()
	if err != nil || p.shape.Elem < CQElem {
		return end
	}
	end = min(end, p.next)
	from = max(from, first)
	for stop := min(from+AtOnce, end); from < stop; from++ {
		e := p.elem(from)
		word := func(at int) *uint32 { return (*uint32)(unsafe.Pointer(&e[at])) }
		if atomic.LoadUint32(word(wcQPN)) == qpn {
			atomic.StoreUint32(word(wcVendorErr), Forgotten)
		}
	}
	return from
}

// CopyTo copies the elements from a position on to another ring, after those
// that earlier calls have copied there. A call copies few, and returns where
// the next one goes on: at Next if there is none left. The program must not use
// either ring meanwhile. After an error the other ring is of no use.
func (p *Producer) CopyTo(to *Producer, from uint64) (uint64, error) {
	if p.shape.Elem != to.shape.Elem {
		return from, ErrFull
	}
	for stop := min(from+AtOnce, p.next); from < stop; from++ {
		if to.next == uint64(to.shape.Cap()) {
			return from, ErrFull
		}
		copyShared(to.elem(to.next), p.elem(from))
		to.next++
	}
	atomic.StoreUint32(to.producer, uint32(to.next))
	return from, nil
}
