package uverbs

import "sync/atomic"

// Bulk says of a program whether it moves bulk data: what its queues have
// completed shows it. Such a program has posted what keeps its queues busy for
// longer than it takes to wake it. So it may sleep while it waits, and learn of
// several long messages at once: the processor has other things to do.
//
// A program that answers messages waits for them, and does not move bulk data,
// unless the next answer is far away. Queues of any shard write here.
type Bulk struct {
	sends    atomic.Bool   // the last one that completed was one of many
	receives atomic.Bool   // so was the last receive
	stream   atomic.Uint64 // bytes received, with nothing posted between
	fresh    atomic.Bool   // some of it has completed, since somebody has looked
}

const (
	// bulkMessage is the least length of a message of bulk data, and
	// bulkPosted how many bytes are posted behind it.
	bulkMessage = 16 << 10
	bulkPosted  = 512 << 10

	// bulkStream bytes of receives without an answer are a stream. Where
	// an answer comes at last, it is late by a small part of the time that
	// the stream takes.
	bulkStream = 4 << 20
)

func isBulk(n uint32, left int) bool { return n >= bulkMessage && int64(n)*int64(left) >= bulkPosted }

// sent takes note of a request of n bytes that has completed, behind which
// there are so many.
func (b *Bulk) sent(n uint32, left int) { b.note(&b.sends, isBulk(n, left)) }

// received does so of a receive.
func (b *Bulk) received(n uint32, left int) {
	stream := b.stream.Load()
	if stream < bulkStream {
		stream = b.stream.Add(uint64(n))
	}
	b.note(&b.receives, stream >= bulkStream && isBulk(n, left))
}

func (b *Bulk) note(what *atomic.Bool, on bool) {
	set(what, on)
	if on {
		set(&b.fresh, true)
	}
}

// posted takes note of requests that the program has posted.
func (b *Bulk) posted() {
	if b.stream.Load() != 0 {
		b.stream.Store(0)
		set(&b.receives, false)
	}
}

// over forgets what was noted.
func (b *Bulk) over() {
	b.posted()
	set(&b.sends, false)
	set(&b.receives, false)
}

// is reports whether the program moves bulk data.
func (b *Bulk) is() bool { return b.sends.Load() || b.receives.Load() }

// set does not write what is there already.
func set(b *atomic.Bool, on bool) {
	if b.Load() != on {
		b.Store(on)
	}
}
