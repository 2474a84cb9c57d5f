package trace_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/trace"
)

// record is what a viewer reads.
type record struct {
	Ph, Name string
	Pid, Tid int
	Ts       float64
	Args     map[string]any
}

func read(t *testing.T, b []byte) (all []record) {
	t.Helper()
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return all
}

// What is written is JSON that has the events, named tracks, and curves of what
// has changed.
func TestWriter(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := trace.NewWriter(&b)
	flow := trace.Flow{InFlight: 448, Window: 131072, Rate: 1e9, SRTT: 20 * time.Microsecond}
	for i, e := range []trace.Event{
		{QPN: 17, Kind: trace.State, Before: ib.StateRTR, After: ib.StateRTS},
		{QPN: 17, Kind: trace.Sent, PSN: 7, Packets: 1, Bytes: 64, Flow: flow},
		{QPN: 17, Kind: trace.Lost, Why: trace.Selective, PSN: 7, Packets: 2, Flow: flow},
		{QPN: 18, Kind: trace.Window, Flow: trace.Flow{Window: 4096}},
	} {
		w.Write(time.Duration(1000*i+1), "a \"device\"", &e)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	all := read(t, b.Bytes())
	var names []string
	for _, r := range all {
		names = append(names, r.Ph+" "+r.Name)
	}
	want := []string{"M process_name", "M thread_name", "i state: RTS", "i sent", "C QP 17 window", "C QP 17 rate", "C QP 17 round trip",
		"i lost: selective", "M thread_name", "i window", "C QP 18 window"}
	if len(names) != len(want) {
		t.Fatalf("%q, want %q", names, want)
	}
	for i := range want {
		if names[i] != want[i] {
			t.Errorf("record %d is %q, want %q", i, names[i], want[i])
		}
	}
	if r := all[3]; r.Pid != 1 || r.Tid != 17 || r.Ts != 1.001 || r.Args["PSN"] != 7.0 || r.Args["bytes"] != 64.0 {
		t.Errorf("the packet is %+v", r)
	}
	if r := all[4]; r.Args["in flight"] != 448.0 || r.Args["window"] != 131072.0 {
		t.Errorf("the curve is %+v", r)
	}
	if all[0].Args["name"] != "a \"device\"" {
		t.Errorf("the device is %v", all[0].Args)
	}
}

func TestWriterOfNothing(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := trace.NewWriter(&b).Close(); err != nil || len(read(t, b.Bytes())) != 0 {
		t.Errorf("%v: %q", err, b.String())
	}
}

type full struct{}

var errFull = errors.New("full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestWriterTellsErrors(t *testing.T) {
	t.Parallel()
	w := trace.NewWriter(full{})
	for i := range 10000 {
		w.Write(time.Duration(i), "d", &trace.Event{QPN: 17})
	}
	if err := w.Close(); !errors.Is(err, errFull) {
		t.Errorf("error %v", err)
	}
}

// Each kind and each reason has a name of its own.
func TestNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for i := range 256 {
		for _, name := range []string{trace.Kind(i).String(), trace.Why(i).String()} {
			if name != "unknown" && seen[name] {
				t.Errorf("%q is there twice", name)
			}
			seen[name] = true
		}
	}
	if len(seen) < 20 {
		t.Errorf("only %d names", len(seen))
	}
}
