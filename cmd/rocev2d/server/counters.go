package server

import (
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/gosoftroce/rocev2/observe/metrics"
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
func (h *handlers) apiCounters(*http.Request) (any, error) {
	type deviceCounters struct {
		Address  string            `json:"address"`
		Link     map[string]uint64 `json:"link"`
		QPs      map[string]uint64 `json:"qps"`
		Drops    map[string]uint64 `json:"drops"`
		Guard    map[string]uint64 `json:"guard,omitempty"` // where all packets are sealed
		RTT      latencies         `json:"rtt"`
		InFlight int               `json:"in_flight"`
	}
	v := struct {
		Time    int64            `json:"time_ms"`
		Devices []deviceCounters `json:"devices"`
		Trouble []CounterMeaning `json:"trouble"`
	}{Time: time.Now().UnixMilli(), Trouble: []CounterMeaning{}}
	trouble := map[string]bool{}
	for _, d := range h.devices {
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
		if g, secured := d.guardCounters(); secured {
			c.Guard = map[string]uint64{}
			g.Each(func(name string, n uint64) { c.Guard[name] = n; note(name, n) })
		}
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

func (h *handlers) verbsDevices() (list []*verbs.Device) {
	for _, d := range h.devices {
		list = append(list, d.dev)
	}
	return list
}

// gauges are what the daemon itself counts, for the metrics.
func (h *handlers) gauges() (list []metrics.Gauge) {
	h.records.visits.each(func(kind string, c visitCount) {
		for _, g := range []struct {
			name, help string
			value      uint64
		}{
			{"target_clients", "clients that were taken, by target", c.begun},
			{"target_failures", "clients whose run ended with an error, by target", c.failed},
			{"target_refusals", "clients that were not taken, by target", c.refused},
		} {
			list = append(list, metrics.Gauge{Name: g.name, Help: g.help, Label: "target", LabelValue: kind, Value: float64(g.value), Total: true})
		}
	})
	_, total := h.records.problems.latest()
	return append(slices.Concat(list, leaseGauges(h.devices), h.securedGauges(), keyGauges(h.devices)),
		metrics.Gauge{Name: "clients", Help: "clients that are there now", Value: float64(h.records.visits.size())},
		metrics.Gauge{Name: "errors", Help: "errors that were recorded", Value: float64(total), Total: true},
		metrics.Gauge{Name: "start_time_seconds", Help: "when the daemon began, in Unix time", Value: float64(h.begin.UnixMilli()) / 1000},
	)
}

// leaseGauges are the leases for the metrics, by device, user and command.
func leaseGauges(devices []*device) (list []metrics.Gauge) {
	for _, d := range devices {
		if d.port == nil {
			continue
		}
		for u, l := range d.past.total(d.port.Leases()) {
			more := []metrics.Label{{Name: "user", Value: u.user}, {Name: "command", Value: u.command}}
			if l.Guard != nil {
				l.Guard.Each(func(name string, v uint64) {
					list = append(list, metrics.Gauge{Name: "lease_sealing", Help: "what sealing the packets of such processes has counted, by the name of the counter in verbs.GuardCounters", Label: "device", LabelValue: d.addr(),
						More: append(slices.Clone(more), metrics.Label{Name: "counter", Value: name}), Value: float64(v), Total: true})
				})
			}
			for _, g := range []struct {
				name, help string
				value      uint64
				total      bool
			}{
				{"leases", "processes that share the port of a device", uint64(l.Slot), false},
				{"lease_queue_pairs", "open queue pairs of such processes", uint64(l.QPs), false},
				{"lease_connections", "connections of such processes", uint64(l.Connections), false},
				{"lease_tx_packets", "packets that such processes have sent", l.TxPackets, true},
				{"lease_rx_packets", "packets that such processes have received", l.RxPackets, true},
				{"lease_tx_bytes", "bytes that such processes have sent, BTH to ICRC", l.TxBytes, true},
				{"lease_rx_bytes", "bytes that such processes have received, BTH to ICRC", l.RxBytes, true},
				{"lease_tx_shm_bytes", "bytes that such processes have sent through shared memory", l.TxShm, true},
				{"lease_rx_shm_bytes", "bytes that such processes have received through shared memory", l.RxShm, true},
				{"lease_queue_pairs_made", "queue pairs that such processes have made", l.MadeQPs, true},
			} {
				list = append(list, metrics.Gauge{Name: g.name, Help: g.help, Label: "device", LabelValue: d.addr(),
					More: more, Value: float64(g.value), Total: g.total})
			}
		}
	}
	return list
}
