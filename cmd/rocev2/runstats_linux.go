package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/programs"
	"github.com/gosoftroce/rocev2/transport/lease"
)

// runWithStats runs the program as a child, and tells at the end what it and
// its children have used (f.stats), and what they have done that adapters
// punish (strict, unless it is nil).
func runWithStats(s streams, held *heldDaemon, f programFlags, strict *strictReport, path string, args, env []string) (err error) {
	defer held.file.Close()
	out := s.err
	if f.report != "" {
		file, err := os.Create(f.report)
		if err != nil {
			strict.remove()
			return err
		}
		defer file.Close()
		out = file
	}
	r := &programRun{name: nameRun(env), begin: time.Now(), held: held.file}
	cmd := &exec.Cmd{Path: path, Args: args, Env: append(withoutRun(env), lease.RunEnv+"="+r.name), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		strict.remove()
		return notRun(args[0], err)
	}
	go func() {
		for sig := range signals {
			if sig != syscall.SIGINT && sig != syscall.SIGQUIT { // a terminal sends those to the child, too
				_ = cmd.Process.Signal(sig) // it may have ended
			}
		}
	}()
	if f.stats == "" {
		err = cmd.Wait()
	} else {
		err = r.wait(cmd)
		if e := r.tell(out, f.stats, args[0]); e != nil {
			fmt.Fprintf(s.err, "rocev2 run: %v\n", e)
		}
	}
	if strict.end(s.err, args[0]) > 0 && strict.status != 0 {
		return statusError{nil, strict.status}
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err // nil, or it cannot be waited for
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return dieOf(status.Signal())
	}
	return statusError{nil, exit.ExitCode()}
}

// withoutRun returns an environment without the name of a run.
func withoutRun(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(s string) bool { return strings.HasPrefix(s, lease.RunEnv+"=") })
}

// nameRun returns a name for a run in an environment. In that of another run it
// begins with the name of that one, as far as there is room.
func nameRun(env []string) string {
	own := rand.Text()
	for _, s := range env {
		if outer, ok := strings.CutPrefix(s, lease.RunEnv+"="); ok && outer != "" && len(outer) < 200 {
			return outer + "-" + own
		}
	}
	return own
}

// programRun is a run of a program whose processes the daemon knows by its
// name.
type programRun struct {
	name  string
	begin time.Time
	held  *os.File
	last  []programs.Used // that the daemon has told last
}

// askEvery is how often processes are asked for their counters.
const askEvery = 250 * time.Millisecond

// wait waits for the program. Meanwhile it has the daemon ask all processes for
// their counters: one that ends by a signal, or by _exit in a handler, tells
// none at its end.
func (r *programRun) wait(cmd *exec.Cmd) error {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
			if list, err := programs.Report(r.held); err == nil { // the last one tells of errors
				r.last = list
			}
		}
	}
}

// tell writes what was used. Where the daemon has ended meanwhile that is what
// it told last.
func (r *programRun) tell(w io.Writer, format, program string) error {
	list, err := programs.Report(r.held)
	if err != nil {
		list = append(r.last, programs.Used{Lack: err.Error()})
	}
	report := r.of(program, list)
	if format == statsJSON {
		return json.NewEncoder(w).Encode(report)
	}
	_, err = io.WriteString(w, report.text())
	return err
}

// of makes the report of a program from what the daemon has told.
func (r *programRun) of(program string, list []programs.Used) *useReport {
	u := &useReport{Program: program, Processes: []processUse{}}
	own := list[:0:0]
	for _, l := range list {
		switch {
		case l.Lack != "":
			u.Unknown = append(u.Unknown, unknownDevice{l.Device, l.Addr, l.Lack})
		case r.has(&l) && !slices.ContainsFunc(own, func(o programs.Used) bool { return sameLease(&o, &l) }): // one that was ending is in it twice
			own = append(own, l)
		}
	}
	for _, l := range withoutTries(own) {
		u.add(&l)
	}
	u.judge()
	return u
}

// has reports whether a lease is of the run. A daemon of an older release does
// not know; then those are that have begun meanwhile.
func (r *programRun) has(u *programs.Used) bool {
	if !u.Runs {
		return !u.Lease.Since.Before(r.begin)
	}
	return u.Lease.Run == r.name || strings.HasPrefix(u.Lease.Run, r.name+"-")
}

func sameLease(a, b *programs.Used) bool {
	return a.Addr == b.Addr && a.Lease.Slot == b.Lease.Slot && a.Lease.Since.Equal(b.Lease.Since)
}

// dieOf ends this process as the program has ended. Go's own handlers, which
// stay for faults, would write what its goroutines do.
func dieOf(sig syscall.Signal) error {
	signal.Reset(sig)
	var byDefault [4]uint64 // the kernel's struct sigaction, and SIG_DFL is 0
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // the program's core is the one to look at
	// To this thread: another one might still not have taken it when this
	// one exits.
	runtime.LockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), sig)
	return statusError{nil, 128 + int(sig)}
}
