package sims

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric/lab"
	"github.com/gosoftroce/rocev2/fabric/traffic"
)

// The files of all workloads are ones that the product's simulator takes: the
// network, the flows and the settings.
func TestScenarios(t *testing.T) {
	t.Parallel()
	for _, w := range Workloads() {
		if w.ports > 16 {
			continue // of the same form, and large
		}
		for _, k := range []kind{ours, oursSpray} {
			s, _ := w.parsed(t, k)
			if err := lab.Check(s); err != nil {
				t.Errorf("%s: %v", w.Name, err)
			}
		}
	}
	var star strings.Builder
	fmt.Fprintf(&star, "%d 1 %d\n%d\n", hpccHosts+1, hpccHosts, hpccHosts)
	for i := range hpccHosts {
		fmt.Fprintf(&star, "%d %d 100Gbps 1000ns 0\n", i, hpccHosts)
	}
	for _, l := range Loads() {
		flows, err := l.flows(1)
		if err != nil || len(flows) < 100 {
			t.Fatalf("%s has %d flows, %v", l.Name, len(flows), err)
		}
		if err := lab.Check(parsed(t, l.scenario(), star.String(), list(flows))); err != nil {
			t.Errorf("%s: %v", l.Name, err)
		}
	}
}

// parsed reads a scenario with the texts of the files that it names.
func parsed(t *testing.T, scenario, network, flows string) lab.Scenario {
	t.Helper()
	s, err := lab.Parse([]byte(scenario))
	if err != nil {
		t.Fatalf("%v in\n%s", err, scenario)
	}
	s.Network.File, s.Network.Text = "", network
	s.Traffic[0].File, s.Traffic[0].List = "", flows
	return s
}

func (w *Workload) parsed(t *testing.T, k kind) (lab.Scenario, []traffic.Flow) {
	t.Helper()
	flows, err := w.flows(source(1), w.Hosts())
	if err != nil {
		t.Fatal(err)
	}
	return parsed(t, w.scenario(k), w.topology(), matrix(w.Hosts(), flows)), flows
}

// What hops of data the traffic has is what the switches count, but for
// acknowledgements: one for 16 packets.
func TestDataHops(t *testing.T) {
	t.Parallel()
	for i, w := range Workloads() {
		if w.Name != "flow" && w.Name != "permutation-128" && w.Name != "incast-16" {
			continue
		}
		s, flows := Workloads()[i].parsed(t, ours)
		r, err := lab.Run(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if data, all := w.dataHops(flows), int64(r.Totals.Hops); all <= data || all > data*17/16 {
			t.Errorf("%s: %d hops, of which %d of data", w.Name, all, data)
		}
	}
}

// A program that crashes is tried again with other seeds, five times at most;
// what fails in another way is not.
func TestCrashes(t *testing.T) {
	t.Parallel()
	b := &Bench{Logf: t.Logf}
	var seeds []uint64
	row := &Row{}
	b.add(t.Context(), row, 3, func(seed uint64) (Run, error) {
		if seeds = append(seeds, seed); len(seeds) < 3 {
			return Run{}, crash{errors.New("assertion")}
		}
		return Run{CPU: 1}, nil
	})
	if row.Crashes != 2 || row.Failed != "" || len(row.Runs) != 1 || row.Runs[0].Seed != 2003 {
		t.Errorf("%+v after the seeds %v", row, seeds)
	}
	tries := 0
	b.add(t.Context(), row, 4, func(uint64) (Run, error) { tries++; return Run{}, crash{errors.New("assertion")} })
	if tries != attempts || row.Failed != "assertion" {
		t.Errorf("%d attempts: %+v", tries, row)
	}
	b.add(t.Context(), row, 5, func(uint64) (Run, error) { t.Error("a row that has failed is played"); return Run{}, nil })
	row = &Row{}
	b.add(t.Context(), row, 1, func(uint64) (Run, error) { return Run{}, errors.New("no flows") })
	if row.Crashes != 0 || row.Failed != "no flows" {
		t.Errorf("%+v", row)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	row = &Row{}
	b.add(ctx, row, 1, func(uint64) (Run, error) { t.Error("played after an interrupt"); return Run{}, nil })
	if row.Failed != context.Canceled.Error() {
		t.Errorf("%+v", row)
	}
}

// Programs that are not there are errors of their rows.
func TestProgramsMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := &Bench{Work: dir, Ours: filepath.Join(dir, "no-tool"), HTSim: filepath.Join(dir, "no-htsim"), Repeat: 1, Limit: time.Minute, Match: regexp.MustCompile("^flow$"), Logf: t.Logf}
	rows := b.Play(t.Context())
	if len(rows) != 2 || !strings.Contains(rows[0].Failed, "no-tool") || !strings.Contains(rows[1].Failed, "no-htsim/htsim_roce: no such file") {
		t.Fatalf("%+v, %+v", rows[0], rows[1])
	}
	left, err := os.ReadDir(filepath.Join(dir, "runs"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}
