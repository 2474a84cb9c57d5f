package lab

import (
	"fmt"
	"io"

	"github.com/gosoftroce/rocev2/ib"
)

// TrafficResult is what a [[traffic]] has come to.
type TrafficResult struct {
	Name       string // what the scenario calls it, or its kind
	Done       int    // flows with an end, that have completed
	Failed     int
	Open       int         // that have begun, and have not come to their end
	Bytes      int64       // payload of those that have completed
	First      Time        // when the first flow began
	Last       Time        // when the last one had completed
	Rate       Rate        // payload of all flows without an end, since Warm
	Jain       float64     // index of their rates
	Iterations []Iteration // of a collective, that all ranks have ended
}

// Traffics returns what each [[traffic]] has come to.
func (r *Result) Traffics() []TrafficResult {
	all := make([]TrafficResult, len(r.Scenario.Traffic))
	squares := make([]float64, len(all))
	streams := make([]int, len(all))
	begun := make([]bool, len(all))
	for i := range all {
		t := &r.Scenario.Traffic[i]
		all[i].Name = orDefault(t.Name, orDefault(t.Kind, kindSource))
		all[i].Iterations = r.iterations[i]
	}
	for _, f := range r.Flows {
		t := &all[f.Traffic]
		if !begun[f.Traffic] || f.Start < t.First {
			t.First, begun[f.Traffic] = f.Start, true
		}
		switch {
		case f.Status != ib.StatusSuccess:
			t.Failed++
		case f.End > 0:
			t.Done++
			t.Bytes += f.Bytes
			t.Last = max(t.Last, f.End)
		case f.Bytes > 0:
			t.Open++
		default:
			v := r.Rate(f)
			t.Rate += v
			streams[f.Traffic]++
			squares[f.Traffic] += float64(float64(v) * float64(v)) // not fused, as some processors would
		}
	}
	for i := range all {
		if squares[i] > 0 {
			all[i].Jain = float64(all[i].Rate) * float64(all[i].Rate) / (float64(streams[i]) * squares[i])
		}
	}
	return all
}

// SlowdownsOf is Slowdowns of the flows of one [[traffic]], by its index.
func (r *Result) SlowdownsOf(traffic int, from, to int64) Spread {
	return r.slowdowns(func(f *Flow) bool { return f.Traffic == traffic && f.Bytes > from && f.Bytes <= to })
}

// iterationTimes returns how long iterations took, in microseconds.
func (t *TrafficResult) iterationTimes() (us []float64) {
	for _, it := range t.Iterations {
		us = append(us, (it.End - it.Start).us())
	}
	return us
}

// apart reports whether the traffic of a scenario is told of one by one.
func (s *Scenario) apart() bool {
	if len(s.Traffic) == 0 {
		return false
	}
	return len(s.Traffic) > 1 || s.Traffic[0].Name != "" || s.Traffic[0].Iterations > 1
}

// writeTraffics writes what each traffic has come to.
func (r *Result) writeTraffics(w io.Writer) {
	if !r.Scenario.apart() {
		return
	}
	all := r.Traffics()
	for i := range all {
		if i == mostLines {
			fmt.Fprintf(w, "and %d more traffics\n", len(all)-i)
			return
		}
		t := &all[i]
		fmt.Fprintf(w, "traffic %d, %s", i+1, t.Name)
		if t.Done+t.Failed+t.Open > 0 {
			fmt.Fprintf(w, "\t%d completed\t%d failed\t%d open\t%v in %v", t.Done, t.Failed, t.Open, Bytes(t.Bytes), max(t.Last-t.First, 0))
			if s := r.SlowdownsOf(i, 0, 1<<62); s.N > 0 {
				fmt.Fprintf(w, "\tslowdown mean %.3f\tp50 %.3f\tp95 %.3f\tp99 %.3f\tmost %.3f", s.Mean, s.P50, s.P95, s.P99, s.Max)
			}
		}
		if t.Rate > 0 {
			fmt.Fprintf(w, "\t%v\tJain %.4f", t.Rate, t.Jain)
		}
		fmt.Fprintln(w)
		if len(t.Iterations) > 1 {
			s := spreadOf(t.iterationTimes())
			fmt.Fprintf(w, "  iterations\t%d\tmean %.3fus\tp50 %.3fus\tp95 %.3fus\tp99 %.3fus\tmost %.3fus\n", s.N, s.Mean, s.P50, s.P95, s.P99, s.Max)
		}
	}
}

// TrafficSummary is a TrafficResult in numbers.
type TrafficSummary struct {
	Name       string    `json:"name"`
	Kind       string    `json:"kind"`
	Completed  int       `json:"flows_completed"`
	Failed     int       `json:"flows_failed"`
	Unfinished int       `json:"flows_unfinished"`
	Bytes      int64     `json:"bytes_completed"`
	FirstUs    float64   `json:"first_us"` // when its first flow began
	LastUs     float64   `json:"last_us"`  // when its last one had completed
	Slowdown   Spread    `json:"slowdown"`
	Bands      []Band    `json:"slowdown_by_size,omitempty"`
	Rate       float64   `json:"rate_gbps"` // of its flows without an end, since warm
	Jain       float64   `json:"jain"`
	Iterations []float64 `json:"iterations_us,omitempty"`
	Iteration  *TimesUs  `json:"iteration_us,omitempty"` // of these
}

// TimesUs are statistics of times, in microseconds.
type TimesUs struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// trafficSummaries returns what each traffic has come to.
func (r *Result) trafficSummaries() (list []TrafficSummary) {
	if !r.Scenario.apart() {
		return nil
	}
	for i, t := range r.Traffics() {
		s := TrafficSummary{Name: t.Name, Kind: orDefault(r.Scenario.Traffic[i].Kind, kindSource), Completed: t.Done, Failed: t.Failed, Unfinished: t.Open,
			Bytes: t.Bytes, FirstUs: t.First.us(), LastUs: t.Last.us(), Slowdown: r.SlowdownsOf(i, 0, 1<<62),
			Rate: float64(t.Rate) / 1e9, Jain: t.Jain, Iterations: t.iterationTimes()}
		if v := spreadOf(t.iterationTimes()); v.N > 0 {
			s.Iteration = &TimesUs{v.Mean, v.P50, v.P95, v.P99, v.Max}
		}
		for _, band := range bands {
			if spread := r.SlowdownsOf(i, band.from, band.to); spread.N > 0 {
				s.Bands = append(s.Bands, Band{band.name, spread})
			}
		}
		list = append(list, s)
	}
	return list
}
