package sims

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// Bench plays workloads.
type Bench struct {
	Work   string // directory for the files of runs
	Ours   string // the product's tool
	HTSim  string // folder with the programs; "": left out
	HPCC   string // folder of the built ns-3; "": left out
	Repeat int    // seeds, from 1 on
	Limit  time.Duration
	Match  *regexp.Regexp // of names of workloads
	Logf   func(string, ...any)
}

// Row is what one player has come to with one workload.
type Row struct {
	Workload string `json:"workload"`
	What     string `json:"what"`
	Player   string `json:"player"`
	Runs     []Run  `json:"runs"`
	Crashes  int    `json:"crashes,omitempty"` // runs that were tried again
	Failed   string `json:"failed,omitempty"`
}

// attempts is how often a run is tried of a program that crashes.
const attempts = 5

// Play plays all. The players of a workload take turns, seed by seed. After an
// interrupt it returns what there is.
func (b *Bench) Play(ctx context.Context) (rows []*Row) {
	for _, w := range Workloads() {
		if b.HTSim == "" || !b.Match.MatchString(w.Name) {
			continue
		}
		var group []*Row
		for _, p := range w.players {
			group = append(group, &Row{Workload: w.Name, What: w.What, Player: p.name})
		}
		for seed := uint64(1); seed <= uint64(b.Repeat); seed++ {
			for i, p := range w.players {
				b.add(ctx, group[i], seed, func(seed uint64) (Run, error) { return b.playTree(ctx, &w, p.kind, seed) })
			}
		}
		rows = append(rows, group...)
	}
	for _, l := range Loads() {
		if b.HPCC == "" || !b.Match.MatchString(l.Name) {
			continue
		}
		group := []*Row{{Workload: l.Name, What: l.What, Player: "ours"}, {Workload: l.Name, What: l.What, Player: "ns-3"}}
		for seed := uint64(1); seed <= uint64(b.Repeat); seed++ {
			for i, ns3 := range []bool{false, true} {
				b.add(ctx, group[i], seed, func(seed uint64) (Run, error) { return b.playLoad(ctx, &l, ns3, seed) })
			}
		}
		rows = append(rows, group...)
	}
	return rows
}

// add adds a run to a row. One of a program that crashes is tried again with
// another seed. A row that has failed stays as it is.
func (b *Bench) add(ctx context.Context, row *Row, seed uint64, play func(uint64) (Run, error)) {
	if row.Failed != "" {
		return
	}
	var err error
	for try := range uint64(attempts) {
		if err = context.Cause(ctx); err != nil {
			break
		}
		var r Run
		if r, err = play(seed + 1000*try); err == nil {
			r.Seed = seed + 1000*try
			row.Runs = append(row.Runs, r)
			b.Logf("%s, %s, seed %d: %.2f s, the last flow at %.1f us", row.Workload, row.Player, r.Seed, r.CPU, r.Last)
			return
		}
		if !errors.As(err, new(crash)) {
			break
		}
		row.Crashes++
	}
	row.Failed = err.Error()
	b.Logf("%s, %s: %v", row.Workload, row.Player, err)
}

// files makes the directory of a run, with what is in it.
func (b *Bench) files(name string, seed uint64, files map[string]string) (string, error) {
	dir := filepath.Join(b.Work, "runs", fmt.Sprintf("%s-%d", name, seed))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// playTree plays a workload on a fat tree.
func (b *Bench) playTree(ctx context.Context, w *Workload, k kind, seed uint64) (Run, error) {
	flows, err := w.flows(source(seed), w.Hosts())
	if err != nil {
		return Run{}, err
	}
	dir, err := b.files(w.Name, seed, map[string]string{topologyFile: w.topology(), matrixFile: matrix(w.Hosts(), flows), scenarioFile: w.scenario(k)})
	if err != nil {
		return Run{}, err
	}
	defer os.RemoveAll(dir)
	var r Run
	switch k {
	case ours, oursSpray:
		var all []done
		if r, all, err = playOurs(ctx, b.Limit, b.Ours, dir, seed, len(flows)); err == nil {
			r.Mean = meanEnd(all)
		}
	default:
		r, err = w.playHTSim(ctx, b.Limit, b.HTSim, dir, k, seed, len(flows))
	}
	r.DataHops = w.dataHops(flows)
	if k == htsimRoCE {
		r.Hops = 2 * r.DataHops // it acknowledges each packet, by a way of the same length
	}
	return r, err
}

// playLoad plays a load on the network of the HPCC paper.
func (b *Bench) playLoad(ctx context.Context, l *Load, ns3 bool, seed uint64) (Run, error) {
	network, err := os.ReadFile(filepath.Join(b.HPCC, filepath.FromSlash(hpccTopology)))
	if err != nil {
		return Run{}, err
	}
	a, err := newAlone(string(network))
	if err != nil {
		return Run{}, err
	}
	flows, err := l.flows(seed)
	if err != nil {
		return Run{}, err
	}
	dir, err := b.files(l.Name, seed, map[string]string{topologyFile: string(network), flowsFile: list(flows), scenarioFile: l.scenario()})
	if err != nil {
		return Run{}, err
	}
	defer os.RemoveAll(dir)
	if ns3 {
		return l.playHPCC(ctx, b.Limit, b.HPCC, dir, flows, a)
	}
	r, all, err := playOurs(ctx, b.Limit, b.Ours, dir, seed, len(flows))
	if err != nil {
		return r, err
	}
	return r, r.slowdowns(all, a)
}
