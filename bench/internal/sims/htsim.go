package sims

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// BuildHTSim builds what is needed of htsim as its README says, and returns the
// folder with the programs.
func BuildHTSim(ctx context.Context, tree string) (string, error) {
	if err := need("htsim", "make", "g++"); err != nil {
		return "", err
	}
	sim, jobs := filepath.Join(tree, "sim"), "-j"+strconv.Itoa(runtime.NumCPU())
	to := filepath.Join(sim, "datacenter")
	for _, args := range [][]string{{"-C", sim, jobs, "libhtsim.a"}, {"-C", to, jobs, "htsim_roce", "htsim_ndp", "htsim_eqds"}} {
		if err := tell(exec.CommandContext(ctx, "make", args...)); err != nil {
			return "", fmt.Errorf("building htsim: make %s: %w", strings.Join(args, " "), err)
		}
	}
	return to, nil
}

// htsimArgs returns program and arguments.
//
// -paths is how many source ports there are for ECMP, -q the length of a queue
// in packets: with pauses no queue of a switch may be too short for what its
// ports store. NDP and EQDS have queues of 15 packets, and first windows that
// fill the way there and back.
func (w *Workload) htsimArgs(k kind, seed uint64) (name string, args []string) {
	args = []string{"-nodes", strconv.Itoa(w.Hosts()), "-topo", topologyFile, "-tm", matrixFile, "-mtu", strconv.Itoa(mtu),
		"-paths", "128", "-end", "100000", "-seed", strconv.FormatUint(seed, 10), "-o", "log"}
	switch k {
	case htsimNDP:
		return "htsim_ndp", append(args, "-strat", "perm", "-q", "15", "-cwnd", "60")
	case htsimEQDS:
		return "htsim_eqds", append(args, "-strat", "ecmp_host", "-q", "15", "-cwnd", "60")
	}
	args = append(args, "-strat", "ecmp_host")
	if w.pauses == never {
		return "htsim_roce", append(args, "-pfc_thresholds", "9000", "10000", "-q", "20000")
	}
	return "htsim_roce", append(args, "-pfc_thresholds", "12", "15", "-q", "1000")
}

// crash is an end of a program by a failed assertion or a signal.
type crash struct{ error }

// playHTSim plays the files of a directory.
func (w *Workload) playHTSim(ctx context.Context, limit time.Duration, programs, dir string, k kind, seed uint64, flows int) (Run, error) {
	name, args := w.htsimArgs(k, seed)
	out, r, err := program(ctx, limit, dir, nil, filepath.Join(programs, name), args...)
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && !exit.Exited() {
			return r, crash{err}
		}
		return r, err
	}
	return r, readHTSim(out, name, flows, &r)
}

// readHTSim reads what a program of htsim has printed of that many flows.
func readHTSim(out []byte, name string, flows int, r *Run) error {
	sum := 0.0
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		line := s.Text()
		_, after, found := strings.Cut(line, " finished at ")
		if !found || !strings.HasPrefix(line, "Flow ") {
			continue
		}
		word, _, _ := strings.Cut(after, " ")
		at, err := strconv.ParseFloat(word, 64)
		if err != nil || !(at > 0) {
			return fmt.Errorf("%s: the time in %q is no number of microseconds", name, line)
		}
		r.Flows++
		r.Last = max(r.Last, at)
		sum += at
	}
	if r.Flows != flows || flows == 0 {
		return fmt.Errorf("%s: %d of %d flows have completed: %s", name, r.Flows, flows, lastLines(string(out)))
	}
	r.Mean = sum / float64(flows)
	return nil
}
