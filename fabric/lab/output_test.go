package lab

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/network"
)

// busy is a run with drops, marks, pauses, a failure, and flows that wait for
// timers.
func busy(cores int) Scenario {
	s := small()
	s.Cores = cores
	alpha := -8
	s.Network.Alpha, s.Network.Watchdog = &alpha, 30*us
	s.Network.Loss = .001
	s.Failures = []Failure{{Cable: 9, At: 100 * us, Until: 300 * us}}
	s.Traffic = append(s.Traffic, Traffic{Kind: "all-to-all", Bytes: 20_000, Op: "read"}, Traffic{Kind: "ring", Bytes: 50_000})
	s.Output.Record = true
	return s
}

// What is recorded changes nothing, adds up to the counters of the whole, and
// is the same on any number of cores.
func TestRecord(t *testing.T) {
	t.Parallel()
	plain := busy(1)
	plain.Output.Record = false
	want := play(t, plain)
	if len(want.Ports) > 0 || len(want.Pauses) > 0 || want.Flows[0].Counters != nil {
		t.Error("something was recorded that was not asked for")
	}
	first := play(t, busy(1))
	if first.Digest != want.Digest {
		t.Errorf("digest %x with a record, %x without", first.Digest, want.Digest)
	}
	var drops [network.NumDrops]uint64
	var marks, xoffs uint64
	for i := range first.Ports {
		p := &first.Ports[i]
		for why := range drops {
			drops[why] += p.Drops[why]
		}
		marks += p.Marks
		xoffs += p.XOFFs
	}
	if drops != first.Totals.Drops || marks != first.Totals.Marks || xoffs != first.Totals.XOFFs {
		t.Errorf("at ports %v dropped, %d marked, %d pauses; in all %v, %d, %d", drops, marks, xoffs, first.Totals.Drops, first.Totals.Marks, first.Totals.XOFFs)
	}
	if len(first.Pauses) == 0 || drops[network.CableLoss] == 0 || marks == 0 {
		t.Fatalf("%d pauses, drops %v, %d marks: this is no test", len(first.Pauses), drops, marks)
	}
	paused := map[portRef]Time{}
	for _, p := range first.Pauses {
		paused[portRef{p.Node, p.Port}] += p.Until - p.At
	}
	for i := range first.Ports {
		if p := &first.Ports[i]; Time(p.Paused) != paused[portRef{p.Node, p.Port}] {
			t.Errorf("%s was paused for %v; its pauses are %v", first.PortName(p.Node, p.Port), Time(p.Paused), paused[portRef{p.Node, p.Port}])
		}
	}
	for _, cores := range []int{2, 3} {
		other := play(t, busy(cores))
		for what, pair := range map[string][2]any{"ports": {first.Ports, other.Ports}, "pauses": {first.Pauses, other.Pauses}, "samples": {first.Samples, other.Samples},
			"cables": {first.Cables(), other.Cables()}, "left out": {first.LeftOut, other.LeftOut}} {
			if !reflect.DeepEqual(pair[0], pair[1]) {
				t.Errorf("other %s on %d cores", what, cores)
			}
		}
		for i := range first.Flows {
			if a, b := first.Flows[i], other.Flows[i]; a.End != b.End || !reflect.DeepEqual(a.Counters, b.Counters) {
				t.Fatalf("flow %d on %d cores: %v, %+v; on one %v, %+v", i, cores, b.End, b.Counters, a.End, a.Counters)
			}
		}
	}
}

// The counters of flows are those of all queue pairs, where each has its own.
func TestFlowCounters(t *testing.T) {
	t.Parallel()
	s := busy(2)
	s.Traffic = s.Traffic[:3]
	r := play(t, s)
	var sum Counters
	for i, f := range r.Flows {
		if f.Counters == nil {
			t.Fatalf("flow %d has no counters", i)
		}
		sum.Retransmits += f.Counters.Retransmits
		sum.Probes += f.Counters.Probes
		sum.CNPs += f.Counters.CNPs
		sum.Marked += f.Counters.Marked
		sum.Reordered += f.Counters.Reordered
		sum.ReadReplays += f.Counters.ReadReplays
	}
	st := &r.Stats
	if want := (Counters{Retransmits: st.Retransmits, Probes: st.Probes, CNPs: st.CNPsReceived, Marked: st.ECNMarked, Reordered: st.Reordered, ReadReplays: st.ReadReplays}); sum != want || sum.Retransmits == 0 || sum.CNPs == 0 {
		t.Errorf("counted %+v, in all %+v", sum, want)
	}
	s.Adapter.Shared = true
	if f := play(t, s).Flows[0]; f.Counters != nil {
		t.Errorf("a flow that shares its queue pair has the counters %+v", f.Counters)
	}
}

// The window of a flow is that of all its queue pairs, and so is what is in
// flight.
func TestSampledQueuePairs(t *testing.T) {
	t.Parallel()
	most := func(pairs int) (inFlight, window int64) {
		s := Scenario{Every: us, Network: Network{Topology: "pair", Delay: 50 * us}, Adapter: Adapter{Control: "static", Window: 64 << 10},
			Traffic: []Traffic{{Kind: "flow", To: 1, Bytes: 8 << 20, Tenant: Tenant{QueuePairs: pairs}}}}
		s.Output.Record = true
		r := play(t, s)
		return slices.Max(r.Samples.Find("f0", "in_flight_bytes").Values), slices.Max(r.Samples.Find("f0", "window_bytes").Values)
	}
	one, window := most(1)
	inFlight, windows := most(4)
	if windows != 4*window || inFlight <= one || inFlight > windows {
		t.Errorf("one queue pair has at most %d of %d bytes in flight, and four %d of %d", one, window, inFlight, windows)
	}
}

