package lab

import "github.com/gosoftroce/rocev2/fabric/plot"

// Samples are what a run was looked at for, from time to time. Each series has
// a value for each of Times.
type Samples struct {
	Times  []Time
	Series []*Series
}

// Series is a quantity of one thing over time. There are, with Output.Record
// those with a star, too:
//
//	""      received_bytes   payload that has arrived, of all queue pairs
//	        pauses           pause frames that have paused something
//	"s0.3"  queued_bytes     in the queues of port 3 of switch 0
//	     *  sent_bytes, sent_packets, marked_packets, dropped_packets
//	     *  paused_ns        for how long some class was paused
//	"h2" *  the same of the port of host 2, which has no queues here
//	"f7"    received_bytes   of the 8th flow that has begun, if it has no end
//	     *  in_flight_bytes, window_bytes, rate_bps (0: none is set) and
//	        srtt_ns (0: not known) of its queue pairs together
//
// All but queued_bytes and the last four are counters, that begin at 0.
type Series struct {
	Of     string
	What   string
	Values []int64 // negative: it was not there at that time
}

// Find returns a series, nil if it was not sampled.
func (s *Samples) Find(of, what string) *Series {
	for _, x := range s.Series {
		if x.Of == of && x.What == what {
			return x
		}
	}
	return nil
}

// add begins a series. It has been 0, or was not there, until now.
func (s *Samples) add(of, what string, before int64) *Series {
	x := &Series{Of: of, What: what, Values: make([]int64, len(s.Times))}
	for i := range x.Values {
		x.Values[i] = before
	}
	s.Series = append(s.Series, x)
	return x
}

// thin drops every other sample.
func (s *Samples) thin() {
	s.Times = everyOther(s.Times)
	for _, x := range s.Series {
		x.Values = everyOther(x.Values)
	}
}

func everyOther[T any](v []T) []T {
	half := len(v) / 2
	for i := range half {
		v[i] = v[2*i+1]
	}
	return v[:half]
}

// Points returns the values of a gauge by the time in ms,
// in a unit: of 1000 they are KB.
func (s *Samples) Points(x *Series, unit float64) (points []plot.Point) {
	for k, t := range s.Times {
		if x.Values[k] >= 0 {
			points = append(points, plot.Point{X: millis(t), Y: float64(x.Values[k]) / unit})
		}
	}
	return points
}

// Rate returns how fast a counter grew in each step, by the time in ms at
// which the step began, times a factor for the unit: of 1 it is per ps.
func (s *Samples) Rate(x *Series, factor float64) (points []plot.Point) {
	before, at := int64(0), Time(0)
	for k, t := range s.Times {
		if t > at {
			points = append(points, plot.Point{X: millis(at), Y: float64(x.Values[k]-before) * factor / float64(t-at)})
		}
		before, at = x.Values[k], t
	}
	return points
}

func millis(t Time) float64 { return float64(t) / 1e9 }
