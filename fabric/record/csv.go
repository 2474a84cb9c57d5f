package record

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/lab"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/ib"
)

// Table is a file of CSV that a result becomes. Its first line has the names of
// the columns, with their units.
type Table struct {
	Name    string // of the file
	About   string // what a row is
	Columns []string
	rows    func(r *lab.Result, row func(...any))
}

// Tables returns all tables. What lab.Output.Record keeps is empty, or 0, in
// those of a result without it.
func Tables() []Table {
	return []Table{
		{"flows.csv", "a flow that has begun", flowColumns, flowRows},
		{"queues.csv", "the queue of a switch's port at a time", []string{"time_us", "port", "queued_bytes"}, queueRows},
		{"ports.csv", "what a port has sent since the row before", []string{"time_us", "port", "sent_bytes", "sent_packets", "utilisation", "dropped_packets", "paused_us"}, portRows},
		{"marks.csv", "a port that has marked packets since the sample before", []string{"time_us", "port", "marked_packets"}, markRows},
		{"windows.csv", "the sending queue pair of a flow at a time", []string{"time_us", "flow", "in_flight_bytes", "window_bytes", "rate_bps", "srtt_us"}, windowRows},
		{"pauses.csv", "a time in which a port was paused", []string{"start_us", "end_us", "port", "by", "classes"}, pauseRows},
		{"totals.csv", "a port, over the whole run", totalColumns(), totalRows},
		{"links.csv", "a cable", []string{"cable", "a", "b", "rate_bps", "delay_us", "loss"}, linkRows},
	}
}

// Write writes the table of a result.
func (t *Table) Write(w io.Writer, r *lab.Result) error {
	out := csv.NewWriter(w)
	if err := out.Write(t.Columns); err != nil {
		return err
	}
	line := make([]string, 0, len(t.Columns))
	var err error
	t.rows(r, func(values ...any) {
		line = line[:0]
		for _, v := range values {
			line = append(line, text(v))
		}
		if err == nil {
			err = out.Write(line)
		}
	})
	out.Flush()
	if err == nil {
		err = out.Error()
	}
	return err
}

// text writes a value. A time is in microseconds, nil is empty.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case lab.Time:
		return micros(v)
	case float64:
		return strconv.FormatFloat(v, 'f', 6, 64)
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case uint64:
		return strconv.FormatUint(v, 10)
	}
	return fmt.Sprint(v)
}

