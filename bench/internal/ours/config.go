// Package ours measures this project's stack between two processes, each with a
// device of its own on a loopback address: throughput and message rates over
// any number of queue pairs, latencies polling and blocked, behaviour under
// loss, what idle connections cost in CPU time and memory, and what a look-up
// among many regions costs.
//
// Each run counts what went wrong beside what it measures: completions without
// success, packets sent again, packets dropped. The loops of the package
// allocate nothing, so that allocations per message are those of the stack.
package ours

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/pair"
)

// Kind is the name of the workers.
const Kind = "ours"

// Test says what a pair of workers does.
type Test string

// Tests.
const (
	Stream  Test = "stream"  // as many operations as possible
	Latency Test = "latency" // one operation at a time
	Idle    Test = "idle"    // CPU time of connected queue pairs that do nothing
	Memory  Test = "memory"  // memory of connected queue pairs that do nothing
	// Loopback is Stream between two queue pairs of one device in one
	// process, where packets pass inside the device. It needs no peer and
	// is comparable with nothing that has one.
	Loopback Test = "loopback"
	Lookup   Test = "lookup" // resolving keys among many regions; needs no peer
)

// Service is a transport service.
type Service string

// Services. What UC and UD lose stays lost: of a Stream that counts as measured
// which arrives.
const (
	RC Service = ""
	UC Service = "uc"
	UD Service = "ud"
)

// Config is what a worker is told.
type Config struct {
	Test    Test          `json:"test"`
	Addr    string        `json:"addr"`
	Op      string        `json:"op"` // "write", "send", "read", "atomic"
	Service Service       `json:"service"`
	Size    int           `json:"size"`
	QPs     int           `json:"qps"`
	Depth   int           `json:"depth"`   // operations outstanding, all queue pairs together
	Burst   int           `json:"burst"`   // operations posted on one queue pair before the next has its turn
	MTU     int           `json:"mtu"`     // bytes
	Shm     bool          `json:"shm"`     // through shared memory
	Seal    Seal          `json:"seal"`    // how packets are sealed
	Fault   bool          `json:"fault"`   // wrap the link, also when Loss is 0
	Loss    float64       `json:"loss"`    // probability that a sent packet is lost
	Path    bool          `json:"path"`    // between the ends of a path that loses packets
	Foreign bool          `json:"foreign"` // neither side knows that the other one is native, nor can tell
	Events  bool          `json:"events"`
	Regions int           `json:"regions"` // registered on the device
	Active  bool          `json:"active"`  // posts operations and measures
	Both    bool          `json:"both"`    // both sides are active
	Spin    bool          `json:"spin"`    // a passive side polls instead of sleeping
	Ack     bool          `json:"ack"`     // latency of a WRITE until its own completion, not until the peer's WRITE
	Warm    time.Duration `json:"warm"`
	Measure time.Duration `json:"measure"`
}

// Register makes the workers known.
func Register() { pair.Register(Kind, open) }

// open makes a side of what the worker is told.
func open(b []byte) (pair.Side, error) {
	var c Config
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, err
	}
	if c.Ack && (c.Test != Latency || c.Op != "write") {
		return nil, fmt.Errorf("the acknowledgement ends the latency of a WRITE, not %s of %s", c.Test, c.Op)
	}
	if c.Seal != Clear {
		if _, err := c.Seal.version(); err != nil {
			return nil, err
		}
	}
	c.QPs, c.Depth, c.Burst = max(c.QPs, 1), max(c.Depth, 1), max(c.Burst, 1)
	switch c.Test {
	case Lookup:
		return &lookup{cfg: c}, nil
	case Loopback:
		return &loopback{cfg: c}, nil
	}
	s := &side{cfg: c}
	switch c.Test {
	case Stream:
		return &stream{side: s}, nil
	case Latency:
		return &latency{side: s}, nil
	case Idle, Memory:
		return &idle{side: s}, nil
	}
	return nil, fmt.Errorf("there is no test %q", c.Test)
}
