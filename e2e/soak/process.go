//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a server, a group of clients, the owner of the port or a program,
// through all its restarts.
type process struct {
	name string
	argv []string
	kill bool // or only stop
	says bool // samples; else the controller looks at its memory itself
	ends bool // by itself, without a fault: then it is started again

	faults *faults // of those that it works with; nil: it lives through all

	mu        sync.Mutex
	cmd       *exec.Cmd
	ended     chan struct{} // of cmd
	wanted    bool          // that it ends
	complaint *tail         // of cmd
	status    int           // with which it has ended
	samples   []sample      // of all its lives
	before    sample        // sums of the lives that are over
	failed    error
	runs      int // that it has been started again after its end
	broken    int // that a fault has ended
}

// start runs the process, and follows what it says.
func (p *process) start(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, p.argv[0], p.argv[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	complaint := new(tail)
	if cmd.Stderr = complaint; p.says {
		cmd.Stderr = os.Stderr
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	begun := time.Now()
	p.mu.Lock()
	p.cmd, p.ended, p.wanted, p.complaint = cmd, ended, false, complaint
	if n := len(p.samples); n > 0 {
		last := p.samples[n-1]
		p.before.Rounds, p.before.Verified, p.before.Dials = last.Rounds, last.Verified, last.Dials
	}
	p.mu.Unlock()
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if p.says {
				p.heard(lines.Bytes())
			}
		}
		err := cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.status = cmd.ProcessState.ExitCode()
		switch {
		case p.wanted || ctx.Err() != nil || p.ends && err == nil:
		case p.ends && p.faults.since(begun) && !strings.Contains(complaint.String(), "mismatch"):
			p.broken++
		default:
			p.failed = errors.Join(p.failed, fmt.Errorf("%s ended by itself: %w%s", p.name, err, complaint.String()))
		}
	}()
	return nil
}

// heard takes a sample. Sums go on after a restart.
func (p *process) heard(line []byte) {
	var s sample
	if err := json.Unmarshal(line, &s); err != nil {
		return // cut off by a kill
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Rounds += p.before.Rounds
	s.Verified += p.before.Verified
	s.Dials += p.before.Dials
	p.samples = append(p.samples, s)
	if s.Lost != "" {
		p.failed = errors.Join(p.failed, fmt.Errorf("%s: lost: %s", p.name, s.Lost))
	}
}

// murder kills the process and waits until it is gone.
func (p *process) murder() {
	p.mu.Lock()
	cmd, ended := p.cmd, p.ended
	p.wanted = true
	p.mu.Unlock()
	_ = cmd.Process.Kill() // or it has ended, and err says so
	<-ended
}

func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Process.Signal(s)
}

func (p *process) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// last returns the newest sample and the number of them.
func (p *process) last() (s sample, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n = len(p.samples); n > 0 {
		s = p.samples[n-1]
	}
	return s, n
}

// hasEnded reports whether the process ends within a time.
func (p *process) hasEnded(within time.Duration) bool {
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-p.ended:
		return true
	case <-t.C:
		return false
	}
}

// look takes a sample of the memory of a process that says nothing.
func (p *process) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.samples = append(p.samples, sample{RSS: residentBytes(strconv.Itoa(p.cmd.Process.Pid))})
}

// hasSaid reports whether the end of the standard error has some words.
func (p *process) hasSaid(words string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Contains(p.complaint.String(), words)
}

// tail is the end of what a process writes to its standard error.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(b []byte) (int, error) {
	const most = 2000
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	t.b = t.b[max(0, len(t.b)-most):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.b) == 0 {
		return ""
	}
	return "\n" + string(t.b)
}

// faults is when one of several processes was killed or stopped, or went on.
type faults struct {
	mu   sync.Mutex
	last time.Time
}

func (f *faults) strike() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = time.Now()
}

// since reports whether it was after begun, or so shortly before that a process
// may not have been there again.
func (f *faults) since(begun time.Time) bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last.After(begun.Add(-2 * time.Second))
}
