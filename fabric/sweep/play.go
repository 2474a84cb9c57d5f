package sweep

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/gosoftroce/rocev2/fabric/lab"
)

// Record is what a run has come to.
type Record struct {
	Plan     string            `json:"plan"` // Plan.Digest
	Run      int               `json:"run"`  // Run.Index
	Of       int               `json:"of"`   // how many runs the plan has
	Seed     uint64            `json:"seed"`
	Settings map[string]string `json:"settings,omitempty"`
	Error    string            `json:"error,omitempty"` // the run could not be played
	Result   *lab.Summary      `json:"result,omitempty"`
}

// Play plays runs, some (jobs) at a time, and hands over the record of each as
// it ends: in any order, but one at a time. It ends with the first error of
// done, or of the context; runs that are interrupted have no record. That a run
// has ended early, or flows of it have failed, is in its record.
func Play(ctx context.Context, p *Plan, runs []Run, jobs int, done func(*Record) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan Run)
	var wg sync.WaitGroup
	var mu sync.Mutex
	first := Record{Plan: p.Digest(), Of: p.Size()}
	for range min(max(jobs, 1), len(runs)) {
		wg.Go(func() {
			for r := range next {
				rec := p.play(ctx, first, r)
				mu.Lock()
				if ctx.Err() == nil {
					if err := done(rec); err != nil {
						cancel(err)
					}
				}
				mu.Unlock()
			}
		})
	}
	for _, r := range runs {
		select {
		case next <- r:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

// play plays one run. Its record begins as others do.
func (p *Plan) play(ctx context.Context, begin Record, r Run) *Record {
	rec := &begin
	rec.Run, rec.Seed = r.Index, r.Seed
	for i, v := range r.Values {
		if rec.Settings == nil {
			rec.Settings = map[string]string{}
		}
		rec.Settings[p.Settings[i].Key] = v
	}
	s, err := p.Scenario(r)
	if err == nil {
		s.Cores = 1 // the runs share the processors
		var res *lab.Result
		if res, err = lab.Run(ctx, s); res != nil {
			sum := res.Summary()
			rec.Result = &sum
			return rec
		}
	}
	rec.Error = err.Error()
	return rec
}

// Read reads records, those of one plan alone. A last line without its end is
// what a writer that was killed has left, and is left out.
func Read(r io.Reader, plan string) (records []*Record, err error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	for n := 1; len(b) > 0; n++ {
		line, rest, whole := bytes.Cut(b, []byte{'\n'})
		if b = rest; !whole {
			break
		}
		rec := new(Record)
		if err := json.Unmarshal(line, rec); err != nil {
			return nil, fmt.Errorf("line %d is no record of a run; without it, that run is played again: %w", n, err)
		}
		if plan == "" {
			plan = rec.Plan
		}
		switch {
		case rec.Plan != plan:
			return nil, fmt.Errorf("line %d is of the sweep %s, not of %s: the scenario, the seeds or the settings are others", n, rec.Plan, plan)
		case rec.Run < 0 || rec.Run >= rec.Of || rec.Of > MostRuns || len(records) > 0 && rec.Of != records[0].Of:
			return nil, fmt.Errorf("line %d is run %d of %d: that is none of this sweep", n, rec.Run, rec.Of)
		case rec.Result == nil && rec.Error == "":
			return nil, fmt.Errorf("line %d has neither a result nor an error", n)
		}
		records = append(records, rec)
	}
	return records, nil
}

// Merge puts records together, one for each run, and says which two of one run
// are not the same: then the programs that played them are not. Of a run that
// could not be played once, the record with a result counts.
func Merge(lists ...[]*Record) ([]*Record, error) {
	at := map[int]int{} // in all
	var all []*Record
	for _, list := range lists {
		for _, r := range list {
			i, known := at[r.Run]
			if !known {
				at[r.Run] = len(all)
				all = append(all, r)
				continue
			}
			other := all[i]
			switch {
			case other.Plan != r.Plan || other.Result != nil && r.Result != nil && other.Result.Digest != r.Result.Digest:
				return nil, fmt.Errorf("run %d is there twice, with other results: the records are of two sweeps, or of two versions of the program", r.Run)
			case other.Result == nil:
				all[i] = r
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.New("there are no records of runs")
	}
	return all, nil
}
