// Package rawudp measures what the machine's UDP loopback can do without any
// protocol on top: the limits that a userspace RoCE stack can come near to but
// not pass.
//
// Throughput: one process sends runs of equal segments with UDP_SEGMENT, having
// computed a CRC32 over every segment; the other receives with UDP_GRO, checks
// the CRC32 of every segment and copies it into a large buffer. A window, kept
// open by small datagrams back, keeps the sender from overrunning the receive
// buffer, since a lost packet is work for nothing.
//
// Throughput in both directions: each process does both in one thread, as a
// device does that one goroutine serves.
//
// Round trips: small datagrams, or a few bytes of a TCP connection, go back and
// forth between two processes that either spin on non-blocking system calls or
// block in them. The system calls are raw: no Go poller, no scheduler.
package rawudp

import (
	"context"
	"encoding/json"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/pair"
)

// Kind is the name of the workers.
const Kind = "rawudp"

// config is what a worker is told.
type config struct {
	Addr    string        `json:"addr"`
	Echo    bool          `json:"echo"`    // round trips instead of throughput
	Active  bool          `json:"active"`  // receives (throughput), or measures (round trips)
	Spin    bool          `json:"spin"`    // round trips: spin instead of blocking
	TCP     bool          `json:"tcp"`     // round trips: over a TCP connection
	Both    bool          `json:"both"`    // throughput: both sides send and receive
	Segment int           `json:"segment"` // bytes of a datagram
	ICRC    bool          `json:"icrc"`    // throughput: the CRC by the product's code instead of hash/crc32
	Single  bool          `json:"single"`  // throughput: a datagram with each system call
	Warm    time.Duration `json:"warm"`
	Measure time.Duration `json:"measure"`
}

// Register makes the workers known.
func Register() {
	pair.Register(Kind, func(b []byte) (pair.Side, error) {
		var c config
		if err := json.Unmarshal(b, &c); err != nil {
			return nil, err
		}
		return open(c)
	})
}

// Throughput returns a function that measures Gb/s of received segments of that
// many bytes, from address a to address b. The CRC is that of hash/crc32 or,
// with icrc, of the product.
func Throughput(a, b string, segment int, icrc bool) func(context.Context, cell.Window) cell.Sample {
	return func(ctx context.Context, w cell.Window) cell.Sample {
		c := config{Addr: a, Segment: segment, ICRC: icrc, Warm: w.Warm, Measure: w.Measure}
		d := c
		d.Addr, d.Active = b, true
		return run(ctx, c, d, w, "gbps")
	}
}

// Single returns a function that measures as Throughput does, with the CRC of
// the product and without UDP_SEGMENT and UDP_GRO: a datagram with each system
// call, as systems have it that have nothing else.
func Single(a, b string, segment int) func(context.Context, cell.Window) cell.Sample {
	return func(ctx context.Context, w cell.Window) cell.Sample {
		c := config{Addr: a, Segment: segment, ICRC: true, Single: true, Warm: w.Warm, Measure: w.Measure}
		d := c
		d.Addr, d.Active = b, true
		return run(ctx, c, d, w, "gbps")
	}
}

// BothWays returns a function that measures Gb/s of received segments in both
// directions at once, their sum.
func BothWays(a, b string, segment int) func(context.Context, cell.Window) cell.Sample {
	return func(ctx context.Context, w cell.Window) cell.Sample {
		c := config{Addr: a, Active: true, Both: true, Segment: segment, ICRC: true, Warm: w.Warm, Measure: w.Measure}
		d := c
		d.Addr = b
		return run(ctx, c, d, w, "gbps")
	}
}

// RoundTrip returns a function that measures half of the median round trip of
// 64 bytes in microseconds.
func RoundTrip(a, b string, spin bool) func(context.Context, cell.Window) cell.Sample {
	return roundTrip(config{Spin: spin, Segment: 64}, a, b)
}

// TCPRoundTrip returns a function that measures half of the median round trip
// of 8 bytes over a TCP connection without Nagle's algorithm, in microseconds.
func TCPRoundTrip(a, b string, spin bool) func(context.Context, cell.Window) cell.Sample {
	return roundTrip(config{Spin: spin, Segment: 8, TCP: true}, a, b)
}

func roundTrip(c config, a, b string) func(context.Context, cell.Window) cell.Sample {
	return func(ctx context.Context, w cell.Window) cell.Sample {
		passive := c
		passive.Addr, passive.Echo, passive.Warm, passive.Measure = a, true, w.Warm, w.Measure
		active := passive
		active.Addr, active.Active = b, true
		return run(ctx, passive, active, w, "half_us")
	}
}

func run(ctx context.Context, a, b config, w cell.Window, value string) cell.Sample {
	ra, rb, err := pair.Run(ctx, Kind, pair.Role{Config: a, Active: a.Active}, pair.Role{Config: b, Active: b.Active}, w.Total()+20*time.Second)
	if err != nil {
		return cell.Failed(err)
	}
	s := cell.Sample{Value: rb.Values[value], Extra: rb.Values, Count: rb.Counts, Errors: rb.Errors}
	if a.Both {
		s.Value += ra.Values[value]
		for k, v := range ra.Errors {
			s.Errors[k] += v
		}
	}
	delete(s.Extra, value)
	return s
}
