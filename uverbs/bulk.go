package uverbs

import "sync/atomic"

// Bulk says of a program whether it moves bulk data: what its queues have to do
// shows it. Such a program has posted what keeps them busy for longer than it
// takes to wake it. So it may sleep while it waits, and learn of several long
// messages at once: the processor has other things to do.
//
// A program that answers messages waits for them, and does not move bulk data,
// unless the next answer is far away. Queues of any shard write here.
type Bulk struct {
	sends    atomic.Int64  // bytes of long messages, posted and not completed
	receives atomic.Bool   // the last receive was one of a stream
	stream   atomic.Uint64 // bytes received, with nothing posted between
	fresh    atomic.Bool   // some of it has completed, since somebody has looked
}

const (
	// bulkMessage is the least length of a message of bulk data: a long
	// one. bulkPosted bytes of them keep the queues busy for longer than
	// completions are withheld, and restPosted for longer than it takes to
	// wake the program.
	bulkMessage = 16 << 10
	bulkPosted  = 512 << 10
	restPosted  = 128 << 10

	// bulkStream bytes of receives without an answer are a stream. Where
	// an answer comes at last, it is late by a small part of the time that
	// the stream takes.
	bulkStream = 4 << 20
)

func isLong(n uint32) bool { return n >= bulkMessage }

// sent takes note of a request of n bytes that has completed.
func (b *Bulk) sent(n uint32) {
	if isLong(n) && b.sends.Add(-int64(n)) >= restPosted {
		set(&b.fresh, true)
	}
}

// received takes note of a receive of n bytes, behind which there are so many.
func (b *Bulk) received(n uint32, left int) {
	stream := b.stream.Load()
	if stream < bulkStream {
		stream = b.stream.Add(uint64(n))
	}
	is := stream >= bulkStream && isLong(n) && int64(n)*int64(left) >= bulkPosted
	if set(&b.receives, is); is {
		set(&b.fresh, true)
	}
}

// posts takes note of requests that the program has posted: so many bytes of
// long messages.
func (b *Bulk) posts(n int64) {
	if n != 0 {
		b.sends.Add(n)
		set(&b.fresh, true)
	}
	b.answered()
}

// drops takes note of so many bytes of them that do not complete.
func (b *Bulk) drops(n int64) {
	if n != 0 {
		b.sends.Add(-n)
	}
}

// answered takes note that a stream of receives ends.
func (b *Bulk) answered() {
	if b.stream.Load() != 0 {
		b.stream.Store(0)
		set(&b.receives, false)
	}
}

// is reports whether the program moves bulk data, and rests whether it has
// posted enough to sleep until the next message.
func (b *Bulk) is() bool    { return b.receives.Load() || b.sends.Load() >= bulkPosted }
func (b *Bulk) rests() bool { return b.receives.Load() || b.sends.Load() >= restPosted }

// set does not write what is there already.
func set(b *atomic.Bool, on bool) {
	if b.Load() != on {
		b.Store(on)
	}
}
