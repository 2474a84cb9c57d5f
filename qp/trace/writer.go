package trace

import (
	"bufio"
	"fmt"
	"io"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Writer writes events in the trace event format of Chrome, as an array of
// JSON. Perfetto (ui.perfetto.dev) and chrome://tracing show it: a process for
// each device, in it a track with the events of each queue pair, and curves of
// its window, of what is in flight, of its rate and of its round trip time.
// What was written until a moment can be opened without the rest.
//
// It is not safe for concurrent use.
type Writer struct {
	w       *bufio.Writer
	devices map[string]int
	qps     map[track]*Flow
	begun   bool
}

// track is where the viewer shows the events of a queue pair.
type track struct {
	device int
	qpn    rocev2.QPN
}

// NewWriter returns a writer to w. Close completes what it writes.
func NewWriter(w io.Writer) *Writer {
	return &Writer{w: bufio.NewWriterSize(w, 1<<16), devices: map[string]int{}, qps: map[track]*Flow{}}
}

// Write writes an event of a queue pair of a device, such as "192.0.2.1". Of
// one queue pair they come in their order. An error shows in Flush, or in
// Close.
func (t *Writer) Write(at time.Duration, device string, e *Event) {
	n, known := t.devices[device]
	if !known {
		n = len(t.devices) + 1
		t.devices[device] = n
		t.record(`"ph":"M","pid":%d,"name":"process_name","args":{"name":%q}`, n, device)
	}
	tr := track{n, e.QPN}
	drawn := t.qps[tr]
	if drawn == nil {
		drawn = new(Flow)
		t.qps[tr] = drawn
		t.record(`"ph":"M","pid":%d,"tid":%d,"name":"thread_name","args":{"name":"QP %d"}`, n, e.QPN, e.QPN)
	}
	t.event(at, tr, e)
	if hasFlight[e.Kind] && e.InFlight != drawn.InFlight || e.Window != drawn.Window {
		if hasFlight[e.Kind] {
			drawn.InFlight = e.InFlight
		}
		drawn.Window = e.Window
		t.curve(at, tr, "window", `"in flight":%d,"window":%d`, drawn.InFlight, drawn.Window)
	}
	if e.Rate != drawn.Rate {
		drawn.Rate = e.Rate
		t.curve(at, tr, "rate", `"bits per second":%d`, e.Rate)
	}
	if e.SRTT != drawn.SRTT {
		drawn.SRTT = e.SRTT
		t.curve(at, tr, "round trip", `"ns":%d`, e.SRTT.Nanoseconds())
	}
}

// hasFlight says which events say what is in flight.
var hasFlight = [numKinds]bool{Sent: true, Acked: true, Lost: true, Timer: true}

// event writes the event itself.
func (t *Writer) event(at time.Duration, tr track, e *Event) {
	name := e.Kind.String()
	if e.Why != None {
		name += ": " + e.Why.String()
	}
	args := ""
	switch e.Kind {
	case Sent:
		args = fmt.Sprintf(`"PSN":%d,"packets":%d,"bytes":%d`, e.PSN, e.Packets, e.Bytes)
	case Acked:
		args = fmt.Sprintf(`"PSN":%d,"bytes":%d`, e.PSN, e.Bytes)
	case Lost:
		args = fmt.Sprintf(`"PSN":%d,"packets":%d`, e.PSN, e.Packets)
	case Window:
		args = fmt.Sprintf(`"window":%d,"packets":%d,"rate":%d`, e.Window, e.PSNs, e.Rate)
	case Timer:
		args = fmt.Sprintf(`"PSN":%d`, e.PSN)
	case State:
		name = fmt.Sprintf("state: %v", e.After)
		args = fmt.Sprintf(`"before":%q`, e.Before.String())
	}
	t.record(`"ph":"i","s":"t","pid":%d,"tid":%d,"ts":%s,"name":%q,"args":{%s}`, tr.device, tr.qpn, micros(at), name, args)
}

// curve writes a point of a curve.
func (t *Writer) curve(at time.Duration, tr track, name, format string, values ...any) {
	t.record(`"ph":"C","pid":%d,"ts":%s,"name":"QP %d %s","args":{%s}`, tr.device, micros(at), tr.qpn, name, fmt.Sprintf(format, values...))
}

// micros returns a time in microseconds, which the format has.
func micros(at time.Duration) string {
	return fmt.Sprintf("%d.%03d", at.Microseconds(), at.Nanoseconds()%1000)
}

func (t *Writer) record(format string, args ...any) {
	if t.begun {
		t.w.WriteString(",\n{")
	} else {
		t.begun = true
		t.w.WriteString("[\n{")
	}
	fmt.Fprintf(t.w, format, args...)
	t.w.WriteByte('}')
}

// Flush writes what is still in memory.
func (t *Writer) Flush() error { return t.w.Flush() }

// Close writes the end, and what is still in memory. It does not close what it
// writes to.
func (t *Writer) Close() error {
	if !t.begun {
		t.w.WriteByte('[')
	}
	t.w.WriteString("\n]\n")
	return t.w.Flush()
}
