package record_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric/lab"
	"github.com/gosoftroce/rocev2/fabric/record"
	"github.com/gosoftroce/rocev2/qp/trace"
)

// traceEvent is an event of Chrome's format.
type traceEvent struct {
	Ph   string         `json:"ph"`
	Pid  *int           `json:"pid"`
	Tid  *int           `json:"tid"`
	Ts   *float64       `json:"ts"`
	Dur  *float64       `json:"dur"`
	S    string         `json:"s"`
	Cat  string         `json:"cat"`
	Name string         `json:"name"`
	Args map[string]any `json:"args"`
}

func perfettoOf(t *testing.T, text string) (*lab.Result, []byte) {
	t.Helper()
	var instants record.Instants
	r := play(t, text, func(s *lab.Scenario) { s.Output.Record, s.Trace = true, instants.Take })
	var b bytes.Buffer
	if err := record.WritePerfetto(&b, r, &instants); err != nil {
		t.Fatal(err)
	}
	return r, b.Bytes()
}

// A trace is events of the format, whose processes and tracks have names, and
// has what the result counts.
func TestPerfetto(t *testing.T) {
	t.Parallel()
	for _, text := range []string{lossy, pausing} {
		r, b := perfettoOf(t, text)
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		var whole struct {
			DisplayTimeUnit string       `json:"displayTimeUnit"`
			TraceEvents     []traceEvent `json:"traceEvents"`
		}
		if err := d.Decode(&whole); err != nil {
			t.Fatal(err)
		}
		processes, tracks := map[int]bool{}, map[[2]int]bool{}
		flows, pauses, again, curves := 0, 0, 0, map[string]bool{}
		for i, e := range whole.TraceEvents {
			switch {
			case e.Pid == nil || e.Name == "" || *e.Pid < 1:
				t.Fatalf("event %d: %+v", i, e)
			case e.Ph == "M" && e.Name == "process_name":
				processes[*e.Pid] = true
			case e.Ph == "M" && e.Name == "thread_name":
				tracks[[2]int{*e.Pid, *e.Tid}] = true
			case e.Ph == "M":
			case e.Ts == nil || *e.Ts < 0 || *e.Ts > float64(r.End)/1e6+1 || !processes[*e.Pid]:
				t.Fatalf("event %d: %+v, in a run of %v", i, e, r.End)
			case e.Ph == "C":
				curves[e.Name] = true
				for _, v := range e.Args {
					if n, ok := v.(float64); !ok || n < 0 {
						t.Fatalf("event %d: %+v", i, e)
					}
				}
			case e.Tid == nil || !tracks[[2]int{*e.Pid, *e.Tid}]:
				t.Fatalf("event %d on a track without a name: %+v", i, e)
			case e.Ph == "X" && e.Dur != nil && *e.Dur >= 0 && e.Cat == "flow":
				flows++
			case e.Ph == "X" && e.Dur != nil && *e.Dur >= 0 && e.Cat == "pause":
				pauses++
			case e.Ph == "i" && e.S == "t":
				if strings.HasPrefix(e.Name, "sent again") {
					again += int(e.Args["packets"].(float64))
				}
			default:
				t.Fatalf("event %d: %+v", i, e)
			}
		}
		if flows != len(r.Flows) || pauses != len(r.Pauses) || uint64(again) != r.Stats.Retransmits || len(curves) < 2 {
			t.Errorf("%d flows, %d pauses, %d packets sent again, %d curves; want %d, %d, %d", flows, pauses, again, len(curves), len(r.Flows), len(r.Pauses), r.Stats.Retransmits)
		}
		if _, other := perfettoOf(t, text); !bytes.Equal(b, other) {
			t.Error("another time other bytes")
		}
		if err := record.WritePerfetto(full{}, r, nil); !errors.Is(err, errFull) {
			t.Errorf("on a disk that is full: %v", err)
		}
	}
}

// A trace is bounded, and says what it has left out.
func TestPerfettoIsBounded(t *testing.T) {
	t.Parallel()
	r := play(t, pausing, func(*lab.Scenario) {})
	var instants record.Instants
	for i := range 1<<18 + 5 {
		instants.Take(time.Duration(i), 1, &trace.Event{Kind: trace.Lost, Why: trace.Gap, Packets: 1})
	}
	for range 1 << 16 {
		r.Flows = append(r.Flows, r.Flows[0])
	}
	var b bytes.Buffer
	if err := record.WritePerfetto(&b, r, &instants); err != nil {
		t.Fatal(err)
	}
	if want := `"left out: 5 flows, 0 pauses, 5 decisions"`; !strings.Contains(b.String(), want) {
		t.Errorf("the trace does not say %s", want)
	}
}
