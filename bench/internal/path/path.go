// Package path is a network path with a rate, a delay, a queue and losses,
// between two network namespaces of this program's own. UDP and TCP go through
// the same one. It needs Linux and root.
//
// The kernel's own emulator (sch_netem) is missing in many kernels, and with
// segmentation offload it loses buffers of 64 KiB where a network loses
// packets. So the path is a program: a TUN device in each namespace, and one
// thread that moves the packets. The devices offer no offload, so the kernel
// hands over every packet by itself, of TCP and of UDP alike.
package path

import (
	"context"
	"os/exec"
	"time"
)

// Config describes a path; both directions are alike.
type Config struct {
	Rate  int64         // bits per second, with IP headers; 0 is no limit
	RTT   time.Duration // there and back, without queues
	Loss  float64       // probability that a packet is lost, in either direction
	Queue int           // bytes that wait at Rate before packets are dropped
	MTU   int           // bytes of an IP packet
	Frame int           // bytes before the IP packet in what the devices carry
	Seed  uint64
}

// Addresses of the two ends.
const (
	AddrA = "198.18.0.1"
	AddrB = "198.18.0.2"
)

// Counts is what happened on a path, in both directions together.
type Counts struct {
	Packets, Lost, Overflows uint64
}

// Map returns the counts by name.
func (c Counts) Map() map[string]uint64 {
	return map[string]uint64{"path: packets": c.Packets, "path: lost": c.Lost, "path: queue overflows": c.Overflows}
}

type contextKey struct{}

// With returns a context in which Start starts programs at the ends of p.
func With(ctx context.Context, p *Path) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// Start starts a program at an end of the path of ctx, 0 or 1; without a path,
// where this program is.
func Start(ctx context.Context, end int, cmd *exec.Cmd) error {
	if p, _ := ctx.Value(contextKey{}).(*Path); p != nil {
		return p.start(end, cmd)
	}
	return cmd.Start()
}

// packet is one on its way.
type packet struct {
	due  int64 // ns
	data []byte
}

// direction carries packets one way. It is pure: time and chance are
// parameters.
type direction struct {
	cfg  Config
	busy int64 // until when the link at Rate has something to send
	ring []packet
	head int
	free [][]byte
	counts
}

type counts struct{ packets, lost, overflows uint64 }

// buffer returns room for a packet.
func (d *direction) buffer() []byte {
	if n := len(d.free); n > 0 {
		b := d.free[n-1]
		d.free = d.free[:n-1]
		return b[:cap(b)]
	}
	return make([]byte, d.cfg.Frame+d.cfg.MTU)
}

// take takes a packet that was sent at now; chance is in [0, 1).
func (d *direction) take(now int64, b []byte, chance float64) {
	d.packets++
	if chance < d.cfg.Loss {
		d.lost++
		d.free = append(d.free, b)
		return
	}
	at, size := now, len(b)-d.cfg.Frame
	if r := d.cfg.Rate; r > 0 {
		if waits := max(d.busy-now, 0); int(float64(waits)*float64(r)/8e9)+size > d.cfg.Queue {
			d.overflows++
			d.free = append(d.free, b)
			return
		}
		d.busy = max(d.busy, now) + int64(float64(size)*8e9/float64(r))
		at = d.busy
	}
	d.ring = append(d.ring, packet{at + int64(d.cfg.RTT/2), b})
}

// next returns when the next packet arrives, and whether there is one.
func (d *direction) next() (int64, bool) {
	if d.head == len(d.ring) {
		return 0, false
	}
	return d.ring[d.head].due, true
}

// give returns the next packet that has arrived at now, nil if there is none.
// It goes back with recycle.
func (d *direction) give(now int64) []byte {
	if at, ok := d.next(); !ok || at > now {
		return nil
	}
	b := d.ring[d.head].data
	d.ring[d.head].data = nil
	if d.head++; d.head == len(d.ring) {
		d.ring, d.head = d.ring[:0], 0
	} else if d.head > 4096 && 2*d.head > len(d.ring) {
		d.ring = d.ring[:copy(d.ring, d.ring[d.head:])]
		d.head = 0
	}
	return b
}

func (d *direction) recycle(b []byte) { d.free = append(d.free, b) }
