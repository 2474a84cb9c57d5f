package server

import (
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// maxMeasured is how many queue pairs are asked for their round trip times at
// once.
const maxMeasured = 512

// latencies sums the smoothed round trip times of queue pairs up.
type latencies struct {
	QPs    int   `json:"qps"` // that have measured
	Min    int64 `json:"min_us"`
	Median int64 `json:"median_us"`
	P99    int64 `json:"p99_us"`
	Max    int64 `json:"max_us"`
}

// apiCounters returns the counters of every device, with the time in
// milliseconds: a client that asks twice has rates. Those that show trouble
// come with what they mean.
func (s *Server) apiCounters(*http.Request) (any, error) {
	type deviceCounters struct {
		Address  string            `json:"address"`
		Link     map[string]uint64 `json:"link"`
		QPs      map[string]uint64 `json:"qps"`
		Drops    map[string]uint64 `json:"drops"`
		RTT      latencies         `json:"rtt"`
		InFlight int               `json:"in_flight"`
	}
	v := struct {
		Time    int64            `json:"time_ms"`
		Devices []deviceCounters `json:"devices"`
		Trouble []CounterMeaning `json:"trouble"`
	}{Time: time.Now().UnixMilli(), Trouble: []CounterMeaning{}}
	trouble := map[string]bool{}
	for _, d := range s.devices {
		st, qs := d.dev.Stats(), d.dev.QPStats()
		c := deviceCounters{Address: d.addr(), Link: map[string]uint64{}, QPs: map[string]uint64{}, Drops: st.Drops}
		note := func(name string, n uint64) {
			if m, ok := troubleOf(name); ok && n > 0 && !trouble[name] {
				trouble[name] = true
				v.Trouble = append(v.Trouble, m)
			}
		}
		st.Link.Each(func(name string, n uint64) { c.Link[name] = n; note(name, n) })
		qs.Each(func(name string, n uint64) { c.QPs[name] = n; note(name, n) })
		for reason, n := range st.Drops {
			note("drop_"+reason, n)
		}
		c.RTT, c.InFlight = measure(d.dev)
		v.Devices = append(v.Devices, c)
	}
	slices.SortFunc(v.Trouble, func(a, b CounterMeaning) int { return rank(a.Counter) - rank(b.Counter) })
	return v, nil
}

// rank is the place of a counter in CounterMeanings.
func rank(counter string) int {
	return slices.IndexFunc(CounterMeanings, func(m CounterMeaning) bool { return m.Counter == counter })
}

// measure asks queue pairs for their round trip times, evenly spread ones where
// there are many.
func measure(dev *verbs.Device) (l latencies, inFlight int) {
	numbers := dev.QPNs()
	step := max(1, int(math.Ceil(float64(len(numbers))/maxMeasured)))
	var times []int64
	for i := 0; i < len(numbers); i += step {
		q := dev.QP(numbers[i])
		if q == nil {
			continue
		}
		f := q.Flow()
		inFlight += f.InFlight * step
		if f.RTT > 0 && q.State() == verbs.StateRTS {
			times = append(times, f.RTT.Microseconds())
		}
	}
	if len(times) == 0 {
		return l, inFlight
	}
	slices.Sort(times)
	n := len(times)
	return latencies{QPs: n, Min: times[0], Median: times[n/2], P99: times[min(n-1, n*99/100)], Max: times[n-1]}, inFlight
}
