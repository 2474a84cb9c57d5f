// Package faces measures what programs see of this stack that know nothing of
// queue pairs: connections of packages cm, rdma and rdmanet, messages, streams,
// HTTP, exported memory, and the daemon. Each runs between two processes, with
// TCP doing the same beside it where it can.
//
// What goes wrong below counts as in package ours.
package faces

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/losses"
	"github.com/gosoftroce/rocev2/bench/internal/pair"
)

// Kind is the name of the workers.
const Kind = "faces"

// Test says what a pair of workers does.
type Test string

// Tests.
const (
	Connect Test = "connect" // connections made and closed, one after the other
	First   Test = "first"   // from Dial to the answer of a first message
	Idle    Test = "idle"    // connections that are open and do nothing
	Flood   Test = "flood"   // Dial while a third party sends forged requests
	Stream  Test = "stream"  // as many messages or bytes as possible
	Latency Test = "latency" // a message there and back
	HTTP    Test = "http"    // GET
	Region  Test = "region"  // memory of the other side
	Metrics Test = "metrics" // of a daemon with many connections
	Page    Test = "page"    // of a daemon with many connections, in a browser
	Resting Test = "resting" // a daemon that does nothing
)

// Face is what the programs use.
type Face string

// Faces.
const (
	CM      Face = "cm"      // queue pairs of the program, connected by package cm
	RDMA    Face = "rdma"    // package rdma
	RDMANet Face = "rdmanet" // package rdmanet
	TCP     Face = "tcp"     // package net, for comparison
	TLS     Face = "tls"     // TLS 1.3 over that
)

// Source says from where forged requests seem to come.
type Source string

// Sources.
const (
	OneSource   Source = "one"    // an address that no host has
	ManySources Source = "many"   // a new address each time
	OwnSource   Source = "client" // the address of the honest client
)

// Config is what a worker is told.
type Config struct {
	Test    Test          `json:"test"`
	Face    Face          `json:"face"`
	Addr    string        `json:"addr"`
	Active  bool          `json:"active"` // dials and measures
	Size    int           `json:"size"`   // bytes of a message, or of what is asked for
	Conns   int           `json:"conns"`
	Used    bool          `json:"used"`   // Idle: each connection has carried a message
	NoCopy  bool          `json:"nocopy"` // the receiver takes what came where it lies
	Rate    int           `json:"rate"`   // Flood: forged requests a second
	From    Source        `json:"from"`   // Flood
	Bin     string        `json:"bin"`    // the daemon's executable
	Region  string        `json:"region"` // what it exports, as its flag has it
	Warm    time.Duration `json:"warm"`
	Measure time.Duration `json:"measure"`
}

// Register makes the workers known.
func Register() {
	pair.Register(Kind, func(b []byte) (pair.Side, error) {
		var c Config
		if err := json.Unmarshal(b, &c); err != nil {
			return nil, err
		}
		c.Conns = max(c.Conns, 1)
		open := sides[c.Test]
		if open == nil {
			return nil, fmt.Errorf("there is no test %q", c.Test)
		}
		return open(newBase(c)), nil
	})
}

var sides = map[Test]func(*base) pair.Side{
	Connect: func(b *base) pair.Side { return &connect{base: b} },
	First:   func(b *base) pair.Side { return &connect{base: b} },
	Idle:    func(b *base) pair.Side { return &idle{base: b} },
	Flood:   func(b *base) pair.Side { return &flood{base: b} },
	Stream:  func(b *base) pair.Side { return &stream{base: b} },
	Latency: func(b *base) pair.Side { return &latency{base: b} },
	HTTP:    func(b *base) pair.Side { return &web{base: b} },
	Region:  func(b *base) pair.Side { return &region{base: b} },
	Metrics: func(b *base) pair.Side { return &daemon{base: b} },
	Page:    func(b *base) pair.Side { return &daemon{base: b} },
	Resting: func(b *base) pair.Side { return &daemon{base: b} },
}

// Runner returns a function that runs c between a process on address a, which
// listens, and one on address b, which dials, and takes value as the sample's.
// Values of the listening side have the prefix "passive_" in the sample.
func Runner(a, b string, c Config, value string) func(context.Context, cell.Window) cell.Sample {
	return func(ctx context.Context, w cell.Window) cell.Sample {
		passive := c
		if c.Test == Metrics || c.Test == Page || c.Test == Resting {
			bin, err := Program(ctx, "rocev2d")
			if err != nil {
				return cell.Failed(err)
			}
			passive.Bin = bin
		}
		passive.Addr, passive.Warm, passive.Measure = a, w.Warm, w.Measure
		active := passive
		active.Addr, active.Active = b, true
		watch := losses.Begin(a, b)
		rp, ra, err := pair.Run(ctx, Kind, pair.Role{Config: passive}, pair.Role{Config: active, Active: true}, w.Total()+time.Minute)
		if err != nil {
			return cell.Failed(fmt.Errorf("%s: %w", c.Face, err))
		}
		s := sample(rp, ra, value)
		watch.Judge(&s)
		return s
	}
}

// sample joins what the two sides report.
func sample(passive, active pair.Result, value string) cell.Sample {
	s := cell.Sample{Extra: map[string]float64{}}
	for k, v := range passive.Values {
		s.Extra["passive_"+k] = v
	}
	for k, v := range active.Values {
		s.Extra[k] = v
	}
	for k := range passive.Values { // memory and processor time of both sides together
		if _, ok := active.Values[k]; ok {
			s.Extra["both_"+k] = active.Values[k] + passive.Values[k]
		}
	}
	if n := active.Values["messages"]; n > 0 {
		for _, side := range []string{"active_", "passive_"} {
			r := active
			if side == "passive_" {
				r = passive
			}
			s.Extra[side+"allocs_per_msg"] = r.Values["heap_objects"] / n
			s.Extra[side+"cpu_us_per_msg"] = r.Values["cpu_seconds"] * 1e6 / n
		}
	}
	for _, k := range []string{"cpu_seconds", "heap_objects", "seconds"} {
		for _, prefix := range []string{"", "passive_", "both_"} {
			delete(s.Extra, prefix+k)
		}
	}
	s.Value = s.Extra[value]
	delete(s.Extra, value)
	s.Count, s.Errors = sum(active.Counts, passive.Counts), sum(active.Errors, passive.Errors)
	return s
}

func sum(a, b map[string]uint64) map[string]uint64 {
	m := map[string]uint64{}
	for _, one := range []map[string]uint64{a, b} {
		for k, v := range one {
			m[k] += v
		}
	}
	if len(m) == 0 {
		return nil
	}
	return m
}
