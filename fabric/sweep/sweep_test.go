package sweep

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/lab"
)

func tiny() *Plan {
	return &Plan{
		Name: "tiny", Seeds: []uint64{1, 2, 3, 4, 5, 6, 7},
		Text:     []byte("[network]\ntopology = \"leaf-spine\"\nleaves = 2\nspines = 2\nhosts_per_leaf = 2\n[[traffic]]\nkind = \"permutation\"\nacross = 2\nbytes = \"16KiB\"\n"),
		Settings: []Setting{{"network.routing", []string{"ecmp", "spray"}}, {"traffic.0.bytes", []string{"16KiB", "64KiB"}}},
	}
}

// played plays all of a plan.
func played(t *testing.T, p *Plan, runs []Run, jobs int) (list []*Record) {
	t.Helper()
	if err := Play(t.Context(), p, runs, jobs, func(r *Record) error { list = append(list, r); return nil }); err != nil {
		t.Fatal(err)
	}
	return list
}

// A sweep has all combinations with all seeds, and shards have them together,
// each once, with the same results in any number of jobs.
func TestShards(t *testing.T) {
	t.Parallel()
	p := tiny()
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	all := played(t, p, p.Runs(1, 1), 3)
	if len(all) != 2*2*7 || all[0].Of != 28 {
		t.Fatalf("%d runs", len(all))
	}
	var parts [][]*Record
	for shard := range 3 {
		parts = append(parts, played(t, p, p.Runs(shard+1, 3), 1))
	}
	merged, err := Merge(parts...)
	if err != nil {
		t.Fatal(err)
	}
	var a, b bytes.Buffer
	if err := errors.Join(Table(&a, all), Table(&b, merged)); err != nil {
		t.Fatal(err)
	}
	if a.String() != b.String() || !strings.Contains(a.String(), "network.routing=spray traffic.0.bytes=64KiB: 7 runs") ||
		!strings.Contains(a.String(), "7 pairs") {
		t.Errorf("at once\n%s\nin shards\n%s", &a, &b)
	}
	if _, err := Merge(all, parts[1]); err != nil {
		t.Errorf("a run that was played twice: %v", err)
	}
	other := *parts[0][0]
	result := *other.Result
	result.Digest, other.Result = "0", &result
	if _, err := Merge(all, []*Record{&other}); err == nil {
		t.Error("two results of one run are merged")
	}
	// What could be played somewhere counts.
	failed := *parts[0][0]
	failed.Result, failed.Error = nil, "no memory"
	if got, err := Merge([]*Record{&failed}, all); err != nil || len(got) != len(all) || got[0].Result == nil {
		t.Errorf("%d records, %+v, %v", len(got), got[0], err)
	}
}

// A plan of more runs than can be counted is refused, and takes no memory.
func TestTooManyRuns(t *testing.T) {
	t.Parallel()
	p := tiny()
	p.Settings = nil
	for i := range 9 {
		p.Settings = append(p.Settings, Setting{fmt.Sprint("x.", i), make([]string, 1<<17)})
	}
	if n := p.Size(); n <= MostRuns {
		t.Errorf("the plan has %d runs", n)
	}
	if err := p.Check(); err == nil || !strings.Contains(err.Error(), "or more than") {
		t.Error(err)
	}
	p.Settings = append(p.Settings, Setting{"none", nil})
	if n := p.Size(); n != 0 {
		t.Errorf("the plan has %d runs", n)
	}
}

