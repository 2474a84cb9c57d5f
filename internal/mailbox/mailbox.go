// Package mailbox hands values from one goroutine to another one in their
// order, without a lock.
package mailbox

import "sync/atomic"

// Box is a queue of values from one goroutine, the sender, to another one, the
// receiver. It takes any number of them, in blocks that it uses again: so
// nothing allocates once it has held as many at a time. The zero Box is empty.
type Box[T any] struct {
	// Of the sender.
	newest, oldest *block[T] // oldest to newest by next; nil: there is none
	put            uint64
	freed          uint64 // by the blocks before oldest
	_              [64]byte

	first  *block[T] // set before anything is posted
	posted atomic.Uint64
	_      [64]byte

	// Of the receiver.
	head  *block[T]
	taken uint64
	done  atomic.Uint64 // values whose blocks may be used again
	_     [64]byte
}

const blockLen = 64

type block[T any] struct {
	next *block[T]
	all  [blockLen]T
}

// Put returns the place of one more value for the sender to fill, in which
// there is an old one or none. The receiver gets it with the next Post.
func (b *Box[T]) Put() *T {
	i := b.put % blockLen
	if i == 0 {
		b.extend()
	}
	b.put++
	return &b.newest.all[i]
}

// extend appends a block: the oldest one, if the receiver is through with it.
func (b *Box[T]) extend() {
	n := b.oldest
	switch {
	case n == nil:
		n = new(block[T])
		b.oldest, b.first = n, n
	case n != b.newest && b.done.Load() >= b.freed+blockLen:
		b.oldest, n.next = n.next, nil
		b.freed += blockLen
		b.newest.next = n
	default:
		n = new(block[T])
		b.newest.next = n
	}
	b.newest = n
}

// Post lets the receiver have what was put.
func (b *Box[T]) Post() {
	if b.posted.Load() != b.put {
		b.posted.Store(b.put)
	}
}

// Posted returns how many values were posted that the receiver has not taken.
// It is the receiver's.
func (b *Box[T]) Posted() int { return int(b.posted.Load() - b.taken) }

// Take returns the next value for the receiver, nil if none is posted. It is
// valid until the next Take.
func (b *Box[T]) Take() *T {
	if b.posted.Load() == b.taken {
		return nil
	}
	i := b.taken % blockLen
	if i == 0 {
		b.turn()
	}
	b.taken++
	return &b.head.all[i]
}

// turn goes on to the next block.
func (b *Box[T]) turn() {
	if b.head == nil {
		b.head = b.first
		return
	}
	b.head = b.head.next
	b.done.Store(b.taken)
}