// Samples of ports and flows agree with the result, and with each other.
func TestSampledPorts(t *testing.T) {
	t.Parallel()
	s := busy(1)
	s.Output.Ports, s.Output.Flows = "h0-1 s0 s2.1 s0.0", "3 0-1"
	r := play(t, s)
	ports := 0
	for i := range r.Ports {
		p := &r.Ports[i]
		name := r.PortName(p.Node, p.Port)
		x := r.Samples.Find(name, "sent_bytes")
		if x == nil {
			continue
		}
		ports++
		last := len(x.Values) - 1
		if got := x.Values[last]; got != int64(p.Bytes) {
			t.Errorf("%s has sent %d bytes at the last sample, %d at the end", name, got, p.Bytes)
		}
		if got := r.Samples.Find(name, "dropped_packets").Values[last]; got != int64(p.Dropped()) {
			t.Errorf("%s has dropped %d packets at the last sample, %d at the end", name, got, p.Dropped())
		}
	}
	if want := 2 + 6 + 1; ports != want {
		t.Errorf("%d ports were sampled, want %d", ports, want)
	}
	moved := false
	for _, f := range []string{"f0", "f1", "f3"} {
		x := r.Samples.Find(f, "window_bytes")
		if x == nil {
			t.Fatalf("%s was not sampled", f)
		}
		for _, v := range x.Values {
			moved = moved || v > 0
		}
	}
	if !moved || r.Samples.Find("f2", "window_bytes") != nil {
		t.Error("the windows are those of other flows")
	}
	text := strings.Join(r.LeftOut, "\n")
	if !strings.Contains(text, "of 24 ports have no samples") || !strings.Contains(text, "flows were not sampled") {
		t.Errorf("left out: %s", text)
	}
}

// Names of ports and flows that there are not are errors, which say what there
// is.
func TestOutputMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"[output]\nports = \"x3\"":      `line 2: output.ports: "x3" is no port`,
		"[output]\nports = \"h\"":       `"h" is no port`,
		"[output]\nports = \"h3-1\"":    `"h3-1" is no port`,
		"[output]\nports = \"h1.0\"":    `"h1.0" is no port`,
		"[output]\nports = \"s0.\"":     `"s0." is no port`,
		"[output]\nports = \"h0-5\"":    `"h0-5": there are 5 hosts`,
		"[output]\nports = \"s1\"":      `"s1": there are 1 switches`,
		"[output]\nports = \"s0.3-9\"":  `switch 0 has 5 ports`,
		"[output]\nflows = \"f3\"":      `output.flows: "f3" is no flow`,
		"[output]\nflows = \"0-99999\"": `more than 1024 flows`,
		"[output]\npots = \"h0\"":       `[output] has ports, flows (do you mean ports?)`,
		"[output]\nrecord = true":       `there is no setting "output.record"`,
		"[output]\ncapture = 1":         `there is no setting "output.capture"`,
	} {
		s, err := Parse([]byte("[network]\ntopology = \"star\"\nhosts = 5\n[[traffic]]\nkind = \"incast\"\nsenders = 4\nbytes = \"1KB\"\n" + text))
		if err == nil {
			err = Check(s)
		}
		want = strings.ReplaceAll(want, "line 2", "line 9")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; it should say %s", text, err, want)
		}
	}
}

// A capture of a port has every packet that leaves it or comes there, and none
// that was lost on the way.
func TestCapture(t *testing.T) {
	t.Parallel()
	s := busy(3)
	s.Output.Record = false
	want := play(t, s)
	s.Output.Capture.Ports = "all s0.1"
	var sent, came, pauses uint64
	last := Time(0)
	s.Output.Capture.Take = func(p *Packet) {
		if p.At < last {
			t.Errorf("a packet of %v after one of %v", p.At, last)
		}
		last = p.At
		switch {
		case p.Port == "s0.1":
		case p.Pause:
			pauses++
		case p.Sent:
			sent++
		default:
			came++
		}
		if !p.Pause && (len(p.Data) < 12 || len(p.Data) > p.Length) {
			t.Fatalf("%d bytes of %d", len(p.Data), p.Length)
		}
	}
	r := play(t, s)
	if r.Digest != want.Digest {
		t.Errorf("digest %x with a capture, %x without", r.Digest, want.Digest)
	}
	dead := r.Totals.Sent - sent // those that hosts gave while their cable was down
	if came != r.Totals.Delivered || dead > r.Totals.Drops[network.CableDown] || pauses == 0 {
		t.Errorf("captured %d sent, %d come, %d pauses; counted %d and %d", sent, came, pauses, r.Totals.Sent, r.Totals.Delivered)
	}
	s.Output.Capture.Ports = "h99"
	if err := Check(s); err == nil || !strings.Contains(err.Error(), "capture") {
		t.Errorf("a host that there is not: %v", err)
	}
}
