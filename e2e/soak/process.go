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

// process is a server or a group of clients, through all its restarts.
type process struct {
	name string
	args []string
	kill bool // or only stop

	mu      sync.Mutex
	cmd     *exec.Cmd
	ended   chan struct{} // of cmd
	wanted  bool          // that it ends
	samples []sample      // of all its lives
	before  sample        // sums of the lives that are over
	failed  error
}

// start runs the process, and follows what it says.
func (p *process) start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, p.args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.ended, p.wanted = cmd, ended, false
	if n := len(p.samples); n > 0 {
		last := p.samples[n-1]
		p.before.Rounds, p.before.Verified, p.before.Dials = last.Rounds, last.Verified, last.Dials
	}
	p.mu.Unlock()
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.heard(lines.Bytes())
		}
		err := cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.wanted && ctx.Err() == nil {
			p.failed = errors.Join(p.failed, fmt.Errorf("%s ended by itself: %w", p.name, err))
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

// processes makes the two servers and four groups of clients. Nobody else has
// their addresses.
func processes(o options, network string) (servers, clients []*process) {
	common := []string{"-loss", o.loss, "-pace", o.pace.String(), "-report", o.report.String(), "-dir", o.dir}
	addr := func(i int) string { return network + strconv.Itoa(i) }
	for i := range 2 {
		args := append([]string{"-role", "server", "-addr", addr(1 + i), "-conns", strconv.Itoa(o.conns)}, common...)
		servers = append(servers, &process{name: "server " + strconv.Itoa(i+1), args: args, kill: i > 0})
	}
	each := o.conns / 4
	for i := range 4 {
		args := append([]string{"-role", "client", "-addr", addr(11 + i), "-servers", strings.Join([]string{addr(1), addr(2)}, ","),
			"-conns", strconv.Itoa(each), "-first", strconv.Itoa(i * each)}, common...)
		clients = append(clients, &process{name: "client " + strconv.Itoa(i+1), args: args, kill: i > 0})
	}
	return servers, clients
}
