package dissect

import (
	"fmt"
	"io"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Capture gives the packets of a source, with their analysis.
type Capture struct {
	source Source
	flows  *Flows
	dec    decoder
	frame  Frame
	frames uint64
	other  uint64
	origin time.Time
	queue  []Packet // of a frame that has several; those from at on are to come
	at     int
	one    Packet
}

// Format keeps the keys, and what they have opened, out of what is printed.
func (c Capture) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "capture at frame %d", c.frames) }

// Open reads a capture file, pcap or pcapng. What is wrong with the file's
// beginning is an error here, the rest an error of Next.
func Open(r io.Reader) (*Capture, error) {
	source, err := OpenFile(r)
	if err != nil {
		return nil, err
	}
	return New(source, Limits{}), nil
}

// New takes frames from a source.
func New(source Source, l Limits) *Capture {
	c := &Capture{source: source, flows: NewFlows(l), dec: decoder{keys: newKeys()}}
	if f, ok := source.(*file); ok {
		f.keys = c.dec.keys
	}
	return c
}

// Keys returns the keys that open sealed packets: those that the capture has
// itself, and those that the caller adds.
func (c *Capture) Keys() *Keys { return c.dec.keys }

// Flows returns the connections of the packets so far.
func (c *Capture) Flows() *Flows { return c.flows }

// Frames returns how many frames were read, and how many of them have no
// RoCEv2 packet.
func (c *Capture) Frames() (all, other uint64) { return c.frames, c.other }

// Frame returns the frame of the packet that Next returned last. It is valid
// until the next call of Next.
func (c *Capture) Frame() *Frame { return &c.frame }

// Next returns the next RoCEv2 packet, which is valid until the next call. At
// the end it returns io.EOF.
func (c *Capture) Next() (*Packet, error) {
	for {
		if c.at < len(c.queue) {
			p := &c.queue[c.at]
			c.at++
			return c.analyse(p), nil
		}
		if err := c.source.Next(&c.frame); err != nil {
			return nil, err
		}
		c.frames++
		if c.frames == 1 {
			c.origin = c.frame.Time
		}
		c.queue, c.at = c.queue[:0], 0
		p := &c.one
		p.Number, p.Time = c.frames, c.frame.Time
		p.Offset = c.frame.Time.Sub(c.origin)
		found, err := c.dec.decode(&c.frame, p, c.add)
		if err != nil {
			return nil, err
		}
		if !found {
			c.other++
		}
	}
}

// add queues a packet that has been decoded.
func (c *Capture) add() error {
	c.queue = append(c.queue, c.one)
	return nil
}

func (c *Capture) analyse(p *Packet) *Packet {
	p.Mgmt = Management{}
	if p.Has(rocev2.HasDETH) && p.ICRC != ICRCBad && p.Wire.BTH.DestQPN <= rocev2.GSIQPN {
		p.Mgmt.parse(p.Wire.Payload)
	}
	c.flows.Add(p)
	p.application()
	return p
}
