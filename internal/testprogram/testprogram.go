// Package testprogram builds and runs the program of a test's package: two
// processes on one host, which talk to each other.
package testprogram

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Program is a program that was built.
type Program struct {
	t    *testing.T
	path string
}

// Build builds the program of the package that is tested. It skips the test
// where processes cannot have an address each on loopback.
func Build(t *testing.T) *Program {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has all of 127.0.0.0/8 without setting it up: run it there")
	}
	path := filepath.Join(t.TempDir(), "program")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return &Program{t, path}
}

// Path returns where the program is.
func (p *Program) Path() string { return p.path }

// Addresses returns two addresses that no other program has.
func Addresses() (a, b string) {
	net := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), rand.IntN(256))
	return net + "1", net + "2"
}

// Run runs the program to its end, and returns what it has written and how it
// has ended.
func (p *Program) Run(args ...string) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(p.t.Context(), p.path, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// Output is Run of what must succeed.
func (p *Program) Output(args ...string) string {
	p.t.Helper()
	out, errs, err := p.Run(args...)
	if err != nil {
		p.t.Fatalf("%v: %v\n%s", args, err, errs)
	}
	return out
}

// Process is a program that runs.
type Process struct {
	t      *testing.T
	cmd    *exec.Cmd
	out    bytes.Buffer
	ended  chan struct{}
	err    error
	notice notice
}

// longest is how long a process of a test may take.
const longest = time.Minute

// Start starts the program, and waits until it has written words, to whichever
// of its outputs. The end of the test ends it.
func (p *Program) Start(words string, args ...string) *Process {
	p.t.Helper()
	r := &Process{t: p.t, cmd: exec.Command(p.path, args...), ended: make(chan struct{})}
	r.notice = notice{words: words, seen: make(chan struct{})}
	r.cmd.Stdout, r.cmd.Stderr = tee{&r.notice, &r.out}, tee{&r.notice, nil}
	if err := r.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	late := time.AfterFunc(longest, func() { _ = r.cmd.Process.Kill() })
	go func() {
		r.err = r.cmd.Wait()
		late.Stop()
		close(r.ended)
	}()
	p.t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // it may have ended
		<-r.ended
	})
	select {
	case <-r.notice.seen:
	case <-r.ended:
		p.t.Fatalf("%v ends (%v) before it says %q; it says:\n%s", args, r.err, words, r.notice.text.String())
	}
	return r
}

// Wait waits for the end of the process, which must be a success, and returns
// its standard output.
func (r *Process) Wait() string {
	r.t.Helper()
	<-r.ended
	if r.err != nil {
		r.t.Errorf("%v\n%s", r.err, r.notice.text.String())
	}
	return r.out.String()
}

// notice notices when a process has written certain words.
type notice struct {
	words string
	mu    sync.Mutex
	text  bytes.Buffer
	done  bool
	seen  chan struct{}
}

// tee is where one output of a process goes.
type tee struct {
	notice *notice
	copy   *bytes.Buffer // nil: nowhere else
}

func (w tee) Write(b []byte) (int, error) {
	n := w.notice
	n.mu.Lock()
	defer n.mu.Unlock()
	if w.copy != nil {
		w.copy.Write(b)
	}
	n.text.Write(b)
	if !n.done && strings.Contains(n.text.String(), n.words) {
		n.done = true
		close(n.seen)
	}
	return len(b), nil
}