// micros writes a time in microseconds, exactly.
func micros(t lab.Time) string {
	const one = int64(lab.Microsecond)
	s := fmt.Sprintf("%d.%06d", int64(t)/one, int64(t)%one)
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

var flowColumns = []string{"flow", "from", "to", "bytes", "op", "start_us", "end_us", "ideal_us", "slowdown", "status", "rate_bps",
	"retransmitted_packets", "spurious_packets", "read_replays", "timeouts", "probes", "repairs",
	"notifications", "marked_packets", "window_cuts", "rate_cuts", "reordered_packets", "sequence_naks"}

// StatusOf says what has become of a flow.
func StatusOf(f *lab.Flow) string {
	switch {
	case f.Status != ib.StatusSuccess:
		return "failed: " + f.Status.String()
	case f.Bytes == 0:
		return "endless"
	case f.End == 0:
		return "unfinished"
	}
	return "completed"
}

func flowRows(r *lab.Result, row func(...any)) {
	for i, f := range r.Flows {
		values := []any{i, "h" + strconv.Itoa(f.Src), "h" + strconv.Itoa(f.Dst), f.Bytes, f.Op(), f.Start, nil, nil, nil, StatusOf(f), nil}
		if f.End > 0 {
			values[6] = f.End
		}
		if f.Ideal > 0 {
			values[7] = f.Ideal
		}
		if s := f.Slowdown(); s > 0 {
			values[8] = s
		}
		if f.Bytes == 0 {
			values[3], values[10] = nil, int64(r.Rate(f))
		}
		if c := f.Counters; c != nil {
			values = append(values, c.Retransmits, c.SpuriousRetransmits, c.ReadReplays, c.Timeouts, c.Probes, c.Repairs,
				c.CNPs, c.Marked, c.WindowCuts, c.RateCuts, c.Reordered, c.NAKs)
		}
		for len(values) < len(flowColumns) {
			values = append(values, nil)
		}
		row(values...)
	}
}

// longestQueues is how many queues of ports that are not sampled otherwise are
// in a table, the longest of them.
const longestQueues = 64

func queueRows(r *lab.Result, row func(...any)) {
	longest := map[string]bool{}
	for i, q := range r.Queues {
		if i < longestQueues {
			longest[r.PortName(q.Node, q.Port)] = true
		}
	}
	all := index(r.Samples)
	eachSeries(r, "queued_bytes", func(x *lab.Series) {
		if !longest[x.Of] && all[series{x.Of, "sent_bytes"}] == nil {
			return
		}
		for k, at := range r.Samples.Times {
			row(at, x.Of, x.Values[k])
		}
	})
}

// series is a series of a result, by what it is of and what it is.
type series struct{ of, what string }

// index returns the series of a result.
func index(s *lab.Samples) map[series]*lab.Series {
	all := make(map[series]*lab.Series, len(s.Series))
	for _, x := range s.Series {
		all[series{x.Of, x.What}] = x
	}
	return all
}

// eachSeries calls f with the series of one quantity, in their order.
func eachSeries(r *lab.Result, what string, f func(*lab.Series)) {
	for _, x := range r.Samples.Series {
		if x.What == what {
			f(x)
		}
	}
}

// utilisation is the share of a cable's time that bytes have taken.
func utilisation(bytes int64, rate lab.Rate, while lab.Time) float64 {
	if while <= 0 || rate <= 0 {
		return 0
	}
	return float64(bytes) * 8e12 / (float64(rate) * float64(while))
}

func portRows(r *lab.Result, row func(...any)) {
	rates := map[string]lab.Rate{}
	for i := range r.Ports {
		p := &r.Ports[i]
		rates[r.PortName(p.Node, p.Port)] = p.Rate
	}
	all := index(r.Samples)
	eachSeries(r, "sent_bytes", func(x *lab.Series) {
		packets, drops, paused := all[series{x.Of, "sent_packets"}].Values, all[series{x.Of, "dropped_packets"}].Values, all[series{x.Of, "paused_ns"}].Values
		var bytes0, packets0, drops0, paused0 int64
		before := lab.Time(0)
		for k, at := range r.Samples.Times {
			row(at, x.Of, x.Values[k]-bytes0, packets[k]-packets0, utilisation(x.Values[k]-bytes0, rates[x.Of], at-before),
				drops[k]-drops0, lab.Time(paused[k]-paused0)*lab.Time(event.Nanosecond))
			before, bytes0, packets0, drops0, paused0 = at, x.Values[k], packets[k], drops[k], paused[k]
		}
	})
}

func markRows(r *lab.Result, row func(...any)) {
	eachSeries(r, "marked_packets", func(x *lab.Series) {
		before := int64(0)
		for k, at := range r.Samples.Times {
			if n := x.Values[k] - before; n > 0 {
				row(at, x.Of, n)
			}
			before = x.Values[k]
		}
	})
}

func windowRows(r *lab.Result, row func(...any)) {
	all := index(r.Samples)
	eachSeries(r, "window_bytes", func(x *lab.Series) {
		inFlight, rate, rtt := all[series{x.Of, "in_flight_bytes"}].Values, all[series{x.Of, "rate_bps"}].Values, all[series{x.Of, "srtt_ns"}].Values
		for k, at := range r.Samples.Times {
			if x.Values[k] >= 0 {
				row(at, strings.TrimPrefix(x.Of, "f"), inFlight[k], x.Values[k], rate[k], lab.Time(rtt[k])*lab.Time(event.Nanosecond))
			}
		}
	})
}

func pauseRows(r *lab.Result, row func(...any)) {
	for i := range r.Pauses {
		p := &r.Pauses[i]
		row(p.At, p.Until, r.PortName(p.Node, p.Port), r.NodeName(p.By), classes(p.Classes))
	}
}

// classes writes a set of classes, as "3 4".
func classes(set uint8) string {
	var list []string
	for c := range 8 {
		if set>>c&1 != 0 {
			list = append(list, strconv.Itoa(c))
		}
	}
	return strings.Join(list, " ")
}

func totalColumns() []string {
	columns := []string{"port", "peer", "cable", "rate_bps", "sent_bytes", "sent_packets", "utilisation", "max_queued_bytes", "marked_packets", "pauses_sent", "paused_us", "dropped_packets"}
	for why := range network.NumDrops {
		columns = append(columns, "dropped_"+why.String())
	}
	return columns
}

func totalRows(r *lab.Result, row func(...any)) {
	for i := range r.Ports {
		p := &r.Ports[i]
		values := []any{r.PortName(p.Node, p.Port), r.NodeName(p.Peer), p.Cable, int64(p.Rate), p.Bytes, p.Packets, utilisation(int64(p.Bytes), p.Rate, r.End),
			p.MaxQueued, p.Marks, p.XOFFs, lab.Time(p.Paused), p.Dropped()}
		for _, n := range p.Drops {
			values = append(values, n)
		}
		row(values...)
	}
}

func linkRows(r *lab.Result, row func(...any)) {
	for i, c := range r.Cables() {
		row(i, r.PortName(c.A, c.PortA), r.PortName(c.B, c.PortB), int64(c.Rate), c.Delay, c.Loss)
	}
}
