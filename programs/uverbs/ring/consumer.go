package ring

import "sync/atomic"

// Consumer is a ring that the program fills: of send requests, of receives.
//
// Elements have positions that count up from 0 for as long as the ring lives.
// Those from Released up to Taken belong to this side: the program must not
// write there, and gets them back in order.
type Consumer struct {
	buffer
	taken    uint64        // position of the next one to take
	released atomic.Uint64 // mirrored in shared memory, unless the ring holds

	holds bool          // the program gets elements back by Free
	freed atomic.Uint64 // then mirrored in shared memory
}

// Hold has the program get elements back by Free, and not by Release. It
// follows Init.
func (c *Consumer) Hold() { c.holds = true }

// Free gives all elements before position pos back to the program, which
// Release has had before. One goroutine at a time calls it, and none beside
// Clear.
func (c *Consumer) Free(pos uint64) {
	if pos > c.freed.Load() && pos <= c.released.Load() {
		c.freed.Store(pos)
		atomic.StoreUint32(c.consumer, uint32(pos&c.mask))
	}
}

// Held returns how many elements the program has not got back, of those that
// were taken.
func (c *Consumer) Held() int { return int(c.taken - c.freed.Load()) }

// Init makes an empty ring in mem.
func (c *Consumer) Init(mem []byte, s Shape) error {
	if err := c.init(mem, s); err != nil {
		return err
	}
	c.taken = 0
	c.released.Store(0)
	c.freed.Store(0)
	return nil
}

// Waiting returns how many elements can be taken. It fails if the program says
// that there are more than have room: it has written where it must not, or
// lies.
func (c *Consumer) Waiting() (int, error) {
	i, err := c.index(c.producer)
	if err != nil {
		return 0, err
	}
	n := (i - c.taken) & c.mask
	if n > c.mask-(c.taken-c.released.Load()) {
		return 0, ErrIndex
	}
	return int(n), nil
}

// Take copies the next element to b, which has at least the size of one, and
// returns its position. The caller knows from Waiting that there is one.
func (c *Consumer) Take(b []byte) uint64 {
	copyShared(b[:c.shape.Elem], c.elem(c.taken))
	c.taken++
	return c.taken - 1
}

// Taken returns the position of the next element to take.
func (c *Consumer) Taken() uint64 { return c.taken }

// Return gives back what was taken from position pos on, to be taken again.
func (c *Consumer) Return(pos uint64) { c.taken = max(pos, c.released.Load()) }

// Release gives all elements before position pos back to the program. It may be
// called beside the other methods, by one goroutine at a time.
func (c *Consumer) Release(pos uint64) {
	if pos > c.released.Load() {
		c.released.Store(pos)
		if !c.holds {
			atomic.StoreUint32(c.consumer, uint32(pos&c.mask))
		}
	}
}

// Released returns the position before which all was given back. It may be
// called beside the other methods.
func (c *Consumer) Released() uint64 { return c.released.Load() }

// Clear drops all that is in the ring, as a queue pair does that is reset.
// Positions go on counting.
func (c *Consumer) Clear() {
	i, err := c.index(c.producer)
	if err != nil { // then nothing in the ring has a meaning
		i = c.taken & c.mask
		atomic.StoreUint32(c.producer, uint32(i))
	}
	c.taken += (i - c.taken) & c.mask
	c.released.Store(c.taken)
	c.freed.Store(c.taken)
	atomic.StoreUint32(c.consumer, uint32(i))
}

// CopyTo copies the elements from position from on to another ring, of which
// that at position first is the first. A call copies few, and returns where the
// next one goes on, and whether there is one: if not, the other ring is as this
// one. The program must not use either meanwhile.
func (c *Consumer) CopyTo(to *Consumer, first, from uint64) (next uint64, more bool, err error) {
	n, err := c.Waiting()
	if err != nil {
		return from, false, err
	}
	end := c.taken + uint64(n)
	if end-first > uint64(to.shape.Cap()) || c.shape.Elem != to.shape.Elem {
		return from, false, ErrFull
	}
	for stop := min(from+AtOnce, end); from < stop; from++ {
		copyShared(to.elem(from-first), c.elem(from))
	}
	if from < end {
		return from, true, nil
	}
	to.taken = c.taken - first
	to.Release(to.taken)
	atomic.StoreUint32(to.producer, uint32((end-first)&to.mask))
	return from, false, nil
}
