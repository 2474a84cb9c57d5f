package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/fabric/lab"
	"github.com/gosoftroce/rocev2/fabric/traffic/chakra"
	"github.com/gosoftroce/rocev2/internal/regular"
	"github.com/gosoftroce/rocev2/internal/tomllines"
)

// simFlags are what a user may change of a scenario, and where results go.
type simFlags struct {
	seed  uint64
	out   string
	trace string
	cores int
	files outputFlags
	print bool

	failures bool // flows may fail
	progress bool
	json     bool
	many     sweepFlags
}

func newSim(io streams) *cobra.Command {
	var f simFlags
	cmd := &cobra.Command{
		Use:   "sim NAME|FILE [flags] | sim --merge DIR...",
		Short: "Play a network of many adapters in virtual time",
		Long: `sim plays a scenario: a network of hosts and switches with classes, pauses (PFC)
and marks (ECN), adapters with the code that runs over sockets, and traffic. Time
is virtual, so a scenario and a seed have one result on any machine; the digest
over all events says whether two runs are the same.

A scenario is one of these names, or a TOML file:
  ` + strings.Join(lab.Names(), ", ") + `
A file that has one of the names is named by its path, as ./incast.

--print shows the file of a name, to begin one's own with. --out writes a report
as HTML, the result as text, JSON and tables (CSV), and plots as SVG; --pcap also
captures of ports, for Wireshark and rocev2 dump, and --perfetto a trace.
A run that is interrupted, or comes to its limit, writes what it has come to, and
which flows hang and where. The exit status is 1 then, and where flows have
failed, unless --allow-failures is set.
--cores divides the network into parts that run at the same time; the result is
the same. It pays for networks with many hosts that send.
--set changes a setting. With several values, or with --seeds, there are as many
runs, each of them the same wherever it is played: --jobs of them at a time.
A table has the medians over the seeds and compares the values of the settings,
seed by seed. With --out each run leaves a line in runs.jsonl, and the same
command goes on where it was interrupted. --shard plays a part of the runs, on
another machine, and --merge puts the parts together.
docs/fabric.md explains all of it, also networks and traffic of one's own.`,
		Example: `  rocev2 sim incast
  rocev2 sim incast --print > my.toml
  rocev2 sim my.toml --seed 7 --out result --cores 2
  rocev2 sim permutation --set network.routing=ecmp,spray --seeds 1-20
  rocev2 sim my.toml --seeds 1-1000 --shard 3/8 --out shard-3
  rocev2 sim --merge shard-*`,
		Args: f.arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.many.merge {
				return f.merge(cmd, io.out, args)
			}
			return f.run(cmd, io, args[0])
		},
	}
	fs := cmd.Flags()
	fs.Uint64Var(&f.seed, "seed", 0, "of all that is random, instead of the scenario's")
	fs.IntVar(&f.cores, "cores", 1, "`number` of parts of the network that run at the same time, instead of the scenario's")
	fs.StringVar(&f.out, "out", "", "write report.html, summary.json, tables as CSV, plots, result.txt and scenario.toml into this `directory`")
	f.files.register(fs)
	fs.StringVar(&f.trace, "trace", "", "write what each queue pair decides to `FILE`: packets sent and lost and why, windows, rates; ui.perfetto.dev shows it; the run takes one core")
	fs.BoolVar(&f.progress, "progress", false, "show on standard error how far a long run is, also where that is no terminal")
	fs.BoolVar(&f.failures, "allow-failures", false, "the exit status is 0 though flows have failed")
	fs.BoolVar(&f.print, "print", false, "print the scenario, and play nothing")
	f.manyFlags(fs)
	return cmd
}

