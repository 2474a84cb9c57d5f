//go:build !portable

package udp

import (
	"slices"
	"time"
)

// choice learns which of two ways to receive costs less: into buffers, or into
// places. That depends on the processor, on the sizes of packets and messages,
// and on what else there is between them. So both are tried in turn, a few
// receives each. A receive costs the time until the next one begins, with all
// that is done about the packets, and not only the system call. The way that
// has won is kept for a while, and for longer each time that it wins again.
type choice struct {
	places bool // the way: into places
	won    bool // the way that has won last
	hold   int  // receives until the next trial; 0: it is under way
	last   int  // what hold was after the last trial; 0: there was none
	vain   int  // receives with nothing placed, since something was

	cost   [2][choiceBlocks]float64 // ns for a byte, of buffers and of places
	blocks int                      // of both
	worked bool                     // something was placed in this trial

	began    time.Duration // when the last receive has; 0: that does not count
	spent    time.Duration // in this block
	bytes    int
	receives int
}

const (
	// choiceBlocks of each way are compared by their medians: what else the
	// machine does hits a few of them.
	choiceBlocks = 17
	// choiceReceives with something are a block.
	choiceReceives = 8
	// A choice lasts for minHold receives at first, and for at most
	// maxHold. A trial has 272, of which half go the way that loses.
	minHold, maxHold = 1 << 10, 1 << 14
	// choiceGain is what places must save at least.
	choiceGain = 0.02
	// choiceVain receives with nothing placed end the choice of places.
	choiceVain = 64
)

// next reports whether to receive into places. The last receive has brought
// bytes. It asks for the time in a trial only.
func (c *choice) next(bytes int, now func() time.Duration) bool {
	if c.hold > 0 {
		c.hold--
		return c.places
	}
	t := now()
	if c.began != 0 && bytes > 0 {
		c.spent += t - c.began
		c.bytes += bytes
		c.receives++
	}
	c.began = t
	if c.receives == choiceReceives {
		c.endBlock()
	}
	return c.places
}

// interrupt says that the last receive is not to be counted.
func (c *choice) interrupt() { c.began = 0 }

// placed records a receive into places: whether anything was placed.
func (c *choice) placed(any bool) {
	if any {
		c.worked, c.vain = true, 0
	} else if c.vain++; c.vain >= choiceVain && c.hold > 0 {
		c.places = false
	}
}

// damaged records a wrong ICRC in a place. The network seldom causes one. A
// program can cause them again and again, if it writes there itself before the
// packet has been checked. It cannot write into a buffer. So buffers are the
// way for a while, and the transfer goes on.
func (c *choice) damaged() { *c = choice{hold: minHold, last: minHold} }

// endBlock goes on with the other way, and after the last block with the one
// that has won.
func (c *choice) endBlock() {
	way := 0
	if c.places {
		way = 1
	}
	c.cost[way][c.blocks/2] = float64(c.spent) / float64(c.bytes)
	c.spent, c.bytes, c.receives = 0, 0, 0
	c.places = !c.places
	if c.blocks++; c.blocks < 2*choiceBlocks {
		return
	}
	for i := range c.cost {
		slices.Sort(c.cost[i][:])
	}
	const median = choiceBlocks / 2
	won := c.worked && c.cost[1][median] < (1-choiceGain)*c.cost[0][median]
	if c.last = min(2*c.last, maxHold); won != c.won || c.last == 0 {
		c.last = minHold
	}
	c.won, c.places, c.hold = won, won, c.last
	c.blocks, c.worked, c.vain = 0, false, 0
	c.interrupt()
}
