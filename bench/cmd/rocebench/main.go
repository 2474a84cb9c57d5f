// Command rocebench measures this project's stack beside its peers on the
// loopback of one machine and writes a report.
//
//	rocebench -out DIR               the full grid
//	rocebench -reports report        into the folder of this processor's model
//	rocebench -quick -out DIR        a reduced grid
//	rocebench -kernel -out DIR       the full grid and kernel rxe in guests
//	rocebench -match 'lat' -out DIR  only cells whose name matches
//	rocebench -render DIR            the reports again from their results.json
//	rocebench -diff COMMIT           COMMIT and the working tree in turn
//
// Exit status: 0 when everything that was planned was measured, 1 when a cell
// failed or the run was interrupted, 2 when the command line was wrong.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/faces"
	"github.com/gosoftroce/rocev2/bench/internal/grid"
	"github.com/gosoftroce/rocev2/bench/internal/kernel"
	"github.com/gosoftroce/rocev2/bench/internal/ours"
	"github.com/gosoftroce/rocev2/bench/internal/pair"
	"github.com/gosoftroce/rocev2/bench/internal/peers"
	"github.com/gosoftroce/rocev2/bench/internal/quicpeer"
	"github.com/gosoftroce/rocev2/bench/internal/rawudp"
	"github.com/gosoftroce/rocev2/bench/internal/report"
)

// flags are what the command line says.
type flags struct {
	out, match, a, b, render string
	reports, readme          string
	diff, with               string
	quick, kernel, list      bool
	install                  bool
	repeat, again, rounds    int
	layouts                  int
	warm, measure            time.Duration
}

func main() {
	rawudp.Register()
	ours.Register()
	quicpeer.Register()
	faces.Register()
	if len(os.Args) > 1 && os.Args[1] == pair.WorkerArg {
		os.Exit(pair.Worker(os.Args[2:]))
	}
	log.SetFlags(0)
	f, match := parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, f, match)
	stop()
	if err != nil {
		log.Print("rocebench: ", err)
		os.Exit(1)
	}
}

func parse() (*flags, *regexp.Regexp) {
	f := &flags{}
	flag.StringVar(&f.out, "out", "", "`directory` for the report (required); with -diff, for the rounds, to which a later run adds")
	flag.StringVar(&f.reports, "reports", "", "in place of -out: `directory` with a folder for each processor model, and their index")
	flag.StringVar(&f.readme, "readme", "", "with -reports or -render: the `file` whose figures are written from the reports")
	flag.BoolVar(&f.quick, "quick", false, "the reduced grid")
	flag.BoolVar(&f.kernel, "kernel", false, "measure kernel rxe in emulated guests too (root; several minutes)")
	flag.BoolVar(&f.install, "install", true, "install peers' tools that are missing with apt-get, as root")
	flag.BoolVar(&f.list, "list", false, "only show the cells")
	flag.StringVar(&f.match, "match", "", "only cells whose name matches the `expression`")
	flag.StringVar(&f.a, "a", "127.0.0.1", "`address` of the first process")
	flag.StringVar(&f.b, "b", "127.0.0.2", "`address` of the second process")
	flag.StringVar(&f.render, "render", "", "write the report in the `directory`, or all below it, again from results.json")
	flag.StringVar(&f.diff, "diff", "", "measure in turn this `commit`, or executable of rocebench, and the one of -with")
	flag.StringVar(&f.with, "with", "", "with -diff: a `commit` or an executable (default: the working tree)")
	flag.IntVar(&f.layouts, "layouts", 4, "with -diff: `how many` orders of functions each commit is linked in, of which two rounds each measure one; 1: as it is packaged")
	flag.IntVar(&f.rounds, "rounds", 10, "with -diff: `how often` each of the two measures a cell")
	flag.IntVar(&f.repeat, "repeat", 0, "`runs` of each cell (default 5, quick 3)")
	flag.IntVar(&f.again, "again", 3, "how `often` a run is repeated that had errors while other programs used the processors")
	flag.DurationVar(&f.warm, "warm", 0, "`time` of a run before it counts (default 300ms, quick 100ms)")
	flag.DurationVar(&f.measure, "measure", 0, "`time` of a run that counts (default 1s, quick 400ms)")
	flag.Parse()
	match, err := regexp.Compile(f.match)
	if err != nil || flag.NArg() > 0 || !f.complete() {
		if err != nil {
			log.Print(err)
		}
		flag.Usage()
		os.Exit(2)
	}
	pick := func(full, quick time.Duration) time.Duration {
		if f.quick || f.diff != "" {
			return quick
		}
		return full
	}
	f.warm = cmp.Or(f.warm, pick(300*time.Millisecond, 100*time.Millisecond))
	f.measure = cmp.Or(f.measure, pick(time.Second, 400*time.Millisecond))
	f.repeat = cmp.Or(f.repeat, int(pick(5, 3)))
	return f, match
}

// complete reports whether the flags say what to do, and nothing else.
func (f *flags) complete() bool {
	if f.diff != "" {
		return f.render == "" && !f.list && !f.kernel && f.rounds > 0 && f.layouts > 0
	}
	if f.reports != "" && f.out != "" || f.readme != "" && f.reports == "" && f.render == "" {
		return false
	}
	return f.with == "" && (f.out != "" || f.reports != "" || f.render != "" || f.list)
}

