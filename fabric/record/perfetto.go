package record

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/fabric/lab"
	"github.com/gosoftroce/rocev2/qp/trace"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Bounds of a trace.
const (
	mostSlices   = 1 << 16 // flows, and as many pauses
	mostInstants = 1 << 18
	mostCurves   = 64 // queues, and as many windows
)

// Instants keeps what queue pairs have decided, for a trace: packets that were
// sent again or taken for lost, timers that ran out, and cuts. Its Take is for
// lab.Scenario.Trace.
type Instants struct {
	all    []instant
	window map[sender]trace.Flow // as it was
	more   int
}

// sender is a queue pair.
type sender struct {
	host int
	qpn  rocev2.QPN
}

type instant struct {
	at   time.Duration
	of   sender
	name string
	psn  rocev2.PSN
	n    int // packets, or the window in bytes
}

// Take keeps an event, if a trace shows it.
func (t *Instants) Take(at time.Duration, host int, e *trace.Event) {
	x := instant{at: at, of: sender{host, e.QPN}, psn: e.PSN, n: e.Packets}
	if t.window == nil {
		t.window = map[sender]trace.Flow{}
	}
	before := t.window[x.of]
	switch {
	case e.Kind == trace.Sent && e.Why != trace.None:
		x.name = "sent again: " + e.Why.String()
	case e.Kind == trace.Lost, e.Kind == trace.Timer:
		x.name = e.Kind.String() + ": " + e.Why.String()
	case e.Kind == trace.Window && (e.Window < before.Window || e.Rate < before.Rate):
		x.name, x.n = "cut", int(e.Window)
	}
	if e.Kind == trace.Window || before.Window == 0 {
		t.window[x.of] = trace.Flow{Window: e.Window, Rate: e.Rate}
	}
	switch {
	case x.name == "":
	case len(t.all) == mostInstants:
		t.more++
	default:
		t.all = append(t.all, x)
	}
}

// perfetto writes events of Chrome's trace format.
type perfetto struct {
	w     *bufio.Writer
	r     *lab.Result
	begun bool
}

// WritePerfetto writes a result in Chrome's trace event format, as JSON, which
// ui.perfetto.dev shows: a process for each host and switch, with the host's
// flows and the pauses of ports as slices, what queue pairs have decided as
// instants (t may be nil), and queues and windows as curves. Without
// lab.Output.Record there are no pauses and no windows.
//
// It is bounded: the first 65,536 flows, as many pauses, 262,144 instants, the
// curves of the 64 longest queues and of 64 queue pairs. The last event says
// what was left out.
func WritePerfetto(w io.Writer, r *lab.Result, t *Instants) error {
	p := &perfetto{w: bufio.NewWriterSize(w, 1<<16), r: r}
	if t == nil {
		t = new(Instants)
	}
	p.processes(t)
	flows := p.flows()
	pauses := p.pauses()
	p.instants(t)
	p.curves()
	if n := len(r.Flows) - flows; n > 0 || len(r.Pauses) > pauses || t.more > 0 {
		p.event(`"ph":"i","s":"g","pid":1,"ts":%s,"name":"left out: %d flows, %d pauses, %d decisions"`, micros(r.End), n, len(r.Pauses)-pauses, t.more)
	}
	p.w.WriteString("\n]}\n")
	return p.w.Flush()
}

func (p *perfetto) event(format string, args ...any) {
	if p.begun {
		p.w.WriteString(",\n{")
	} else {
		p.w.WriteString(`{"displayTimeUnit":"ns","traceEvents":[` + "\n{")
		p.begun = true
	}
	fmt.Fprintf(p.w, format, args...)
	p.w.WriteByte('}')
}

// Tracks of a process: ports, flows and queue pairs have their own.
const (
	portTracks = 1
	flowTracks = 1 << 16
	qpTracks   = 1 << 24
)

// pid is the process of a node.
func pid(node int) int { return node + 1 }

// processes names those that have something to show, hosts before switches.
func (p *perfetto) processes(t *Instants) {
	used := map[int]bool{}
	for _, f := range p.r.Flows[:min(len(p.r.Flows), mostSlices)] {
		used[f.Src] = true
	}
	for _, x := range p.r.Pauses {
		used[x.Node] = true
	}
	for _, q := range p.r.Queues[:min(len(p.r.Queues), mostCurves)] {
		used[q.Node] = true
	}
	for _, x := range t.all {
		used[x.of.host] = true
	}
	used[0] = true
	last := 0
	for node := range used {
		last = max(last, node)
	}
	for node := range last + 1 {
		if !used[node] {
			continue
		}
		name := fmt.Sprintf("host %d", node)
		if node >= p.r.Hosts {
			name = fmt.Sprintf("switch %d", node-p.r.Hosts)
		}
		p.event(`"ph":"M","pid":%d,"name":"process_name","args":{"name":%q}`, pid(node), name)
		p.event(`"ph":"M","pid":%d,"name":"process_sort_index","args":{"sort_index":%d}`, pid(node), node)
	}
}

