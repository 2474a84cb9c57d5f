package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gosoftroce/rocev2/fabric/lab"
	htmlreport "github.com/gosoftroce/rocev2/fabric/report"
	"github.com/gosoftroce/rocev2/fabric/sweep"
	"github.com/gosoftroce/rocev2/internal/regular"
)

// sweepFlags are what makes many runs of a scenario.
type sweepFlags struct {
	seeds string
	set   []string
	jobs  int
	shard string
	merge bool
}

// manyFlags are the flags of settings and of many runs.
func (f *simFlags) manyFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&f.json, "json", false, "the result as JSON, of many runs a line for each")
	fs.StringArrayVar(&f.many.set, "set", nil, "change a setting: `KEY=VALUE[,VALUE...]`, as network.routing=ecmp,spray or traffic.0.load=0.5; may be repeated")
	fs.StringVar(&f.many.seeds, "seeds", "", "play these `seeds`: numbers and ranges, as 1-100")
	fs.IntVar(&f.many.jobs, "jobs", 0, "`number` of runs at a time; 0: as many as processors")
	fs.StringVar(&f.many.shard, "shard", "", "play the part `I/N` of the runs, I from 1")
	fs.BoolVar(&f.many.merge, "merge", false, "put the results of shards together: the arguments are their directories")
}

// asked reports whether there is more than one run.
func (f *sweepFlags) asked(plan *sweep.Plan) bool {
	return f.seeds != "" || f.shard != "" || plan.Size() > 1
}

// plan returns what is to be played, of a text that was another one before it
// had the files in it that it names.
func (f *sweepFlags) plan(name string, before, text []byte) (*sweep.Plan, error) {
	s, err := lab.ParseChanged(before, text)
	if err != nil {
		return nil, usageError{inFile(name, err)}
	}
	p := &sweep.Plan{Name: strings.TrimSuffix(filepath.Base(name), ".toml"), Text: text, Before: before, Seeds: []uint64{s.Seed}}
	for _, s := range f.set {
		setting, err := sweep.ParseSetting(s)
		if err != nil {
			return nil, usagef("--set: %w", err)
		}
		p.Settings = append(p.Settings, setting)
	}
	if f.seeds != "" {
		if p.Seeds, err = sweep.ParseSeeds(f.seeds); err != nil {
			return nil, usagef("--seeds: %w", err)
		}
	}
	return p, nil
}

// manyRuns plays a plan, with the flags that many runs can have.
func (f *simFlags) manyRuns(cmd *cobra.Command, io streams, p *sweep.Plan) error {
	if cmd.Flags().Changed("seed") {
		if f.many.seeds != "" {
			return usagef("--seed and --seeds cannot both be set")
		}
		p.Seeds = []uint64{f.seed}
	}
	for _, name := range []string{"trace", "print", "cores", "pcap", "snap", "perfetto"} {
		if cmd.Flags().Changed(name) {
			return usagef("--%s is for one run, and there are %d: leave it out, or --seeds and the further values of --set", name, p.Size())
		}
	}
	if f.many.jobs < 0 {
		return usagef("--jobs is %d: it is at least 1, or 0 for as many as processors", f.many.jobs)
	}
	if err := p.Check(); err != nil {
		return usagef("%s: %w", p.Name, err)
	}
	return f.sweep(cmd.Context(), io, p)
}

// part reads --shard.
func (f *sweepFlags) part() (shard, shards int, err error) {
	if f.shard == "" {
		return 1, 1, nil
	}
	var rest string
	if n, _ := fmt.Sscanf(f.shard+" ", "%d/%d%s", &shard, &shards, &rest); n != 2 || shard < 1 || shard > shards || shards > sweep.MostRuns {
		return 0, 0, usagef("--shard is %q: it is I/N, the I-th of N parts, counted from 1", f.shard)
	}
	return shard, shards, nil
}

// runsFile is where the records of a sweep are, in the directory of --out.
const runsFile = "runs.jsonl"

// sweep plays the runs of a plan that have no record yet.
func (f *simFlags) sweep(ctx context.Context, io streams, p *sweep.Plan) error {
	shard, shards, err := f.many.part()
	if err != nil {
		return err
	}
	runs := p.Runs(shard, shards)
	have, keep, err := f.records(p)
	if err != nil {
		return err
	}
	for _, r := range have {
		err = errors.Join(err, f.line(io.out, r))
	}
	if err != nil {
		return errors.Join(err, keep.Close())
	}
	left := without(runs, have)
	done := len(runs) - len(left)
	jobs := f.many.jobs
	if jobs == 0 {
		jobs = runtime.GOMAXPROCS(0)
	}
	shown := newProgress(io, f.progress)
	played := sweep.Play(ctx, p, left, jobs, func(r *sweep.Record) error {
		if err := json.NewEncoder(keep).Encode(r); err != nil {
			return err
		}
		have = append(have, r)
		done++
		shown.clear()
		if err := f.line(io.out, r); err != nil {
			return err
		}
		shown.say(func(ran time.Duration) string {
			return fmt.Sprintf("%s: %d of %d runs, %v", p.Name, done, len(runs), ran)
		})
		return nil
	})
	shown.clear()
	played = errors.Join(played, keep.Close())
	if played != nil {
		goesOn := ""
		if f.out != "" {
			goesOn = "; with the same --out the same command goes on"
		}
		played = fmt.Errorf("%d of %d runs have been played%s: %w", done, len(runs), goesOn, played)
	}
	return errors.Join(played, f.report(io.out, have), f.writeReport(p.Name, p.Text, have))
}

