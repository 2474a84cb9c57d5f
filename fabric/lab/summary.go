package lab

import "fmt"

// Summary is a result in numbers, for programs: as JSON its names say the
// units. It is a fact of the code, as the result is.
type Summary struct {
	Scenario    string   `json:"scenario"`
	Seed        uint64   `json:"seed"`
	Hosts       int      `json:"hosts"`
	VirtualUs   float64  `json:"virtual_us"`
	Events      uint64   `json:"events"`
	Digest      string   `json:"digest"`
	Early       string   `json:"ended_early,omitempty"`    // why the run has ended before its end
	StillSince  float64  `json:"still_since_us,omitempty"` // since when the network stands still at the end
	Completed   int      `json:"flows_completed"`          // of those with an end
	Failed      int      `json:"flows_failed"`
	Unfinished  int      `json:"flows_unfinished"` // begun, and not at their end
	LastUs      float64  `json:"last_us"`          // when the last of the completed was
	Slowdown    Spread   `json:"slowdown"`         // of the completed
	Bands       []Band   `json:"slowdown_by_size,omitempty"`
	Rate        float64  `json:"rate_gbps"` // payload of all flows without an end, since warm
	Jain        float64  `json:"jain"`      // index of their rates
	Sent        uint64   `json:"packets_sent"`
	Delivered   uint64   `json:"packets_delivered"`
	Dropped     uint64   `json:"packets_dropped"`
	Hops        uint64   `json:"hops"`
	Marks       uint64   `json:"marks"`
	Pauses      uint64   `json:"pauses"`
	Retransmits uint64   `json:"packets_sent_again"`
	Repairs     uint64   `json:"repairs"`
	Probes      uint64   `json:"probes"`
	Timeouts    uint64   `json:"timeouts"`
	CNPs        uint64   `json:"notifications"`
	WindowCuts  uint64   `json:"window_cuts"`
	RateCuts    uint64   `json:"rate_cuts"`
	LongestByte int64    `json:"longest_queue_bytes"`
	LongestName string   `json:"longest_queue,omitempty"`
	GoBack      string   `json:"window_unused,omitempty"`   // see Result.GoBack
	Unsent      int      `json:"scripted_unsent,omitempty"` // packets of [[loss]] and [[mark]]
	LeftOut     []string `json:"left_out,omitempty"`        // what was not recorded

	TCP     *TCPSummary      `json:"tcp,omitempty"`     // of all connections of TCP, where some traffic has it
	Traffic []TrafficSummary `json:"traffic,omitempty"` // where there are several, or one has a name or iterations
}

// Band is the slowdown of flows of some sizes.
type Band struct {
	Sizes string `json:"sizes"`
	Spread
}

// Summary returns the result in numbers.
func (r *Result) Summary() Summary {
	t, st := &r.Totals, &r.Stats
	s := Summary{
		Scenario: r.Scenario.Name, Seed: r.Scenario.Seed, Hosts: r.Hosts,
		VirtualUs: r.End.us(), Events: t.Events, Digest: fmt.Sprintf("%016x", r.Digest), StillSince: r.Still.us(),
		Unfinished: len(r.Unfinished), Sent: t.Sent, Delivered: t.Delivered, Dropped: t.Dropped(), Hops: t.Hops, Marks: t.Marks, Pauses: t.XOFFs,
		Retransmits: st.Retransmits, Repairs: st.Repairs, Probes: st.Probes, Timeouts: st.Timeouts,
		LeftOut: r.LeftOut, GoBack: r.GoBack, Unsent: r.Unsent, CNPs: st.CNPsReceived, WindowCuts: st.WindowCuts, RateCuts: st.RateCuts,
	}
	if r.Early != nil {
		s.Early = r.Early.Error()
	}
	var last Time
	s.Completed, s.Failed, last = r.Done()
	s.LastUs = last.us()
	s.Slowdown = r.Slowdowns(0, 1<<62)
	for _, band := range bands {
		if spread := r.Slowdowns(band.from, band.to); spread.N > 0 {
			s.Bands = append(s.Bands, Band{band.name, spread})
		}
	}
	s.Traffic, s.TCP = r.trafficSummaries(), tcpSummary(r.TCP)
	_, rate, jain := r.Rates()
	s.Rate, s.Jain = float64(rate)/1e9, jain
	if len(r.Queues) > 0 {
		q := &r.Queues[0]
		s.LongestByte, s.LongestName = q.Max, fmt.Sprintf("switch %d, port %d", q.Node-r.Hosts, q.Port)
	}
	return s
}

// us returns a time in microseconds.
func (t Time) us() float64 { return float64(t) / float64(Microsecond) }