// run plays a scenario, or prints it.
func (f *simFlags) run(cmd *cobra.Command, io streams, name string) error {
	before, file, err := scenarioText(name)
	if err != nil {
		return usageError{err}
	}
	text, err := withFiles(before, name)
	if err != nil {
		return usageError{err}
	}
	plan, err := f.many.plan(name, before, text)
	if err != nil {
		return err
	}
	if f.many.asked(plan) {
		return f.manyRuns(cmd, io, plan)
	}
	for _, s := range plan.Settings {
		if text, err = lab.Set(text, s.Key, s.Values[0]); err != nil {
			return usagef("--set: %w", err)
		}
	}
	if f.print {
		_, err := io.out.Write(text)
		return err
	}
	s, err := lab.ParseChanged(before, text)
	if err != nil {
		return usageError{inFile(name, err)}
	}
	if s.Name == "" {
		s.Name = strings.TrimSuffix(filepath.Base(name), ".toml")
	}
	if cmd.Flags().Changed("seed") {
		s.Seed = f.seed
		text = withSeed(text, f.seed)
	}
	if s.Cores, err = f.coresOf(cmd, s.Cores); err != nil {
		return err
	}
	wrong := func(err error) error { return err }
	if file {
		wrong = func(err error) error { return inFile(name, err) }
	}
	return f.simulate(cmd, io, s, text, wrong)
}

// inFile puts the name of a file before each mistake.
func inFile(name string, err error) error {
	all, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return fmt.Errorf("%s: %w", name, err)
	}
	var list []error
	for _, err := range all.Unwrap() {
		list = append(list, fmt.Errorf("%s: %w", name, err))
	}
	return errors.Join(list...)
}

// arguments checks them.
func (f *simFlags) arguments(cmd *cobra.Command, args []string) error {
	for _, name := range []string{"out", "seeds", "shard"} {
		if set := cmd.Flags().Lookup(name); set.Changed && set.Value.String() == "" {
			return usagef("--%s is empty: say what it is, or leave it out", name)
		}
	}
	if f.many.merge {
		if len(args) == 0 {
			return usagef("--merge takes the directories that --out of the shards has named")
		}
		return nil
	}
	if len(args) != 1 {
		return usagef("sim takes one scenario, a name or a file: %s", strings.Join(lab.Names(), ", "))
	}
	return nil
}

// coresOf returns how many cores there are: what --cores says, or else said,
// which is the scenario's number.
func (f *simFlags) coresOf(cmd *cobra.Command, said int) (int, error) {
	if !cmd.Flags().Changed("cores") {
		return said, nil
	}
	if f.cores < 1 || f.cores > lab.MostCores {
		return 0, usagef("--cores is %d: it is 1 to %d", f.cores, lab.MostCores)
	}
	return f.cores, nil
}