// Records are read again, but for a last line that is not whole; those of
// another plan are an error.
func TestRead(t *testing.T) {
	t.Parallel()
	p := tiny()
	p.Settings = nil
	var text bytes.Buffer
	for _, r := range played(t, p, p.Runs(1, 1), 2) {
		json.NewEncoder(&text).Encode(r)
	}
	got, err := Read(bytes.NewReader(text.Bytes()[:text.Len()-5]), p.Digest())
	if err != nil || len(got) != 6 {
		t.Errorf("%d records, %v; want all but the last", len(got), err)
	}
	if _, err := Read(&text, tiny().Digest()); err == nil || !strings.Contains(err.Error(), "of the sweep") {
		t.Errorf("records of another sweep: %v", err)
	}
	for _, bad := range []string{"x\n", "{}\n", "{\"run\": -1}\n", "null\n",
		`{"run":-1,"of":3,"error":"x"}` + "\n", `{"run":3,"of":3,"error":"x"}` + "\n", `{"run":1,"of":-3,"error":"x"}` + "\n", `{"run":1,"of":99999999,"error":"x"}` + "\n",
		`{"run":1,"of":3,"error":"x"}` + "\n" + `{"run":1,"of":4,"error":"x"}` + "\n",
	} {
		if _, err := Read(strings.NewReader(bad), ""); err == nil {
			t.Errorf("%q is a record", bad)
		}
	}
}

// A plan in which anything is wrong is refused before any run.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Plan){
		"at least one seed":        func(p *Plan) { p.Seeds = nil },
		"seed is no setting":       func(p *Plan) { p.Settings[0].Key = "seed" },
		"is there twice":           func(p *Plan) { p.Settings[1].Key = p.Settings[0].Key },
		"network.routing=nonsense": func(p *Plan) { p.Settings[0].Values[1] = "nonsense" },
		"network.nothing":          func(p *Plan) { p.Settings[0].Key = "network.nothing" },
		"or more than":             func(p *Plan) { p.Seeds = make([]uint64, MostRuns) },
	} {
		p := tiny()
		change(p)
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	for _, bad := range []string{"", "=", "a=", "=b", "a=b,b", "a=\"b", "a=b,,c"} {
		if s, err := ParseSetting(bad); err == nil {
			t.Errorf("%q is %v", bad, s)
		}
	}
	if s, err := ParseSetting(`adapter.control="dcqcn,ai=5M",window`); err != nil || !slices.Equal(s.Values, []string{"dcqcn,ai=5M", "window"}) {
		t.Errorf("%q, %v", s.Values, err)
	}
	for _, bad := range []string{"", "x", "5-1", "1-", "-1", "1,1", "3,1-4", "0-99999999999", "1--2"} {
		if s, err := ParseSeeds(bad); err == nil {
			t.Errorf("%q is %v", bad, s)
		}
	}
	if s, err := ParseSeeds("7,1-3"); err != nil || !slices.Equal(s, []uint64{7, 1, 2, 3}) {
		t.Errorf("%v, %v", s, err)
	}
}

// Plans are equal if all is.
func TestDigest(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, change := range []func(*Plan){
		func(*Plan) {}, func(p *Plan) { p.Text = append(p.Text, '\n') }, func(p *Plan) { p.Seeds = p.Seeds[1:] },
		func(p *Plan) { p.Settings = p.Settings[:1] }, func(p *Plan) { p.Settings[0].Values[0] = "flowlet" }, func(p *Plan) { p.Settings[0].Key = "x" },
	} {
		p := tiny()
		change(p)
		if d := p.Digest(); seen[d] {
			t.Errorf("%s twice", d)
		} else {
			seen[d] = true
		}
	}
	p := tiny()
	if p.Name = "other"; p.Digest() != tiny().Digest() {
		t.Error("the name of a file makes another plan")
	}
}

