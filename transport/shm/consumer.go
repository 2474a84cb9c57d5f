package shm

import (
	"net/netip"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// consumer reads one direction of the memory. The producer may be broken, and
// may change whatever it has written at any time. So each word is read once,
// and checked. Of packets the bytes may change too: nothing that reads them
// relies on reading the same twice.
type consumer struct {
	ring     half
	next     atomic.Uint32 // descriptor to be read; only the receiver changes it
	released uint32        // all before were given back
	stopped  atomic.Bool   // the producer is broken: nothing is taken any more
	behind   bool          // the next descriptor waits for what came by UDP
	passUDP  bool          // it does not wait any more
	src      netip.Addr    // of all packets
	dst      netip.Addr
	short    [inlineLen + rocev2.ICRCLen]byte // a packet on its way into a batch
}

// ready reports whether there is something to take. It may run beside take.
func (c *consumer) ready() bool {
	n := c.next.Load()
	return c.ring.state(n).Load() == lap(n) && !c.stopped.Load()
}

// arm asks the producer to wake this side for what comes next. It reports
// whether something is there already: also if the producer was asked before,
// for what it has put in since then may have been left.
func (c *consumer) arm() (ready bool) {
	if a := c.ring.armed(); a.Load() == 0 {
		a.Store(1) // before the look: the producer looks afterwards
	}
	return c.ready()
}

// release gives back what was taken.
func (c *consumer) release() {
	if n := c.next.Load(); n != c.released {
		c.released = n
		c.ring.head().Store(n)
	}
}

// maxSegments is what a run has at most, see transport.MaxRunSegments.
const maxSegments = transport.MaxRunSegments

// minPacketLen is what any packet has at least.
const minPacketLen = rocev2.BTHLen + rocev2.ICRCLen

// taken is what a take has found.
type taken struct{ runs, bytes int }

// take adds at most that many runs to b, and stops after that many bytes. Their
// packets lie in the ring until release.
func (c *consumer) take(b *transport.RxBatch, runs, bytes int) (t taken, err error) {
	for t.runs < runs && t.bytes < bytes {
		n := c.next.Load()
		if c.ring.state(n).Load() != lap(n) {
			return t, nil
		}
		d := c.ring.desc(n)
		length, segment := int(get(d, wordLength)), get(d, wordSegment)
		flags := segment >> 16
		if flags&flagAfterUDP != 0 && !c.passUDP {
			c.behind = true
			return t, nil
		}
		p := c.shape(d, flags)
		switch {
		case flags&^flagsKnown != 0:
			return t, errBroken("a descriptor has flags that do not exist")
		case flags&flagInline != 0:
			if ok, err := c.takeInline(b, d, length, p); err != nil || !ok {
				return t, err
			}
		default:
			if err := c.takeRun(b, int(get(d, wordPlace)), length, int(segment&0xffff), p); err != nil {
				return t, err
			}
		}
		c.passUDP = false
		c.next.Store(n + 1)
		t.runs++
		t.bytes += length
	}
	return t, nil
}

// shape returns a packet with all that the descriptor says of it.
func (c *consumer) shape(d *[descLen]byte, flags uint32) transport.RxPacket {
	path := get(d, wordPath)
	p := transport.RxPacket{
		Src: c.src, Dst: c.dst,
		SrcPort: uint16(path), TrafficClass: uint8(path >> 16), HopLimit: uint8(path >> 24),
		FlowLabel: get(d, wordLabel) & 0xfffff,
		ICRC:      transport.ICRCAbsent,
	}
	if flags&flagDamaged != 0 {
		p.ICRC = transport.ICRCBad
	}
	return p
}

// takeInline adds a copy of a packet that lies in the descriptor. It reports
// false if the batch has no room.
func (c *consumer) takeInline(b *transport.RxBatch, d *[descLen]byte, length int, p transport.RxPacket) (bool, error) {
	if length < minPacketLen || length > inlineLen+rocev2.ICRCLen {
		return false, errBroken("a packet in a descriptor has an impossible length")
	}
	copy(c.short[:length-rocev2.ICRCLen], d[inlineAt:])
	p.Data = c.short[:length]
	return b.AppendCopy(p), nil
}

// takeRun adds the packets of a run.
func (c *consumer) takeRun(b *transport.RxBatch, place, length, segment int, p transport.RxPacket) error {
	data := c.ring.data()
	switch {
	case place < 0 || place > len(data) || length < 0 || length > len(data)-place:
		return errBroken("a run does not lie in the ring")
	case segment < minPacketLen || segment > rocev2.MaxPacketLen || length > maxSegments*segment || length == 0:
		return errBroken("a run has packets of an impossible length")
	case length%segment > 0 && length%segment < minPacketLen:
		return errBroken("the last packet of a run is too short")
	}
	for run := data[place : place+length]; len(run) > 0; {
		n := min(segment, len(run))
		p.Data = run[:n:n]
		run = run[n:]
		b.Append(p)
	}
	return nil
}
