package sweep

import (
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/lab"
)

// mostTenants is of how many traffics of a scenario there are measures: the
// first ones.
const mostTenants = 16

// tenantMeasures are those of each traffic, where there are several.
var tenantMeasures = []tenantMeasure{
	{"last flow, us", func(t *lab.TrafficSummary) float64 { return t.LastUs }, completed},
	{"slowdown, mean", func(t *lab.TrafficSummary) float64 { return t.Slowdown.Mean }, completed},
	{"slowdown, p50", func(t *lab.TrafficSummary) float64 { return t.Slowdown.P50 }, completed},
	{"slowdown, p95", func(t *lab.TrafficSummary) float64 { return t.Slowdown.P95 }, completed},
	{"slowdown, p99", func(t *lab.TrafficSummary) float64 { return t.Slowdown.P99 }, completed},
	{"rate, Gb/s", func(t *lab.TrafficSummary) float64 { return t.Rate }, nil},
	{"Jain", func(t *lab.TrafficSummary) float64 { return t.Jain }, nil},
	{"flows failed", func(t *lab.TrafficSummary) float64 { return float64(t.Failed) }, nil},
	{"flows unfinished", func(t *lab.TrafficSummary) float64 { return float64(t.Unfinished) }, nil},
}

// iterationMeasures are those of the iterations of a collective.
var iterationMeasures = []tenantMeasure{
	{"iteration, us, mean", func(t *lab.TrafficSummary) float64 { return t.Iteration.Mean }, iterated},
	{"iteration, us, p50", func(t *lab.TrafficSummary) float64 { return t.Iteration.P50 }, iterated},
	{"iteration, us, p99", func(t *lab.TrafficSummary) float64 { return t.Iteration.P99 }, iterated},
	{"iteration, us, longest", func(t *lab.TrafficSummary) float64 { return t.Iteration.Max }, iterated},
}

// tenantMeasure is a measure of a traffic. There is one only if it is measured;
// nil: always.
type tenantMeasure struct {
	name     string
	of       func(*lab.TrafficSummary) float64
	measured func(*lab.TrafficSummary) bool
}

func completed(t *lab.TrafficSummary) bool { return t.Completed > 0 }
func iterated(t *lab.TrafficSummary) bool  { return t.Iteration != nil }

// measuresOf returns all measures of runs, with those of their traffics, and
// how many traffics are left out.
func measuresOf(groups []*group) (list []measure, left int) {
	list = append(list, measures...)
	names := tenantNames(groups)
	for i, name := range names {
		if i == mostTenants {
			return list, len(names) - i
		}
		if len(names) > 1 { // else they are those of all
			for _, m := range tenantMeasures {
				list = append(list, m.measure(i, name))
			}
		}
		for _, m := range iterationMeasures {
			list = append(list, m.measure(i, name))
		}
	}
	return list, 0
}

// tenantNames returns what the traffics are called: as in the first run that
// has most of them. Where two have one name it is with their numbers.
func tenantNames(groups []*group) (names []string) {
	var list []lab.TrafficSummary
	first := uint64(0)
	for _, g := range groups {
		for seed, s := range g.runs {
			if len(s.Traffic) > len(list) || len(s.Traffic) == len(list) && len(list) > 0 && seed < first {
				list, first = s.Traffic, seed
			}
		}
		if len(list) > 0 {
			break
		}
	}
	times := map[string]int{}
	for i := range list {
		times[list[i].Name]++
	}
	for i := range list {
		name := list[i].Name
		if times[name] > 1 {
			name = fmt.Sprintf("traffic %d, %s", i+1, name)
		}
		names = append(names, name)
	}
	return names
}

// measure returns it of a traffic.
func (m tenantMeasure) measure(i int, name string) measure {
	there := func(s *lab.Summary) bool {
		return i < len(s.Traffic) && (m.measured == nil || m.measured(&s.Traffic[i]))
	}
	return measure{name: name + ": " + m.name, there: there, of: func(s *lab.Summary) float64 {
		if !there(s) {
			return 0
		}
		return m.of(&s.Traffic[i])
	}}
}
