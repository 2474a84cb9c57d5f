// Command simbench plays the same traffic in this project's simulator, in htsim
// and in the ns-3 of the HPCC paper, in turn, and prints tables in Markdown:
// processor time, memory, and what the flows came to.
//
//	simbench                          all, beside both, fetched and built
//	simbench -hpcc none               without ns-3, whose build needs Python 2
//	simbench -htsim DIR               htsim from a clone of its repository
//	simbench -match permutation       only workloads whose names match
//	simbench -json FILE               all runs, as JSON, too
//	simbench -list                    the workloads
//
// Exit status: 0 when all was played, 1 when something failed, 2 when the
// command line was wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/machine"
	"github.com/gosoftroce/rocev2/bench/internal/sims"
)

// flags are what the command line says.
type flags struct {
	work, json   string
	tool, python string
	htsim, hpcc  sims.Source
	repeat       int
	limit        time.Duration
	list         bool
	match        *regexp.Regexp
}

// none leaves a simulator out.
const none = "none"

func main() {
	log.SetFlags(0)
	f := parse()
	if f.list {
		list()
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, f)
	stop()
	if err != nil {
		log.Print("simbench: ", err)
		os.Exit(1)
	}
}

func parse() *flags {
	f := &flags{htsim: sims.HTSim(), hpcc: sims.HPCC()}
	flag.StringVar(&f.work, "work", "", "`directory` for what is fetched and built (default: one of this user's cache)")
	flag.StringVar(&f.htsim.From, "htsim", f.htsim.From, "`address` or directory of the git repository of htsim; none: without it")
	flag.StringVar(&f.hpcc.From, "hpcc", f.hpcc.From, "`address` or directory of the git repository of HPCC's ns-3; none: without it")
	flag.StringVar(&f.python, "python2", "", "`program` that is a Python 2, for the build of ns-3 (default: python2.7 or python2)")
	flag.StringVar(&f.tool, "rocev2", "", "`file` of the product's tool (default: it is built from this tree)")
	flag.StringVar(&f.json, "json", "", "`file` for all runs, as JSON")
	flag.IntVar(&f.repeat, "repeat", 5, "`seeds` that each workload is played with")
	flag.DurationVar(&f.limit, "limit", 10*time.Minute, "the longest `time` of one run")
	flag.BoolVar(&f.list, "list", false, "only show the workloads")
	match := flag.String("match", "", "only workloads whose name matches the `expression`")
	flag.Parse()
	var err error
	f.match, err = regexp.Compile(*match)
	switch {
	case err != nil:
	case flag.NArg() > 0:
		err = fmt.Errorf("there are no arguments but flags, and %q is one", flag.Arg(0))
	case f.repeat < 1 || f.repeat > 999:
		err = fmt.Errorf("-repeat is %d: it is 1 to 999", f.repeat)
	case f.limit <= 0:
		err = fmt.Errorf("-limit is %v: it is above 0", f.limit)
	}
	if err != nil {
		log.Print("simbench: ", err)
		flag.Usage()
		os.Exit(2)
	}
	return f
}

func list() {
	for _, w := range sims.Workloads() {
		fmt.Printf("%-20s %s\n", w.Name, w.What)
	}
	for _, l := range sims.Loads() {
		fmt.Printf("%-20s %s\n", l.Name, l.What)
	}
}

func run(ctx context.Context, f *flags) error {
	b := &sims.Bench{Ours: f.tool, Repeat: f.repeat, Limit: f.limit, Match: f.match, Logf: log.Printf}
	r := &sims.Report{Processor: machine.Here(), Repeat: f.repeat, Versions: map[string]string{"Go": runtime.Version()}}
	if err := prepare(ctx, f, b, r); err != nil {
		return err
	}
	r.Rows = b.Play(ctx)
	if len(r.Rows) == 0 {
		return errors.New("nothing was played: -list shows the workloads; those of a simulator that is left out are not played")
	}
	fmt.Print(r.Markdown())
	if f.json != "" {
		if err := write(f.json, r); err != nil {
			return err
		}
	}
	var failed []string
	for _, row := range r.Rows {
		if row.Failed != "" {
			failed = append(failed, row.Workload+" of "+row.Player)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d rows failed: %s", len(failed), strings.Join(failed, ", "))
	}
	return nil
}

func write(file string, r *sims.Report) error {
	w, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(r.JSON(w), w.Close())
}

// prepare fetches and builds what is to be played.
func prepare(ctx context.Context, f *flags, b *sims.Bench, r *sims.Report) (err error) {
	if b.Work, err = workDir(f.work); err != nil {
		return err
	}
	if b.Ours == "" {
		b.Ours, err = sims.Ours(ctx, b.Work)
	} else {
		b.Ours, err = filepath.Abs(b.Ours)
	}
	if err != nil {
		return err
	}
	wanted := f.wanted()
	if wanted[0] {
		if b.HTSim, err = build(ctx, f.htsim, b.Work, sims.BuildHTSim); err != nil {
			return err
		}
		r.Versions["htsim"] = f.htsim.Commit[:12]
	}
	if wanted[1] {
		python, err := sims.Python(ctx, f.python)
		if err != nil {
			return err
		}
		b.HPCC, err = build(ctx, f.hpcc, b.Work, func(ctx context.Context, tree string) (string, error) {
			return sims.BuildHPCC(ctx, tree, python)
		})
		if err != nil {
			return err
		}
		r.Versions["ns-3 of HPCC"] = f.hpcc.Commit[:12]
	}
	for _, s := range []sims.Source{f.htsim, f.hpcc} {
		if s.From == none {
			r.LeftOut = append(r.LeftOut, s.Name)
		}
	}
	if out, err := exec.CommandContext(ctx, "g++", "-dumpfullversion").Output(); err == nil {
		r.Versions["g++"] = strings.TrimSpace(string(out))
	}
	return nil
}

// wanted says whether htsim and ns-3 have anything to play.
func (f *flags) wanted() (w [2]bool) {
	for _, l := range sims.Workloads() {
		w[0] = w[0] || f.htsim.From != none && f.match.MatchString(l.Name)
	}
	for _, l := range sims.Loads() {
		w[1] = w[1] || f.hpcc.From != none && f.match.MatchString(l.Name)
	}
	return w
}

func build(ctx context.Context, s sims.Source, work string, build func(context.Context, string) (string, error)) (string, error) {
	log.Printf("%s: fetching and building commit %s, if it is not there", s.Name, s.Commit[:12])
	tree, err := s.Fetch(ctx, work)
	if err != nil {
		return "", err
	}
	return build(ctx, tree)
}

// workDir returns the directory for what is fetched and built, and makes it.
func workDir(named string) (string, error) {
	if named == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("say -work DIRECTORY: %w", err)
		}
		named = filepath.Join(cache, "rocev2-simbench")
	}
	dir, err := filepath.Abs(named)
	if err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o755)
}
