package sims

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/fabric/topology/topofile"
)

// alone says how long flows take that are alone on a network of the HPCC paper,
// whatever simulator has played them: else slowdowns of two simulators, whose
// headers differ, would be shares of different things.
//
// The formula is that of the results of its ns-3 (qp_finish of third.cc): the
// delays of the cables there and back, the payload of one packet through each
// cable, and all bytes, with 48 of headers for each packet, through the slowest
// cable.
type alone struct {
	graph  *topology.Graph
	tables *topology.Tables
}

// loadHeaders are bytes of a packet beside its payload, without telemetry.
const loadHeaders = 48

func newAlone(network string) (*alone, error) {
	g, err := topofile.Read(network, topofile.NS3)
	if err != nil {
		return nil, err
	}
	return &alone{g, g.Shortest(nil)}, nil
}

// of returns the time in nanoseconds.
func (a *alone) of(src, dst int32, bytes int64) (int64, error) {
	links, err := a.tables.Path(src, dst, nil)
	if err != nil {
		return 0, err
	}
	if len(links) == 0 {
		return 0, fmt.Errorf("host %d sends to itself", src)
	}
	var rtt int64
	slowest := a.graph.Link(links[0]).Rate
	for _, i := range links {
		l := a.graph.Link(i)
		rtt += 2*int64(l.Delay)/1000 + hpccPayload*8e9/l.Rate
		slowest = min(slowest, l.Rate)
	}
	return rtt + (bytes+(bytes+hpccPayload-1)/hpccPayload*loadHeaders)*8e9/slowest, nil
}

// done is a flow that has completed.
type done struct {
	src, dst    int32
	bytes       int64
	start, took float64 // ns; a flow begins when it is posted, and ends when its last byte is acknowledged
}

// slowdowns fills in what the flows have come to.
func (r *Run) slowdowns(all []done, a *alone) error {
	if len(all) == 0 {
		return errors.New("no flow has completed")
	}
	var short, long []float64
	first, last := all[0].start, 0.0
	for _, f := range all {
		ns, err := a.of(f.src, f.dst, f.bytes)
		if err != nil {
			return err
		}
		first, last = min(first, f.start), max(last, f.start+f.took)
		switch slowdown := f.took / float64(ns); {
		case f.bytes <= 10_000:
			short = append(short, slowdown)
		case f.bytes > 1_000_000:
			long = append(long, slowdown)
		}
	}
	r.Flows, r.Last = len(all), (last-first)/1e3
	if len(short) > 0 {
		slices.Sort(short)
		r.Short = &Slowdowns{rank(short, 50), rank(short, 95), rank(short, 99)}
	}
	for _, v := range long {
		r.Long += v / float64(len(long))
	}
	return nil
}

// rank returns the smallest of sorted numbers that that many percent of them do
// not exceed.
func rank(sorted []float64, percent int) float64 {
	return sorted[max((len(sorted)*percent+99)/100, 1)-1]
}

// readFlows reads the table of flows of the product's simulator.
func readFlows(table io.Reader) ([]done, error) {
	rows, err := csv.NewReader(table).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("flows.csv: %w", err)
	}
	if len(rows) < 2 {
		return nil, errors.New("flows.csv has no flows")
	}
	var at [5]int
	for i, name := range []string{"from", "to", "bytes", "start_us", "end_us"} {
		if at[i] = slices.Index(rows[0], name); at[i] < 0 {
			return nil, fmt.Errorf("flows.csv has no column %s", name)
		}
	}
	var all []done
	for i, row := range rows[1:] {
		var f done
		for k, to := range []any{&f.src, &f.dst, &f.bytes, &f.start, &f.took} {
			word := row[at[k]]
			if err := parse(word, to); err != nil {
				return nil, fmt.Errorf("flows.csv:%d: %s: %w", i+2, rows[0][at[k]], err)
			}
		}
		f.took -= f.start // of end_us until now
		if f.took <= 0 {
			return nil, fmt.Errorf("flows.csv:%d: the flow ends before it has begun", i+2)
		}
		all = append(all, f)
	}
	return all, nil
}

// parse reads a host, a number of bytes, or a time in microseconds, which
// becomes one in nanoseconds.
func parse(word string, to any) error {
	switch to := to.(type) {
	case *int32:
		v, err := strconv.ParseInt(strings.TrimPrefix(word, "h"), 10, 32)
		*to = int32(v)
		return err
	case *int64:
		v, err := strconv.ParseInt(word, 10, 64)
		*to = v
		return err
	default:
		v, err := strconv.ParseFloat(word, 64)
		if err == nil && !(v >= 0 && v < 1e12) {
			err = fmt.Errorf("%q is no time", word)
		}
		*to.(*float64) = v * 1e3
		return err
	}
}
