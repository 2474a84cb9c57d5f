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
// Round trips: small datagrams go back and forth between two processes that
// either spin on non-blocking system calls or block in them. The system calls
// are raw: no Go poller, no scheduler.
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
	Segment int           `json:"segment"` // bytes of a datagram
	ICRC    bool          `json:"icrc"`    // throughput: the CRC by the product's code instead of hash/crc32
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

// Throughput returns a function that measures Gb/s of received segments of so
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

// RoundTrip returns a function that measures half of the median round trip of
// 64 bytes in microseconds.
func RoundTrip(a, b string, spin bool) func(context.Context, cell.Window) cell.Sample {
	return func(ctx context.Context, w cell.Window) cell.Sample {
		c := config{Addr: a, Echo: true, Spin: spin, Segment: 64, Warm: w.Warm, Measure: w.Measure}
		d := c
		d.Addr, d.Active = b, true
		return run(ctx, c, d, w, "half_us")
	}
}

func run(ctx context.Context, passive, active config, w cell.Window, value string) cell.Sample {
	_, r, err := pair.Run(ctx, Kind, pair.Role{Config: passive}, pair.Role{Config: active, Active: true}, w.Total()+20*time.Second)
	if err != nil {
		return cell.Failed(err)
	}
	s := cell.Sample{Value: r.Values[value], Extra: r.Values, Count: r.Counts, Errors: r.Errors}
	delete(s.Extra, value)
	return s
}
