package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// The header of a ring, struct rxe_queue_buf. The indices are in cache lines of
// their own.
//
//	  0: log2 of the size of an element   4: number of elements - 1
//	128: producer's index   256: consumer's index   384: elements
const (
	offLog2     = 0
	offMask     = 4
	offProducer = 128
	offConsumer = 256

	// HeaderSize is what comes before the elements, in bytes.
	HeaderSize = 384
)

// maxBytes bounds a ring: its size goes to the program in 32 bits.
const maxBytes = 1<<32 - 1

// Shape is how many elements a ring has, and of what size. Both are powers of
// two.
type Shape struct {
	Slots int // one more than it can hold, so that full differs from empty
	Elem  int // bytes
}

// ShapeFor returns the smallest shape that holds entries elements of at least
// elem bytes.
func ShapeFor(entries, elem int) Shape {
	return Shape{Slots: 1 << bits.Len(uint(max(entries, 1))), Elem: 1 << bits.Len(uint(max(elem, 1)-1))}
}

// Cap returns how many elements the ring holds.
func (s Shape) Cap() int { return s.Slots - 1 }

// Size returns the bytes of the ring with its header.
func (s Shape) Size() uint64 { return HeaderSize + uint64(s.Slots)*uint64(s.Elem) }

func (s Shape) valid() bool {
	return s.Slots > 1 && s.Elem > 0 && s.Slots&(s.Slots-1) == 0 && s.Elem&(s.Elem-1) == 0 &&
		uint64(s.Slots) <= maxBytes/uint64(s.Elem) && s.Size() <= maxBytes
}

// ErrIndex is what a ring gives whose program has set an impossible index: past
// the last element, or ahead of all that can be in the ring.
var ErrIndex = errors.New("ring: the program has set an impossible index")

// ErrShape is wrapped by what is returned for memory that is no ring.
var ErrShape = errors.New("ring: bad size")

// buffer is a ring as this side knows it.
type buffer struct {
	producer, consumer *uint32 // in shared memory
	data               []byte  // likewise
	shape              Shape
	mask               uint64
}

// init writes the header of an empty ring into mem.
func (b *buffer) init(mem []byte, s Shape) error {
	if !s.valid() {
		return fmt.Errorf("%w: %d elements of %d bytes; both must be powers of two", ErrShape, s.Slots, s.Elem)
	}
	if uint64(len(mem)) < s.Size() {
		return fmt.Errorf("%w: %d bytes of memory; the ring needs %d", ErrShape, len(mem), s.Size())
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%8 != 0 {
		return fmt.Errorf("%w: its memory is not aligned to 8 bytes", ErrShape)
	}
	*b = buffer{
		producer: (*uint32)(unsafe.Pointer(&mem[offProducer])),
		consumer: (*uint32)(unsafe.Pointer(&mem[offConsumer])),
		data:     mem[HeaderSize:s.Size():s.Size()],
		shape:    s,
		mask:     uint64(s.Slots - 1),
	}
	binary.NativeEndian.PutUint32(mem[offLog2:], uint32(bits.TrailingZeros(uint(s.Elem))))
	binary.NativeEndian.PutUint32(mem[offMask:], uint32(b.mask))
	atomic.StoreUint32(b.producer, 0)
	atomic.StoreUint32(b.consumer, 0)
	return nil
}

// Shape returns the shape of the ring.
func (b *buffer) Shape() Shape { return b.shape }

// index reads an index of the program once.
func (b *buffer) index(p *uint32) (uint64, error) {
	i := uint64(atomic.LoadUint32(p))
	if i > b.mask {
		return 0, ErrIndex
	}
	return i, nil
}

// elem returns the place of an element in shared memory.
func (b *buffer) elem(pos uint64) []byte {
	at := int(pos&b.mask) * b.shape.Elem
	return b.data[at : at+b.shape.Elem]
}