// scenarioText reads a scenario by its own name, or by that of its file. What
// the program brings comes first: a file or a directory of that name is named
// by ./NAME. file says which of the two it was.
func scenarioText(name string) (text []byte, file bool, err error) {
	if !strings.ContainsAny(name, `./\`) {
		text, known := lab.Text(name)
		if known == nil {
			return text, false, nil
		}
		if _, err := os.Stat(name); err != nil {
			return nil, false, known
		}
	}
	st, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, true, fmt.Errorf("there is no file %s", name)
	case err == nil && st.IsDir():
		return nil, true, fmt.Errorf("%s is a directory: name the scenario in it, such as %s", name, filepath.Join(name, "scenario.toml"))
	}
	text, err = regular.Read(name, maxText)
	return withoutMark(text), true, err
}

// withoutMark returns a text without the byte order mark that editors and
// spreadsheets of Windows put in front.
func withoutMark(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) }

// maxText is how many bytes a scenario, or a file that it names, has at most.
const maxText = 1 << 30

// withFiles returns the text of a scenario with that of the files that it names
// in it: a run, and what --out keeps, then needs no others.
func withFiles(text []byte, name string) ([]byte, error) {
	s, err := lab.Parse(text)
	if err != nil {
		return nil, inFile(name, err)
	}
	files, err := s.Files()
	if err != nil {
		return nil, inFile(name, err)
	}
	for setting, file := range files {
		list, err := fileText(filepath.Join(filepath.Dir(name), file))
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, setting, err)
		}
		if text, err = lab.Set(text, setting, list); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return text, nil
}

// fileText returns the text of a file, or with %d in its name that of traces of
// ranks 0, 1 and so on, up to the first that is not there.
func fileText(name string) (string, error) {
	if !strings.Contains(name, "%d") {
		b, err := regular.Read(name, maxText)
		return string(withoutMark(b)), err
	}
	var traces [][]byte
	for {
		b, err := regular.Read(strings.Replace(name, "%d", strconv.Itoa(len(traces)), 1), maxText)
		switch {
		case err == nil:
			traces = append(traces, b)
		case errors.Is(err, fs.ErrNotExist) && len(traces) > 0:
			return chakra.Pack(traces), nil
		default:
			return "", err
		}
	}
}

// withSeed returns the text of a scenario with another seed, so that what --out
// keeps is what was played.
func withSeed(text []byte, seed uint64) []byte {
	set := fmt.Sprintf("seed = %d", int64(seed)) // the integers of TOML have a sign
	if at := tomllines.Find(string(text))["seed"]; at > 0 {
		lines := strings.Split(string(text), "\n")
		lines[at-1] = set
		return []byte(strings.Join(lines, "\n"))
	}
	return []byte(set + "\n" + string(text))
}

// simulate plays a scenario, and writes what came out, also where the run has
// ended early. wrong says where the scenario is from, if it has failed.
func (f *simFlags) simulate(cmd *cobra.Command, io streams, s lab.Scenario, text []byte, wrong func(error) error) error {
	o, err := f.outputs(cmd, &s, text)
	if err != nil {
		return err
	}
	began := time.Now()
	shown := newProgress(io, f.progress)
	s.Progress = simProgress(shown, s.Name)
	r, failed := lab.Run(cmd.Context(), s)
	shown.clear()
	if failed != nil {
		failed = wrong(failed)
	}
	err = o.closeStreams()
	if r == nil {
		return errors.Join(failed, err, o.abandon())
	}
	took := time.Since(began)
	err = errors.Join(err, f.write(io.out, r))
	if n := r.Totals.Events; n > 0 {
		fmt.Fprintf(io.err, "played in %v, %v an event\n", took.Round(time.Millisecond), took/time.Duration(n))
	}
	err = errors.Join(err, o.write(r, io.err))
	if _, n, _ := r.Done(); failed == nil && n > 0 && !f.failures {
		failed = wrong(fmt.Errorf("%d flows have failed; with --allow-failures that is no error", n))
	}
	return errors.Join(failed, err)
}

// write writes a result.
func (f *simFlags) write(w io.Writer, r *lab.Result) error {
	if f.json {
		return writeSummary(w, r)
	}
	_, err := r.WriteTo(w)
	return err
}

// simProgress returns what shows how far a run is: virtual time, what is open,
// how fast it goes, and when it will end if it goes on like that.
func simProgress(p *progress, name string) func(lab.Progress) {
	most := 0 // flows that were open
	return func(l lab.Progress) {
		most = max(most, l.Open)
		p.say(func(ran time.Duration) string {
			text := fmt.Sprintf("%s: %v of virtual time", name, l.Now)
			done := 0.0 // what part
			if l.End > 0 {
				text = fmt.Sprintf("%s: %v of %v of virtual time", name, l.Now, l.End)
				done = float64(l.Now) / float64(l.End)
			} else if most > 0 {
				done = float64(most-l.Open) / float64(most)
			}
			text += fmt.Sprintf(", %d flows open, %.2f M events/s, %v", l.Open, float64(l.Events)/1e6/ran.Seconds(), ran)
			if done > 0 && done < 1 {
				text += fmt.Sprintf(", about %v to go", time.Duration(ran.Seconds()*(1-done)/done*1e9).Round(time.Second))
			}
			return text
		})
	}
}