// An interrupted sweep ends, without a record of what was not played to its
// end; so does one whose records cannot be kept.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	p := tiny()
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	err := Play(ctx, p, p.Runs(1, 1), 2, func(r *Record) error {
		if n++; n == 3 {
			cancel()
		}
		if r.Result == nil || r.Result.Early != "" {
			t.Errorf("%+v", r)
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || n != 3 {
		t.Errorf("%v after %d records", err, n)
	}
	full := errors.New("the disk is full")
	if err := Play(t.Context(), p, p.Runs(1, 1), 2, func(*Record) error { return full }); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
}

// The interval of the median leaves out as many numbers at each end as the
// binomial distribution allows. The values are those of tables of the sign test
// (critical values for 5 %, two sides).
func TestInterval(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{0: -1, 1: -1, 5: -1, 6: 0, 8: 0, 9: 1, 10: 1, 12: 2, 15: 3, 20: 5, 25: 7, 50: 17, 100: 39, 1000: 468, 2000: 955} {
		if got := outside(n); got != want {
			t.Errorf("of %d numbers %d are left out at each end, want %d", n, got, want)
		}
	}
	m := newMeasure("x", []float64{3, 1, 2, 9, 8, 7})
	if got := m.Interval(); got != "1 to 9" {
		t.Errorf("the interval is %s", got)
	}
	if got := median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("the median is %v", got)
	}
}

// Runs that are no use are named.
func TestTableNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	err := Table(&b, []*Record{
		{Run: 0, Seed: 1, Error: "no room"},
		{Run: 1, Seed: 2, Result: &lab.Summary{Early: "the limit", Completed: 1, LastUs: 3}},
	})
	for _, want := range []string{"seed 1: not played: no room", "seed 2: ended early: the limit", "1 runs", "last flow, us"} {
		if !strings.Contains(b.String(), want) || err != nil {
			t.Errorf("%v: there is no %q in\n%s", err, want, b.String())
		}
	}
}

// A run in which no flow has completed says nothing of how long flows take. As
// a 0 it would be the fastest of all.
func TestNoFlowCompleted(t *testing.T) {
	t.Parallel()
	completed := &lab.Summary{Completed: 1, LastUs: 3, Slowdown: lab.Spread{N: 1, Mean: 2}}
	hung := &lab.Summary{Unfinished: 1, Early: "the limit"}
	groups, _ := Compare([]*Record{
		{Run: 0, Seed: 1, Settings: map[string]string{"x": "a"}, Result: completed},
		{Run: 1, Seed: 1, Settings: map[string]string{"x": "b"}, Result: hung},
		{Run: 2, Seed: 2, Settings: map[string]string{"x": "a"}, Result: hung},
		{Run: 3, Seed: 2, Settings: map[string]string{"x": "b"}, Result: hung},
	})
	has := func(all []Measure, name string) []float64 {
		for _, m := range all {
			if m.Name == name {
				return m.Values
			}
		}
		return nil
	}
	if len(groups) != 2 {
		t.Fatalf("%d groups", len(groups))
	}
	for _, name := range []string{"last flow, us", "slowdown, mean"} {
		if a, b, ratios := has(groups[0].Measures, name), has(groups[1].Measures, name), has(groups[1].Ratios, name); len(a) != 1 || a[0] == 0 || b != nil || ratios != nil {
			t.Errorf("%s: %v, and %v where none has completed; ratios %v", name, a, b, ratios)
		}
	}
	if got := has(groups[1].Measures, "flows unfinished"); len(got) != 2 {
		t.Errorf("flows unfinished: %v", got)
	}
}

func ExamplePlay() {
	p := &Plan{
		Name: "pair", Text: []byte("[network]\ntopology = \"pair\"\n[[traffic]]\nkind = \"flow\"\nto = 1\nbytes = \"1MiB\"\n"), Seeds: []uint64{1},
		Settings: []Setting{{"network.rate", []string{"100Gb/s", "400Gb/s"}}},
	}
	if err := p.Check(); err != nil {
		fmt.Println(err)
		return
	}
	err := Play(context.Background(), p, p.Runs(1, 1), 1, func(r *Record) error {
		_, err := fmt.Printf("%s: %.0f us\n", r.Settings["network.rate"], r.Result.LastUs)
		return err
	})
	fmt.Println(err)
	// Output:
	// 100Gb/s: 88 us
	// 400Gb/s: 24 us
	// <nil>
}
