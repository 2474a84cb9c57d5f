// Package cell has the terms of the grid: a cell is one thing to measure, a
// sample is the result of one run of it, a row is a cell with all its samples.
package cell

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/stats"
)

// Units of values.
const (
	Gbps     = "Gb/s"   // 10^9 bits of payload a second
	MsgRate  = "Mmsg/s" // 10^6 messages a second
	Micros   = "µs"
	Millis   = "ms"
	Nanos    = "ns"
	Percent  = "% of a core"
	BytesPer = "B"

	Megabytes = "MB" // 10^6 bytes
	PerSecond = "/s"
)

// LostPercent is the name, among the other measurements of a run, of the share
// of the messages that an unreliable service has lost.
const LostPercent = "lost_percent"

// Names, among the other measurements of a run, of percentiles of a latency, in
// the unit of the cell: of half a round trip where the value is half of one.
const (
	P99  = "tail_p99"
	P999 = "tail_p999"
)

// Cell is one thing to measure, by one stack: the same operation by two stacks
// is two cells.
type Cell struct {
	Name   string  `json:"name"`  // unique in the grid, "ours/write/1MiB"
	Group  string  `json:"group"` // cells of a group take turns
	Stack  string  `json:"who"`   // that is measured: "rocev2", "raw udp", "iperf3" …
	What   string  `json:"what"`  // in words, for the report
	Unit   string  `json:"unit"`
	Op     string  `json:"op,omitempty"`
	Size   int     `json:"size,omitempty"`  // bytes of a message
	QPs    int     `json:"qps,omitempty"`   // queue pairs
	Depth  int     `json:"depth,omitempty"` // operations outstanding, all queue pairs together
	MTU    int     `json:"mtu,omitempty"`   // path MTU in bytes
	Loss   float64 `json:"loss_percent,omitempty"`
	Repeat int     `json:"-"` // how often; 0 = as the grid has it
	Needs  string  `json:"-"` // what is missing here, so that it is skipped; "" if nothing is

	Run func(ctx context.Context, w Window) Sample `json:"-"`
}

// Window says for how long to measure.
type Window struct {
	Warm, Measure time.Duration
}

// Total is how long a run takes at least.
func (w Window) Total() time.Duration { return w.Warm + w.Measure }

// Sample is what one run gave.
type Sample struct {
	Value  float64            `json:"value"`
	Extra  map[string]float64 `json:"extra,omitempty"`  // other measurements of the run
	Count  map[string]uint64  `json:"count,omitempty"`  // counters that are not errors
	Errors map[string]uint64  `json:"errors,omitempty"` // any of these fails the cell
	Err    string             `json:"err,omitempty"`    // the run itself failed
	Others float64            `json:"others_percent"`   // of one processor, used by other programs or the hypervisor meanwhile
	// Before and After are what the reference of the group gave right
	// before and right after the run; 0 if it was not measured there, or
	// failed.
	Before float64 `json:"before,omitempty"`
	After  float64 `json:"after,omitempty"`
}

// Failed returns a sample of a run that failed.
func Failed(err error) Sample { return Sample{Err: strings.TrimSpace(err.Error())} }

// OK reports whether the value is one.
func (s *Sample) OK() bool { return s.Err == "" && len(s.Errors) == 0 }

// Why says what was wrong, "" if nothing was.
func (s *Sample) Why() string {
	parts := make([]string, 0, len(s.Errors)+1)
	if s.Err != "" {
		parts = append(parts, s.Err)
	}
	for _, k := range slices.Sorted(maps.Keys(s.Errors)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, s.Errors[k]))
	}
	return strings.Join(parts, ", ")
}

// Row is a cell with all its samples.
type Row struct {
	Cell
	stats.Summary
	Samples []Sample           `json:"samples,omitempty"`
	Extra   map[string]float64 `json:"extra_median,omitempty"`
	Errors  map[string]uint64  `json:"errors,omitempty"` // of all samples together
	// Disturbed counts runs with errors that were repeated because other
	// programs used the processors meanwhile. They are not among the
	// samples.
	Disturbed int    `json:"disturbed,omitempty"`
	Failed    string `json:"failed,omitempty"` // why there is no value
	Skipped   string `json:"skipped,omitempty"`
}

// Summarise fills in what follows from the samples. A row with an error in any
// sample has no value.
func (r *Row) Summarise() {
	r.Summary, r.Extra, r.Errors, r.Failed = stats.Summary{}, nil, nil, ""
	bad := 0
	extra := map[string][]float64{}
	for i := range r.Samples {
		s := &r.Samples[i]
		for k, v := range s.Errors {
			if r.Errors == nil {
				r.Errors = map[string]uint64{}
			}
			r.Errors[k] += v
		}
		for k, v := range s.Extra {
			extra[k] = append(extra[k], v)
		}
		if !s.OK() {
			if bad++; bad == 1 {
				r.Failed = s.Why()
			}
		}
	}
	if bad > 0 {
		r.Failed = fmt.Sprintf("%d of %d runs had errors; the first: %s", bad, len(r.Samples), r.Failed)
		return
	}
	r.Summary = stats.Of(r.Values())
	for k, v := range extra {
		if r.Extra == nil {
			r.Extra = map[string]float64{}
		}
		r.Extra[k] = stats.Median(v)
	}
}

// Values returns the samples' values in order, NaN where a run failed.
func (r *Row) Values() []float64 {
	v := make([]float64, len(r.Samples))
	for i := range r.Samples {
		if v[i] = r.Samples[i].Value; !r.Samples[i].OK() {
			v[i] = math.NaN()
		}
	}
	return v
}

// OK reports whether the row has a value.
func (r *Row) OK() bool { return r != nil && r.Failed == "" && r.Skipped == "" && r.N > 0 }

// Bytes formats a size of a message: 8B, 4KiB, 1MiB.
func Bytes(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", n>>10)
	}
	return fmt.Sprintf("%dB", n)
}