func run(ctx context.Context, f *flags, match *regexp.Regexp) error {
	switch {
	case f.render != "":
		return render(f)
	case f.diff != "":
		return compare(ctx, f)
	}
	o := grid.Options{
		Quick: f.quick, A: f.a, B: f.b, Match: match.MatchString, Repeat: f.repeat, Again: f.again,
		Window: cell.Window{Warm: f.warm, Measure: f.measure}, Logf: log.Printf,
	}
	plan := grid.Plan(o)
	if f.list {
		for _, c := range plan {
			fmt.Printf("%-34s %-20s %s\n", c.Name, c.Group, c.What)
		}
		return nil
	}
	if len(plan) == 0 && !f.kernel {
		return fmt.Errorf("no name of a cell matches %q: -list shows those of this grid, those of the full one without -quick", f.match)
	}
	r := &report.Report{Env: report.Here(), Versions: map[string]string{}}
	r.Env.Grid, r.Env.Warm, r.Env.Measure = "full", f.warm, f.measure
	if f.quick {
		r.Env.Grid = "quick"
	}
	if f.reports != "" {
		f.out = filepath.Join(f.reports, r.Env.Folder())
	}
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return err
	}
	if f.install {
		if err := peers.Install(ctx, log.Printf); err != nil {
			log.Print(err)
		}
	}
	for _, t := range peers.Missing() {
		r.Notes = append(r.Notes, fmt.Sprintf("Left out: %s is not installed (Debian package %s).", t.Program, t.Package))
	}
	peerVersions(ctx, r.Versions)
	begin := time.Now()
	r.Rows = grid.Run(ctx, plan, o)
	if f.kernel && ctx.Err() == nil {
		rows, err := kernel.Measure(ctx, kernel.Options{Repeat: f.repeat, Logf: log.Printf, Match: match.MatchString})
		r.Rows = append(r.Rows, rows...)
		if err != nil {
			r.Notes = append(r.Notes, "Kernel guests: "+err.Error())
		}
	} else {
		r.Notes = append(r.Notes, "Kernel rxe was not measured in this run (`rocebench -kernel`).")
	}
	log.Printf("measured in %v", time.Since(begin).Round(time.Second))
	return errors.Join(finish(f, r), context.Cause(ctx))
}

func peerVersions(ctx context.Context, versions map[string]string) {
	versions[grid.QUIC] = moduleVersion("github.com/quic-go/quic-go")
	missing := map[string]bool{}
	for _, t := range peers.Missing() {
		missing[t.Program] = true
	}
	for name, program := range map[string]string{
		grid.IPerf3: "iperf3", grid.UCX: "ucx_perftest", grid.FabricTCP: "fi_pingpong", grid.FabricRxd: "fi_pingpong",
	} {
		if !missing[program] {
			versions[name] = peers.Version(ctx, program)
		}
	}
}

// finish writes all files and shows the verdicts. It returns an error if cells
// failed.
func finish(f *flags, r *report.Report) error {
	if len(r.Rows) == 0 {
		return fmt.Errorf("nothing was measured of what matches %q: no report is written", f.match)
	}
	if err := errors.Join(r.WriteResults(f.out), r.Write(f.out)); err != nil {
		return err
	}
	if f.reports != "" {
		if err := index(f.reports, f.readme); err != nil {
			return err
		}
	}
	for _, v := range r.Verdicts() {
		if v.Why == report.NotMeasured {
			continue
		}
		figure, met := v.Result()
		log.Printf("%-50s %-34s %-9s %s", v.What+" / "+v.Against, figure, met, "")
	}
	var failed []string
	for i := range r.Rows {
		if r.Rows[i].Failed != "" {
			failed = append(failed, r.Rows[i].Name)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d cells failed: %s", len(failed), strings.Join(failed, ", "))
	}
	return nil
}

// render writes the report of a directory again from its rows; a directory
// without rows has reports below it.
func render(f *flags) error {
	r, err := report.Read(f.render)
	if err == nil {
		return r.Write(f.render)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	folders, err := report.Folders(f.render)
	if err != nil {
		return err
	}
	if len(folders) == 0 {
		return fmt.Errorf("%s has neither rows nor folders with rows (%s)", f.render, report.ResultsFile)
	}
	for _, one := range folders {
		if err := one.Write(filepath.Join(f.render, one.Name)); err != nil {
			return err
		}
	}
	return index(f.render, f.readme)
}

// index writes the index of a directory of reports, and the figures in the
// README.
func index(dir, readme string) error {
	folders, err := report.Folders(dir)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, report.IndexFile), []byte(report.Index(folders)), 0o644); err != nil || readme == "" {
		return err
	}
	link, err := linkTo(dir, readme)
	if err != nil {
		return err
	}
	return report.UpdateReadme(readme, report.Readme(folders, link))
}

// linkTo returns the path of a directory as a file links to it.
func linkTo(dir, file string) (string, error) {
	var abs [2]string
	for i, name := range []string{filepath.Dir(file), dir} {
		var err error
		if abs[i], err = filepath.Abs(name); err != nil {
			return "", err
		}
	}
	link, err := filepath.Rel(abs[0], abs[1])
	return filepath.ToSlash(link), err
}
