package grid

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
)

func bad(n uint64) cell.Sample { return cell.Sample{Errors: map[string]uint64{"lost": n}} }

// fake makes a cell of which each run takes the next sample.
func fake(name string, order *[]string, samples ...cell.Sample) cell.Cell {
	return cell.Cell{Name: name, Group: "g", Unit: "x", Repeat: 3, Run: func(context.Context, cell.Window) cell.Sample {
		*order = append(*order, name)
		s := samples[0]
		samples = samples[1:]
		return s
	}}
}

func TestCellsOfAGroupTakeTurns(t *testing.T) {
	t.Parallel()
	var order []string
	v := func(v float64) cell.Sample { return cell.Sample{Value: v} }
	plan := []cell.Cell{fake("a", &order, v(1), v(2), v(3)), fake("b", &order, v(4), bad(7), v(6))}
	rows := Run(t.Context(), plan, Options{Logf: t.Logf, load: func() func() float64 { return func() float64 { return 0 } }})
	want := []string{"a", "b", "a", "b", "a", "b"}
	for i := range want {
		if i >= len(order) || order[i] != want[i] {
			t.Fatalf("order %v, want %v", order, want)
		}
	}
	if !rows[0].OK() || rows[0].Median != 2 {
		t.Errorf("row a: %+v", rows[0])
	}
	if rows[1].OK() || rows[1].Median != 0 || rows[1].Errors["lost"] != 7 {
		t.Errorf("a row with an error in one run has a value: %+v", rows[1])
	}
}

// A run with errors is repeated if other programs took the processors, which is
// counted, and not otherwise.
func TestOnlyDisturbedRunsAreRepeated(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		load      float64
		again     int
		runs      int
		ok        bool
		disturbed int
	}{
		{"quiet machine", 2, 3, 3, false, 0},
		{"busy machine", 60, 3, 4, true, 1},
		{"busy machine, strict", 60, 0, 3, false, 0},
	} {
		var order []string
		one := cell.Sample{Value: 1}
		row := Run(t.Context(), []cell.Cell{fake("a", &order, bad(1), one, one, one)}, Options{
			Logf: t.Logf, Again: c.again, load: func() func() float64 { return func() float64 { return c.load } },
		})[0]
		if len(order) != c.runs || row.OK() != c.ok || row.Disturbed != c.disturbed {
			t.Errorf("%s: %d runs, ok %v, disturbed %d; want %d, %v, %d", c.name, len(order), row.OK(), row.Disturbed, c.runs, c.ok, c.disturbed)
		}
	}
}

// What does not leave the process stays apart from what does.
func TestLoopbackStandsAlone(t *testing.T) {
	t.Parallel()
	for _, quick := range []bool{false, true} {
		n := 0
		for _, c := range Plan(Options{Quick: quick, Repeat: 1}) {
			if c.Group == LoopbackGroup {
				n++
			}
			if inside := strings.HasPrefix(c.Name, "loopback/"); inside != (c.Group == LoopbackGroup) {
				t.Errorf("%s is in group %s", c.Name, c.Group)
			}
		}
		if (n > 0) == quick {
			t.Errorf("quick %v: %d cells", quick, n)
		}
	}
}

func TestNamesAreUnique(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range Plan(Options{Repeat: 5}) {
		if seen[c.Name] {
			t.Errorf("two cells are named %s", c.Name)
		}
		seen[c.Name] = true
		if c.Repeat < 1 || c.Run == nil || c.Unit == "" || c.Stack == "" || c.What == "" || c.Group == "" {
			t.Errorf("incomplete: %+v", c)
		}
	}
}

// A cell that needs what this machine does not have is skipped, and says why.
func TestCellsThatNeedMoreAreSkipped(t *testing.T) {
	t.Parallel()
	var order []string
	c := fake("a", &order, cell.Sample{Value: 1})
	c.Needs = "a path needs root"
	rows := Run(t.Context(), []cell.Cell{c}, Options{Logf: t.Logf, load: func() func() float64 { return func() float64 { return 0 } }})
	if len(order) > 0 || rows[0].Skipped != "a path needs root" || rows[0].Failed != "" {
		t.Errorf("ran %v, row %+v", order, rows[0])
	}
}

// The reference of a group is measured before and after each other cell, and a
// reading serves the cells on either side of it.
func TestReferenceIsMeasuredAroundEachCell(t *testing.T) {
	t.Parallel()
	var order []string
	var raws []cell.Sample
	for i := range 9 {
		raws = append(raws, cell.Sample{Value: float64(10 + i)})
	}
	raws[4] = bad(1)
	v := func(v float64) cell.Sample { return cell.Sample{Value: v} }
	plan := []cell.Cell{
		fake("raw/4140/icrc", &order, raws...), fake("a", &order, v(1), v(2)), fake("b", &order, v(3), v(4)),
	}
	for i := range plan {
		plan[i].Group, plan[i].Repeat = "bulk", 2
	}
	rows := Run(t.Context(), plan, Options{Logf: t.Logf, load: func() func() float64 { return func() float64 { return 0 } }})
	const want = "[raw/4140/icrc a raw/4140/icrc b raw/4140/icrc raw/4140/icrc a raw/4140/icrc raw/4140/icrc b raw/4140/icrc]"
	if got := fmt.Sprint(order); got != want {
		t.Errorf("order\n%s, want\n%s", got, want)
	}
	for i, want := range [][2]float64{{10, 11}, {13, 0}} {
		if s := rows[1].Samples[i]; s.Before != want[0] || s.After != want[1] {
			t.Errorf("a, round %d: %v before, %v after, want %v", i, s.Before, s.After, want)
		}
	}
	for i, want := range [][2]float64{{11, 12}, {15, 16}} {
		if s := rows[2].Samples[i]; s.Before != want[0] || s.After != want[1] {
			t.Errorf("b, round %d: %v before, %v after, want %v", i, s.Before, s.After, want)
		}
	}
	if len(rows[0].Samples) != 2 {
		t.Errorf("the reference has %d samples of its own, want one for each round", len(rows[0].Samples))
	}
}

// A reference is a cell of its group, in either grid.
func TestReferencesAreCells(t *testing.T) {
	t.Parallel()
	for _, quick := range []bool{false, true} {
		names := map[string]string{}
		plan := Plan(Options{Quick: quick, Repeat: 1})
		for _, c := range plan {
			names[c.Name] = c.Group
		}
		for _, c := range plan {
			if ref := Reference(c.Group); ref != "" && names[ref] != c.Group {
				t.Errorf("quick %v: group %s has no cell %s", quick, c.Group, ref)
			}
		}
	}
}
