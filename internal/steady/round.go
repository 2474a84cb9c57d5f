//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// round is what a seed says of one run of a package's tests.
type round struct {
	seed       uint64
	processors int // 0: all
	rand       *rand.Rand
}

func newRound(seed uint64) *round {
	r := &round{seed: seed, rand: rand.New(rand.NewPCG(seed, 0))}
	if seed%2 == 1 {
		r.processors = 1
	}
	return r
}

func (r *round) String() string {
	if r.processors > 0 {
		return fmt.Sprintf("seed %d, GOMAXPROCS=%d", r.seed, r.processors)
	}
	return fmt.Sprintf("seed %d", r.seed)
}

// command repeats a round.
func (r *round) command(o options, p tests) string {
	words := []string{"go run ./internal/steady -n 1", fmt.Sprintf("-seed %d -load %d", r.seed, o.load)}
	if o.run != "" {
		words = append(words, fmt.Sprintf("-run '%s'", o.run))
	}
	if o.exec != "" {
		words = append(words, fmt.Sprintf("-exec '%s'", o.exec))
	}
	if o.dir != "" {
		words = append(words, "-C "+o.dir)
	}
	if o.ports {
		words = append(words, "-ports")
	}
	return strings.Join(append(words, p.path), " ")
}

// pause returns how long the tests run now, and for how long they stop then.
// Most pauses are as those of a scheduler, and one of 16 is of a third of a
// second: longer than the timers of a queue pair.
func (r *round) pause() (after, long time.Duration) {
	after = 20*time.Millisecond + time.Duration(r.rand.Int64N(int64(800*time.Millisecond)))
	long = 5*time.Millisecond + time.Duration(r.rand.Int64N(int64(60*time.Millisecond)))
	if r.rand.IntN(16) == 0 {
		long += 300 * time.Millisecond
	}
	return after, long
}

// play runs the tests and returns what they say.
func (r *round) play(ctx context.Context, o options, p tests) (string, error) {
	args := []string{p.binary, fmt.Sprintf("-test.shuffle=%d", r.seed), "-test.timeout=" + o.timeout.String(),
		"-test.paniconexit0", "-test.count=1"}
	if o.exec != "" {
		program, err := filepath.Abs(o.exec)
		if err != nil {
			return "", err
		}
		args = append([]string{program}, args...)
	}
	if o.run != "" {
		args = append(args, "-test.run="+o.run)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout+time.Minute, errors.New("it did not end when its time was over"))
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), "PWD="+p.dir)
	if r.processors > 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("GOMAXPROCS=%d", r.processors))
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	// A group of its own: what the tests have started stops with them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 10 * time.Second
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		return "", err
	}
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		r.interrupt(cmd.Process.Pid, ended)
	}()
	err := cmd.Wait()
	close(ended)
	<-stopped
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return out.String(), err
}

// interrupt stops a group of processes from time to time until it has ended.
func (r *round) interrupt(group int, ended <-chan struct{}) {
	for {
		after, long := r.pause()
		select {
		case <-ended:
			return
		case <-time.After(after):
		}
		// A group that has just ended is no error.
		if syscall.Kill(-group, syscall.SIGSTOP) != nil {
			continue
		}
		select {
		case <-ended:
		case <-time.After(long):
		}
		_ = syscall.Kill(-group, syscall.SIGCONT) // it may have ended
	}
}