// track names a track, the first time.
func (p *perfetto) track(known map[[2]int]bool, node, track int, name string) {
	if key := [2]int{node, track}; !known[key] {
		known[key] = true
		p.event(`"ph":"M","pid":%d,"tid":%d,"name":"thread_name","args":{"name":%q}`, pid(node), track, name)
	}
}

// flows writes flows at the hosts that they are from, those at one time below
// each other, and returns how many.
func (p *perfetto) flows() int {
	known, busy := map[[2]int]bool{}, map[int][]lab.Time{} // until when each track of a host is
	list := p.r.Flows[:min(len(p.r.Flows), mostSlices)]
	for i, f := range list {
		end := p.r.End
		if f.End > 0 {
			end = f.End
		}
		tracks := busy[f.Src]
		free := 0
		for free < len(tracks) && tracks[free] > f.Start {
			free++
		}
		if free == len(tracks) {
			tracks = append(tracks, 0)
		}
		tracks[free] = end
		busy[f.Src] = tracks
		p.track(known, f.Src, flowTracks+free, "flows "+strconv.Itoa(free))
		args := fmt.Sprintf(`"bytes":%d,"op":%q,"status":%q,"slowdown":%s`, f.Bytes, f.Op(), StatusOf(f), strconv.FormatFloat(f.Slowdown(), 'f', 4, 64))
		if c := f.Counters; c != nil {
			args += fmt.Sprintf(`,"sent again":%d,"timeouts":%d,"probes":%d,"notifications":%d,"window cuts":%d,"rate cuts":%d`, c.Retransmits, c.Timeouts, c.Probes, c.CNPs, c.WindowCuts, c.RateCuts)
		}
		p.event(`"ph":"X","pid":%d,"tid":%d,"ts":%s,"dur":%s,"name":"flow %d to h%d","cat":"flow","args":{%s}`, pid(f.Src), flowTracks+free, micros(f.Start), micros(end-f.Start), i, f.Dst, args)
	}
	return len(list)
}

// pauses writes pauses at the nodes that were paused, and returns how many.
func (p *perfetto) pauses() int {
	known := map[[2]int]bool{}
	list := p.r.Pauses[:min(len(p.r.Pauses), mostSlices)]
	for i := range list {
		x := &list[i]
		p.track(known, x.Node, portTracks+x.Port, "pauses of port "+strconv.Itoa(x.Port))
		p.event(`"ph":"X","pid":%d,"tid":%d,"ts":%s,"dur":%s,"name":"paused by %s","cat":"pause","args":{"classes":%q}`, pid(x.Node), portTracks+x.Port, micros(x.At), micros(x.Until-x.At), p.r.NodeName(x.By), classes(x.Classes))
	}
	return len(list)
}

// instants writes what queue pairs have decided, on a track of each.
func (p *perfetto) instants(t *Instants) {
	known := map[[2]int]bool{}
	for i := range t.all {
		x := &t.all[i]
		track := qpTracks + int(x.of.qpn)
		p.track(known, x.of.host, track, fmt.Sprintf("QP %d", x.of.qpn))
		what := "packets"
		if x.name == "cut" {
			what = "window"
		}
		p.event(`"ph":"i","s":"t","pid":%d,"tid":%d,"ts":%s,"name":%q,"args":{"PSN":%d,%q:%d}`, pid(x.of.host), track, micros(lab.Time(x.at)*1000), x.name, x.psn, what, x.n)
	}
}

// curves writes the longest queues, and the windows of flows.
func (p *perfetto) curves() {
	all := index(p.r.Samples)
	for _, q := range p.r.Queues[:min(len(p.r.Queues), mostCurves)] {
		p.curve(pid(q.Node), all[series{p.r.PortName(q.Node, q.Port), "queued_bytes"}], fmt.Sprintf("queue of port %d", q.Port), "bytes")
	}
	windows := 0
	eachSeries(p.r, "window_bytes", func(x *lab.Series) {
		n, err := strconv.Atoi(strings.TrimPrefix(x.Of, "f"))
		if windows++; windows > mostCurves || err != nil || n >= len(p.r.Flows) {
			return
		}
		at := pid(p.r.Flows[n].Src)
		p.curve(at, x, fmt.Sprintf("window of flow %d", n), "bytes")
		p.curve(at, all[series{x.Of, "in_flight_bytes"}], fmt.Sprintf("in flight of flow %d", n), "bytes")
		p.curve(at, all[series{x.Of, "rate_bps"}], fmt.Sprintf("rate of flow %d", n), "bits per second")
	})
}

// curve writes a series where it changes.
func (p *perfetto) curve(at int, x *lab.Series, name, unit string) {
	if x == nil {
		return
	}
	last := int64(0)
	for k, t := range p.r.Samples.Times {
		if v := max(x.Values[k], 0); v != last {
			p.event(`"ph":"C","pid":%d,"ts":%s,"name":%q,"args":{%q:%d}`, at, micros(t), name, unit, v)
			last = v
		}
	}
}
