package cc

import (
	"errors"
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// HPCCConfig is the parameters of HPCC. What is 0 has its default.
type HPCCConfig struct {
	Line     uint64        // rate of the port in bits per second; 0 means 100 Gb/s
	RTT      time.Duration // the longest round trip of the network without queues (T); 0 means 13 µs, the paper's in its simulation
	Eta      int           // share of each link that is to be used, in percent; 0 means 95
	Stages   int           // additive increases in a row before a multiplicative one (maxStage); 0 means 5, negative none
	Additive int           // bytes that the window grows by each time (W_AI); 0 means 80
	Burst    int           // bytes that may go at once; 0 means 64 KiB, 1 has packets spaced one by one
}

// withDefaults fills in what is 0.
func (c HPCCConfig) withDefaults() HPCCConfig {
	c.Line = lineOr(c.Line)
	for _, f := range []struct {
		field *int
		usual int
	}{{&c.Eta, 95}, {&c.Stages, 5}, {&c.Additive, 80}, {&c.Burst, socketBurst}} {
		if *f.field == 0 {
			*f.field = f.usual
		}
	}
	if c.RTT == 0 {
		c.RTT = 13 * time.Microsecond
	}
	return c
}

// Check says what of c is out of its range.
func (c HPCCConfig) Check() error {
	c = c.withDefaults()
	return inRange("HPCC", []bound{
		{"line", c.Line, kilo, mostRate},
		{"rtt", uint64(c.RTT), 1, uint64(time.Second)},
		{"eta", uint64(max(c.Eta, 0)), 1, 100},
		{"stages", uint64(max(c.Stages, 0)), 0, 1 << 20},
		{"wai", uint64(c.Additive), 1, 1 << 20},
		{"burst", uint64(c.Burst), 1, mostBytes},
	})
}

// ErrParameter is wrapped by the errors about parameters of HPCC, Swift and
// TIMELY.
var ErrParameter = errors.New("cc: bad parameter")

type bound struct {
	name             string
	got, least, most uint64
}

// inRange says which parameter of a law is not in its range.
func inRange(law string, bounds []bound) error {
	for _, b := range bounds {
		if b.got < b.least || b.got > b.most {
			return fmt.Errorf("%w: %s of %s is %d: it takes %d to %d", ErrParameter, b.name, law, b.got, b.least, b.most)
		}
	}
	return nil
}

// HPCC is the congestion control of Li et al., "HPCC: High Precision Congestion
// Control" (SIGCOMM 2019), algorithm 1. The switches on the way tell their
// queues and how much they have sent, and the receiver sends that back with
// each acknowledgement (Telemetry). From that follows how much of each link is
// in flight, as a share of what it holds; the fullest one says by how much the
// window is to change, so that Eta of it is used. Each acknowledgement changes
// the window, from a reference that moves once in a round trip: so a queue of
// which many of them tell is answered once. Packets leave at the rate with
// which the window takes a round trip.
//
// A connection begins with what its port sends in a round trip. Losses, marks
// and silence change nothing: they say less than the switches do. Without
// telemetry the window stays as it is.
//
// All arithmetic is in integers, shares in units of 2^-20.
type HPCC struct {
	spaced
	c HPCCConfig

	window    uint64 // bytes on the wire (W)
	reference uint64 // (W^c)
	most      uint64 // where it begins
	in        uint64 // how much of the fullest link is in flight (U)
	stage     int    // (incStage)
	update    uint64 // the place in the stream from which on the reference moves
	packet    int    // what one counts, as it was last

	known, fresh       bool // last, or next has something
	lastHops, nextHops int  // how many
	last, next         [mostHops]Hop
}

const (
	shareOne = 1 << 20 // 1, of shares
	// mostHops is how many hops of a path are looked at: no more than
	// switches tell of.
	mostHops = 16
	// mostShare bounds what a hop may say: 64 times what the link holds.
	mostShare = 64 * shareOne
	// leastWindow keeps W above 0.
	leastWindow = 16
)

// NewHPCC returns a controller with these parameters, that Check finds good,
// within the bounds of w.
func NewHPCC(c HPCCConfig, w Config) *HPCC {
	h := &HPCC{c: c.withDefaults()}
	h.SetConfig(w)
	h.Reset()
	return h
}

// SetConfig implements Controller.
func (h *HPCC) SetConfig(c Config) { h.bounds = c.withDefaults() }

// Reset implements Controller.
func (h *HPCC) Reset() {
	*h = HPCC{c: h.c, spaced: spaced{burst: h.c.Burst, bounds: h.bounds}, packet: 4096 + PacketOverhead}
	h.most = max(carries(h.c.Line, h.c.RTT)>>8, leastWindow)
	h.window, h.reference, h.in = h.most, h.most, shareOne
}

// Window returns W, the window in bytes on the wire, and U, how much of the
// fullest link is in flight, in units of 2^-20.
func (h *HPCC) Window() (bytes, share uint64) { return h.window, h.in }

// Limit implements Controller. Each packet asks for an acknowledgement, as in
// the paper: each brings what the switches tell.
func (h *HPCC) Limit() Limit { return h.limit(counted(h.window, h.packet), 1) }

// Sent implements Controller.
func (h *HPCC) Sent(now clock.Time, bytes, packets int) { h.sent(now, bytes, packets) }

// Hops implements Telemetry.
func (h *HPCC) Hops(_ clock.Time, hops []Hop) {
	h.nextHops = copy(h.next[:], hops)
	h.fresh = true
}

// Acked implements Controller.
func (h *HPCC) Acked(now clock.Time, f *Flight, _ uint64) bool {
	h.packet = f.Packet
	if !h.fresh {
		return false
	}
	h.fresh = false
	if !h.known { // what follows is measured from here
		h.update = f.Next
	}
	measured := h.measure()
	h.last, h.lastHops, h.known = h.next, h.nextHops, true
	if !measured {
		return false
	}
	before := h.window
	moves := f.Una > h.update
	if moves {
		h.update = f.Next
	}
	h.compute(moves)
	if h.window != before {
		h.setRate(now, muldiv(h.window, 8*uint64(time.Second), uint64(h.c.RTT)), h.c.Line)
	}
	return h.window != before
}

// measure finds out how much of the fullest link is in flight (MeasureInflight
// of the paper), and reports whether it can: two packets have come by the same
// path.
func (h *HPCC) measure() bool {
	if !h.known || h.nextHops == 0 || h.nextHops != h.lastHops {
		return false
	}
	var most uint64
	var over time.Duration
	for i := range h.next[:h.nextHops] {
		was, is := &h.last[i], &h.next[i]
		if was.Node != is.Node || was.Port != is.Port {
			return false
		}
		took, sent := time.Duration(is.At-was.At), is.Sent-was.Sent
		if is.Rate == 0 || took <= 0 || sent > 1<<62 {
			continue // it says nothing: another packet told as much, or its counters are new
		}
		queued := muldiv(min(was.Queued, is.Queued), shareOne<<8, max(carries(is.Rate, h.c.RTT), 1))
		used := muldiv(sent, shareOne<<8, max(carries(is.Rate, took), 1))
		if u := min(queued, mostShare) + min(used, mostShare); u > most || over == 0 {
			most, over = u, took
		}
	}
	if over == 0 {
		return false
	}
	part := uint64(min(over, h.c.RTT))
	h.in = (h.in*(uint64(h.c.RTT)-part) + min(most, mostShare)*part) / uint64(h.c.RTT)
	return true
}

// compute sets the window (ComputeWind of the paper), and the reference if it
// moves.
func (h *HPCC) compute(moves bool) {
	target := uint64(h.c.Eta) * shareOne / 100
	size, stage := h.reference, h.stage+1
	if h.in >= target || h.stage >= h.c.Stages {
		size, stage = muldiv(size, target, h.in), 0
	}
	h.window = min(max(min(size, h.most)+uint64(h.c.Additive), leastWindow), h.most)
	if moves {
		h.reference, h.stage = h.window, stage
	}
}

// Lost implements Controller, and like the following does nothing.
func (h *HPCC) Lost(clock.Time, *Flight, Loss) bool { return false }

// Marked implements Controller.
func (h *HPCC) Marked(clock.Time, *Flight, Mark) bool { return false }

// Silence implements Controller.
func (h *HPCC) Silence() {}

// Undo implements Controller.
func (h *HPCC) Undo() {}

// Advance implements Controller.
func (h *HPCC) Advance(clock.Time) {}