// without returns the runs that have no record.
func without(runs []sweep.Run, have []*sweep.Record) (left []sweep.Run) {
	known := map[int]bool{}
	for _, r := range have {
		known[r.Run] = true
	}
	for _, r := range runs {
		if !known[r.Index] {
			left = append(left, r)
		}
	}
	return left
}

// line writes the record of a run, with --json.
func (f *simFlags) line(w io.Writer, r *sweep.Record) error {
	if !f.json {
		return nil
	}
	return json.NewEncoder(w).Encode(r)
}

// writeReport writes the report of many runs into the directory of --out, if
// there is one.
func (f *simFlags) writeReport(name string, text []byte, records []*sweep.Record) error {
	if f.out == "" {
		return nil
	}
	return writeFile(filepath.Join(f.out, reportFile), func(w io.Writer) error {
		return htmlreport.WriteSweep(w, name, text, records, []string{runsFile, scenarioFile})
	})
}

// report writes the table, unless the output is records, and says what has
// failed.
func (f *simFlags) report(w io.Writer, records []*sweep.Record) error {
	wrong := 0
	for _, r := range records {
		if r.Result == nil || r.Result.Early != "" || r.Result.Failed > 0 {
			wrong++
		}
	}
	var err error
	if !f.json && len(records) > 0 {
		err = sweep.Table(w, records)
	}
	if wrong > 0 && !f.failures {
		err = errors.Join(err, fmt.Errorf("%d of %d runs were not played, have ended early, or flows of them have failed; with --allow-failures that is no error", wrong, len(records)))
	}
	return err
}

// records returns what --out has of a sweep already, and where further records
// go. What a writer that was killed has left of a last line is cut off.
func (f *simFlags) records(p *sweep.Plan) ([]*sweep.Record, io.WriteCloser, error) {
	if f.out == "" {
		return nil, nopCloser{io.Discard}, nil
	}
	if err := os.MkdirAll(f.out, 0o777); err != nil {
		return nil, nil, fmt.Errorf("--out: %w", err)
	}
	name := filepath.Join(f.out, runsFile)
	if exists(f.out, summaryFile) {
		return nil, nil, fmt.Errorf("--out: %s has the result of one run (%s): name another directory", f.out, summaryFile)
	}
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return nil, nil, fmt.Errorf("--out: %w", err)
	}
	have, err := sweep.Read(file, p.Digest())
	if err == nil && len(have) > 0 { // two at once may have played the same run
		have, err = sweep.Merge(have)
	}
	if err == nil {
		err = endLine(file)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(f.out, "scenario.toml"), p.Text, 0o666)
	}
	if err != nil {
		file.Close()
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return have, file, nil
}

// endLine cuts off what stands after the last line.
func endLine(file *os.File) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	for whole, r := int64(0), bufio.NewReader(file); ; {
		line, err := r.ReadBytes('\n')
		if err == nil {
			whole += int64(len(line))
			continue
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
		if len(line) == 0 { // another process may be adding lines
			return nil
		}
		return file.Truncate(whole)
	}
}

// merge merges runs. It takes no flags but those of how and where they are
// shown.
func (f *simFlags) merge(cmd *cobra.Command, out io.Writer, names []string) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains([]string{"merge", "json", "allow-failures", "out"}, f.Name) {
			err = usagef("--%s is for runs, and --merge plays none", f.Name)
		}
	})
	if err != nil {
		return err
	}
	return f.mergeRuns(out, names)
}

// mergeRuns reads the records of directories, or files, and reports on them.
func (f *simFlags) mergeRuns(out io.Writer, names []string) error {
	var lists [][]*sweep.Record
	plan := ""
	for _, name := range names {
		if st, err := os.Stat(name); err == nil && st.IsDir() {
			name = filepath.Join(name, runsFile)
		}
		file, err := regular.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--merge: there is no %s: name what --out of the shards was", name)
		}
		if err != nil {
			return fmt.Errorf("--merge: %w", err)
		}
		list, err := sweep.Read(file, plan)
		file.Close()
		if err != nil {
			return fmt.Errorf("--merge: %s: %w", name, err)
		}
		if len(list) > 0 {
			plan = list[0].Plan
		}
		lists = append(lists, list)
	}
	all, err := sweep.Merge(lists...)
	if err != nil {
		return fmt.Errorf("--merge: %w", err)
	}
	for _, r := range all {
		if err := f.line(out, r); err != nil {
			return err
		}
	}
	err = errors.Join(f.report(out, all), f.mergedReport(names[0], all))
	if of := all[0].Of; len(all) < of {
		err = errors.Join(err, fmt.Errorf("--merge: of %d runs there are %d: a shard is missing, or has not played all", of, len(all)))
	}
	return err
}

// mergedReport writes the report of runs that were put together into the
// directory of --out, if there is one. The scenario is that beside the first of
// the results.
func (f *simFlags) mergedReport(first string, records []*sweep.Record) error {
	if f.out == "" {
		return nil
	}
	if st, err := os.Stat(first); err != nil || !st.IsDir() {
		first = filepath.Dir(first)
	}
	text, err := regular.Read(filepath.Join(first, scenarioFile), maxText)
	if err != nil {
		return fmt.Errorf("--merge: the report shows the scenario: %w", err)
	}
	s, err := lab.Parse(text)
	if err != nil {
		return fmt.Errorf("--merge: %s: %w", filepath.Join(first, scenarioFile), err)
	}
	if s.Name == "" {
		s.Name = filepath.Base(first)
	}
	if err := os.MkdirAll(f.out, 0o777); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return writeFile(filepath.Join(f.out, reportFile), func(w io.Writer) error {
		return htmlreport.WriteSweep(w, s.Name, text, records, nil)
	})
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
