package diff

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/report"
)

var update = flag.Bool("update", false, "write the golden files")

// samples makes the rounds of a cell: the old value, and the new one by factors
// of it.
func samples(name, unit string, old float64, factors ...float64) []Round {
	var out []Round
	for i, f := range factors {
		slow := 1 - 0.1*float64(i%3) // the machine is slower at times
		r := Round{Name: name, Unit: unit, Old: cell.Sample{Value: old * slow}, New: cell.Sample{Value: old * slow * f}}
		if f == 0 {
			r.New = cell.Sample{Errors: map[string]uint64{"retransmissions": 3}}
		}
		out = append(out, r)
	}
	return out
}

func example() *Samples {
	ten := func(f, spread float64) (out []float64) {
		for i := range 10 {
			out = append(out, f+spread*float64(i%5-2)*float64(i%2*2-1))
		}
		return out
	}
	return &Samples{Builds: Builds{Old: "main, 0123456789ab", New: "working tree, 0123456789ab+changes"}, Rounds: slices.Concat(
		samples("ours/write/1MiB", cell.Gbps, 30, ten(1.2, 0.01)...),
		samples("ours/send/1MiB", cell.Gbps, 30, ten(0.9, 0.01)...),
		samples("ours/write/lat", cell.Micros, 5, ten(0.95, 0.001)...),
		samples("ours/read/lat", cell.Micros, 10, ten(1.05, 0.001)...),
		samples("ours/read/1MiB", cell.Gbps, 20, ten(1, 0.02)...),
		samples("ours/write/8B/qps=1", cell.MsgRate, 2.5, 1.1, 1.2, 1.3, 1.2, 1.1, 0.86, 1.2, 1.3, 1.1, 0.97),
		samples("ours/send/8B/qps=1", cell.MsgRate, 2, append(ten(1.5, 0)[:9], 0)...),
	)}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	want := map[string]Verdict{
		"ours/write/1MiB":     Better,
		"ours/send/1MiB":      Worse,
		"ours/write/lat":      Better, // a shorter time
		"ours/read/lat":       Worse,
		"ours/read/1MiB":      Same,
		"ours/write/8B/qps=1": LikelyBetter, // two of ten rounds are against
		"ours/send/8B/qps=1":  Errors,
	}
	for _, l := range example().Lines() {
		if l.Verdict != want[l.Name] {
			t.Errorf("%s: %s, want %s (%+v)", l.Name, l.Verdict, want[l.Name], l)
		}
		delete(want, l.Name)
	}
	if len(want) > 0 {
		t.Errorf("not in the report: %v", want)
	}
}

// One error in one run takes the cell's value, and the report says whose.
func TestErrorsTakeTheValue(t *testing.T) {
	t.Parallel()
	lines := example().Lines()
	l := lines[len(lines)-1]
	if !math.IsNaN(l.Old) || !math.IsNaN(l.New) || l.Why != "1 of 10 new runs had errors; the first: retransmissions 3" {
		t.Errorf("%+v", l)
	}
}

// Few rounds cannot show a difference in many cells, and the report says so.
func TestTooFewRounds(t *testing.T) {
	t.Parallel()
	s := &Samples{Rounds: samples("a", cell.Gbps, 30, 2, 2, 2, 2, 2)}
	if l := s.Lines()[0]; l.Verdict != Same {
		t.Errorf("five rounds showed %s, and P is %v", l.Verdict, l.P)
	}
	var b bytes.Buffer
	if err := s.Print(&b); err != nil || !strings.Contains(b.String(), "1 cells with a value take 6 rounds, and there are 5") {
		t.Errorf("%v\n%s", err, b.String())
	}
	for cells, want := range map[int]int{0: 6, 1: 6, 2: 7, 12: 9, 25: 10} {
		if n := needed(cells); n != want {
			t.Errorf("%d cells take %d rounds, want %d", cells, n, want)
		}
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	if err := example().Print(&got); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "diff.txt")
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the report differs from %s (write it with -update):\n%s", file, got.String())
	}
}

// fakes answer for the two builds: a list of cells, and rows.
type fakes struct {
	t     *testing.T
	cells map[string]string // by the name of the build
	calls []string
	value map[string]float64
	fail  string // a cell whose runs have errors
	busy  int    // how many runs are disturbed
}

