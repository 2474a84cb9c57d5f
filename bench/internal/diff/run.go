package diff

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/faces"
	"github.com/gosoftroce/rocev2/bench/internal/grid"
	"github.com/gosoftroce/rocev2/bench/internal/losses"
	"github.com/gosoftroce/rocev2/bench/internal/report"
)

// Build is one of the two things to compare.
type Build struct {
	Name string // for the report
	Bin  string // the measuring program
	Dir  string // where it runs: the tree that it builds the product's tools from

	// Layouts are the measuring program again, with its functions in other
	// orders, if there are any. Rounds take turns among them: where the
	// linker happens to put a function is worth several percent, in either
	// direction, and is no property of the code.
	Layouts []string
}

// in is the build as the nth round measures it. Two rounds that follow one
// another have the same layout, as one begins with either build.
func (b *Build) in(n int) *Build {
	one := *b
	if len(b.Layouts) > 0 {
		one.Bin = b.Layouts[n/2%len(b.Layouts)]
	}
	return &one
}

// sum identifies the executables.
func (b *Build) sum() (string, error) {
	sum, err := checksum(b.Bin)
	for _, file := range b.Layouts {
		more, wrong := checksum(file)
		sum, err = sum+" "+more, errors.Join(err, wrong)
	}
	return sum, err
}

// Options adjust a comparison.
type Options struct {
	Old, New      Build
	Match         string // of the names of cells
	Rounds        int    // to measure now
	Quick         bool   // the reduced grid
	Warm, Measure time.Duration
	Again         int
	File          string // of the samples; "" keeps none
	Logf          func(format string, args ...any)

	exec func(ctx context.Context, b *Build, args ...string) ([]byte, error) // of a test
}

// Run measures rounds and returns them with those that the file had. When ctx
// ends it returns what there is.
func Run(ctx context.Context, o Options) (*Samples, error) {
	if o.exec == nil {
		o.exec = execute
	}
	cells, err := o.cells(ctx)
	if err != nil {
		return nil, err
	}
	s := &Samples{Builds: Builds{Old: o.Old.Name, New: o.New.Name}}
	if o.File != "" {
		if s.Builds.OldSum, err = o.Old.sum(); err != nil {
			return nil, err
		}
		if s.Builds.NewSum, err = o.New.sum(); err != nil {
			return nil, err
		}
		if s, err = Load(o.File, s.Builds); err != nil {
			return nil, err
		}
	}
	for n := range o.Rounds {
		for _, name := range cells {
			r, err := o.round(ctx, name, s.Done(name))
			if ctx.Err() != nil {
				return s, context.Cause(ctx)
			}
			if err != nil {
				return s, err
			}
			s.Rounds = append(s.Rounds, r)
			o.Logf("%-36s %d/%d  old %10.4g  new %10.4g %s %s %s", name, n+1, o.Rounds, r.Old.Value, r.New.Value, r.Unit, r.Old.Why(), r.New.Why())
		}
		if o.File != "" {
			if err := s.Save(o.File); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

// cells are those that both builds have.
func (o *Options) cells(ctx context.Context) ([]string, error) {
	var names [2][]string
	for i, b := range []*Build{&o.Old, &o.New} {
		out, err := o.exec(ctx, b, o.flags("-list", "-match", o.Match)...)
		if err != nil {
			return nil, fmt.Errorf("%s: listing its cells: %w", b.Name, err)
		}
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); len(f) > 0 {
				names[i] = append(names[i], f[0])
			}
		}
	}
	var both, one []string
	for _, n := range slices.Concat(names[0], names[1]) {
		switch {
		case !slices.Contains(names[0], n) || !slices.Contains(names[1], n):
			one = append(one, n)
		case !slices.Contains(both, n):
			both = append(both, n)
		}
	}
	if len(one) > 0 {
		o.Logf("left out, as only one of the two has them: %s", strings.Join(one, ", "))
	}
	if len(both) == 0 {
		return nil, fmt.Errorf("no cell that both builds have matches %q: rocebench -list shows the cells", o.Match)
	}
	return both, nil
}

// flags are what any build of the program understands, since long ago.
func (o *Options) flags(more ...string) []string {
	if o.Quick {
		more = append(more, "-quick")
	}
	return more
}

// round measures a cell by either build. What other programs have disturbed is
// measured again.
func (o *Options) round(ctx context.Context, name string, n int) (Round, error) {
	for again := 0; ; again++ {
		r, err := o.turns(ctx, name, n)
		if load := max(r.Old.Others, r.New.Others); err != nil || load < grid.BusyPercent || again >= o.Again {
			return r, err
		} else {
			o.Logf("%-36s again: others used %.0f %% of a processor", name, load)
		}
	}
}

// turns measures a cell by either build. The nth round begins with the old one
// if n is even.
func (o *Options) turns(ctx context.Context, name string, n int) (Round, error) {
	r := Round{Name: name}
	for i := range 2 {
		b, to := &o.Old, &r.Old
		if i != n%2 {
			b, to = &o.New, &r.New
		}
		row, err := o.measure(ctx, b.in(n), name)
		if err != nil {
			return r, fmt.Errorf("%s: %s: %w", b.Name, name, err)
		}
		*to, r.Unit = row.Samples[0], row.Unit
	}
	return r, nil
}

// measure runs one cell once.
func (o *Options) measure(ctx context.Context, b *Build, name string) (*report.JSONRow, error) {
	dir, err := os.MkdirTemp("", "rocebench-diff")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	watch := losses.Begin("127.0.0.1", "127.0.0.2") // where any build measures unless it is told otherwise
	said, runErr := o.exec(ctx, b, o.flags("-out", dir, "-install=false", "-match", "^"+regexp.QuoteMeta(name)+"$",
		"-repeat", "1", "-again", strconv.Itoa(o.Again), "-warm", o.Warm.String(), "-measure", o.Measure.String())...)
	// The program fails when the cell does; what it wrote says why.
	file, err := os.Open(filepath.Join(dir, report.ResultsFile))
	if err != nil {
		return nil, errors.Join(cmp.Or(runErr, err), lastLine(said))
	}
	defer file.Close()
	rows, err := report.ReadRows(file)
	if err != nil {
		return nil, err
	}
	if len(rows) != 1 || rows[0].Row.Name != name {
		return nil, fmt.Errorf("the program wrote %d rows, want the one of the cell", len(rows))
	}
	if row := &rows[0]; len(row.Samples) > 0 {
		watch.Judge(&row.Samples[0]) // builds from before that did not
		return row, nil
	} else if row.Skipped != "" {
		return nil, fmt.Errorf("the cell was skipped: %s; choose others with -match", row.Skipped)
	}
	return nil, errors.New("the program took no sample")
}

func lastLine(said []byte) error {
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	return errors.New(lines[len(lines)-1])
}

// execute runs a build. The product's tools are those beside it, if it has any.
func execute(ctx context.Context, b *Build, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, b.Bin, args...)
	c.Dir = b.Dir
	c.Env = os.Environ()
	if at := filepath.Dir(b.Bin); faces.HasPrograms(at) {
		c.Env = append(c.Env, faces.ProgramsEnv+"="+at)
	}
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 10 * time.Second
	var stdout, both bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &both
	if err := c.Run(); err != nil {
		return both.Bytes(), err
	}
	return stdout.Bytes(), nil
}

func checksum(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
