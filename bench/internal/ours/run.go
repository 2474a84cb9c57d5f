package ours

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/losses"
	"github.com/gosoftroce/rocev2/bench/internal/pair"
)

// Addrs are the addresses of the two devices: the passive side's and the active
// side's.
type Addrs struct{ A, B string }

// Runner returns a function that runs c between two processes and takes value
// (a key of the active side's values) as the sample's. With c.Both the values
// of both sides are added.
func Runner(a Addrs, c Config, value string) func(context.Context, cell.Window) cell.Sample {
	return func(ctx context.Context, w cell.Window) cell.Sample {
		passive, active := c, c
		passive.Addr, passive.Active, passive.Warm, passive.Measure = a.A, c.Both, w.Warm, w.Measure
		active.Addr, active.Active, active.Warm, active.Measure = a.B, true, w.Warm, w.Measure
		watch := losses.Begin(a.A, a.B)
		rp, ra, err := pair.Run(ctx, Kind, pair.Role{Config: passive, Active: c.Both}, pair.Role{Config: active, Active: true},
			w.Total()+time.Minute)
		if err != nil {
			return cell.Failed(fmt.Errorf("rocev2: %w", err))
		}
		s := sample(&c, rp, ra, value)
		if !c.Fault || c.Loss == 0 {
			watch.Judge(&s)
		}
		return s
	}
}

// ManyRunner is Runner with a process for each queue pair of the active side,
// all on one address, which they share. Each has its part of the operations
// outstanding.
func ManyRunner(a Addrs, c Config, value string) func(context.Context, cell.Window) cell.Sample {
	return func(ctx context.Context, w cell.Window) cell.Sample {
		c := c
		c.Warm, c.Measure = w.Warm, w.Measure
		passive, active := c, c
		passive.Addr = a.A
		active.Addr, active.Active, active.QPs, active.Depth = a.B, true, 1, max(c.Depth/c.QPs, 1)
		var spokes []any
		for range c.QPs {
			spokes = append(spokes, active)
		}
		watch := losses.Begin(a.A, a.B)
		rp, all, err := pair.Fan(ctx, Kind, passive, spokes, share, w.Total()+time.Minute)
		if err != nil {
			return cell.Failed(fmt.Errorf("rocev2: %w", err))
		}
		s := sample(&c, rp, together(all), value)
		watch.Judge(&s)
		return s
	}
}

// share has each active process have a queue pair of the passive one, which has
// all of theirs.
func share(hellos []json.RawMessage) (peers []json.RawMessage, err error) {
	var hub, all hello
	if err := json.Unmarshal(hellos[0], &hub); err != nil {
		return nil, err
	}
	peers = make([]json.RawMessage, len(hellos))
	for i := range hellos[1:] {
		var h hello
		if err := json.Unmarshal(hellos[1+i], &h); err != nil {
			return nil, err
		}
		all.Endpoints = append(all.Endpoints, h.Endpoints...)
		all.Target = h.Target // the passive side sends nothing
		if peers[1+i], err = json.Marshal(hello{Endpoints: hub.Endpoints[i : i+1], Target: hub.Target}); err != nil {
			return nil, err
		}
	}
	peers[0], err = json.Marshal(all)
	return peers, err
}

// together adds up what processes report that have measured at the same time.
func together(all []pair.Result) pair.Result {
	r := newResult()
	for i := range all {
		for k, v := range all[i].Values {
			r.Values[k] += v
		}
		r.Counts, r.Errors = sum(r.Counts, all[i].Counts), sum(r.Errors, all[i].Errors)
	}
	return r
}

// sample joins what the two sides report.
func sample(c *Config, passive, active pair.Result, value string) cell.Sample {
	s := cell.Sample{Value: active.Values[value], Extra: map[string]float64{}}
	for k, v := range active.Values {
		if k != value && k != "messages" && k != "sent" && k != "received" && k != "cpu_seconds" && k != "heap_objects" && k != "seconds" {
			s.Extra[k] = v
		}
	}
	messages := active.Values["messages"]
	if c.Both {
		s.Value += passive.Values[value]
		s.Extra["mmsg"] += passive.Values["mmsg"]
		messages += passive.Values["messages"]
		if value != "gbps" {
			s.Extra["gbps"] += passive.Values["gbps"]
		}
	}
	switch c.Test {
	case Idle, Memory:
		s.Value = max(s.Value, passive.Values[value])
	case Stream, Latency, Loopback:
		if messages > 0 {
			s.Extra["active_allocs_per_msg"] = active.Values["heap_objects"] / messages
			s.Extra["passive_allocs_per_msg"] = passive.Values["heap_objects"] / messages
			s.Extra["active_cpu_us_per_msg"] = active.Values["cpu_seconds"] * 1e6 / messages
			s.Extra["passive_cpu_us_per_msg"] = passive.Values["cpu_seconds"] * 1e6 / messages
		}
	}
	s.Count, s.Errors = sum(active.Counts, passive.Counts), sum(active.Errors, passive.Errors)
	if c.Test == Stream && !c.reliable() {
		delivered(&s, passive, active)
	}
	return s
}

func sum(a, b map[string]uint64) map[string]uint64 {
	if len(a)+len(b) == 0 {
		return nil
	}
	m := maps.Clone(a)
	if m == nil {
		m = map[string]uint64{}
	}
	for k, v := range b {
		m[k] += v
	}
	return m
}