func (f *fakes) exec(_ context.Context, b *Build, args ...string) ([]byte, error) {
	arg := func(name string) string {
		if i := slices.Index(args, name); i >= 0 {
			return args[i+1]
		}
		f.t.Errorf("the program is not told %s: %q", name, args)
		return ""
	}
	if slices.Contains(args, "-list") {
		return []byte(f.cells[b.Name]), nil
	}
	name := strings.NewReplacer("^", "", "$", "", `\`, "").Replace(arg("-match"))
	f.calls = append(f.calls, b.Name+" "+name)
	s := cell.Sample{Value: f.value[b.Name]}
	if f.busy > 0 {
		f.busy--
		s.Value, s.Others = 1, 60
	}
	if f.fail == name {
		s.Errors = map[string]uint64{"lost": 1}
	}
	row := report.JSONRow{Row: cell.Row{Cell: cell.Cell{Name: name, Unit: cell.Gbps}, Samples: []cell.Sample{s}}}
	out, err := json.Marshal(row)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(arg("-out"), "results.json"), out, 0o644); err != nil {
		return nil, err
	}
	if f.fail == name {
		return []byte("1 cells failed"), errors.New("exit status 1")
	}
	return nil, nil
}

func (f *fakes) options(dir string) Options {
	o := Options{Rounds: 2, Logf: f.t.Logf, exec: f.exec, Old: Build{Name: "old", Bin: filepath.Join(dir, "a")}, New: Build{Name: "new", Bin: filepath.Join(dir, "b")}}
	for _, b := range []string{o.Old.Bin, o.New.Bin} {
		if err := os.WriteFile(b, []byte(b), 0o644); err != nil {
			f.t.Fatal(err)
		}
	}
	return o
}

func newFakes(t *testing.T) *fakes {
	return &fakes{t: t, value: map[string]float64{"old": 10, "new": 15},
		cells: map[string]string{"old": "x/loss=0.1%  group what\ny g w\ngone g w\n", "new": "y g w\nx/loss=0.1% g w\n"}}
}

// Rounds take turns among the orders of functions, two by two, so that either
// build begins with each.
func TestLayouts(t *testing.T) {
	t.Parallel()
	b := Build{Name: "new", Bin: "rocebench"}
	if got := b.in(3).Bin; got != "rocebench" {
		t.Errorf("a build of one order measures %s", got)
	}
	b.Layouts = []string{"one", "two"}
	var got []string
	for n := range 6 {
		got = append(got, b.in(n).Bin)
	}
	if want := []string{"one", "one", "two", "two", "one", "one"}; !slices.Equal(got, want) {
		t.Errorf("rounds measure %q, want %q", got, want)
	}
	if b.Bin != "rocebench" {
		t.Errorf("the build has become %s", b.Bin)
	}
}

// The two take turns cell by cell, and which one begins changes with the round.
func TestTurns(t *testing.T) {
	t.Parallel()
	f := newFakes(t)
	s, err := Run(t.Context(), f.options(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"old x/loss=0.1%", "new x/loss=0.1%", "old y", "new y",
		"new x/loss=0.1%", "old x/loss=0.1%", "new y", "old y",
	}
	if !slices.Equal(f.calls, want) {
		t.Errorf("order %q,\nwant %q", f.calls, want)
	}
	if len(s.Rounds) != 4 || s.Rounds[3].Old.Value != 10 || s.Rounds[3].New.Value != 15 || s.Rounds[0].Unit != cell.Gbps {
		t.Errorf("rounds %+v", s.Rounds)
	}
}

// A cell with errors is a round too; the program's exit status is no reason to
// end.
func TestRunsWithErrorsAreKept(t *testing.T) {
	t.Parallel()
	f := newFakes(t)
	f.fail = "y"
	s, err := Run(t.Context(), f.options(t.TempDir()))
	if err != nil || s.Done("y") != 2 || s.Rounds[1].Old.Errors["lost"] != 1 {
		t.Errorf("%v, %+v", err, s)
	}
}

// A round that other programs disturbed is measured again, but not for ever.
func TestDisturbedRoundsAreRepeated(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		busy, calls int
		value       float64
	}{{0, 2, 10}, {1, 4, 10}, {3, 6, 10}, {1000, 8, 1}} {
		f := newFakes(t)
		f.busy = c.busy
		f.cells["old"] = "y g w"
		o := f.options(t.TempDir())
		o.Rounds, o.Again = 1, 3
		s, err := Run(t.Context(), o)
		if err != nil || len(f.calls) != c.calls || s.Rounds[0].Old.Value != c.value {
			t.Errorf("%d disturbed runs: %v, %d runs, %+v; want %d", c.busy, err, len(f.calls), s.Rounds, c.calls)
		}
	}
}

// A later run adds to the rounds of the same executables and to no others.
func TestRoundsAreAdded(t *testing.T) {
	t.Parallel()
	f, dir := newFakes(t), t.TempDir()
	o := f.options(dir)
	o.Rounds, o.File = 1, filepath.Join(dir, "diff.json")
	for range 2 {
		if _, err := Run(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	// The second run goes on with the turns.
	if want := "new x/loss=0.1%"; len(f.calls) != 8 || f.calls[4] != want {
		t.Errorf("calls %q, want the fifth to be %q", f.calls, want)
	}
	s, err := Load(o.File, Builds{OldSum: must(checksum(o.Old.Bin)), NewSum: must(checksum(o.New.Bin))})
	if err != nil || s.Done("y") != 2 || s.Builds.Old != "old" {
		t.Errorf("%v, %+v", err, s)
	}
	if err := os.WriteFile(o.New.Bin, []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "other executables") {
		t.Errorf("rounds of another executable were added: %v", err)
	}
}

func TestNothingToMeasure(t *testing.T) {
	t.Parallel()
	f := newFakes(t)
	f.cells["new"] = "z g w\n"
	if _, err := Run(t.Context(), f.options(t.TempDir())); err == nil || !strings.Contains(err.Error(), "no cell that both builds have") {
		t.Errorf("%v", err)
	}
	if _, err := Executable(t.TempDir()); err == nil {
		t.Error("a directory is taken for an executable")
	}
	if _, _, err := Commit(t.Context(), "no-such-commit", t.TempDir(), 1); err == nil || !strings.Contains(err.Error(), "no executable file and no commit") {
		t.Errorf("%v", err)
	}
}

func must(s string, err error) string {
	if err != nil {
		panic(err)
	}
	return s
}
