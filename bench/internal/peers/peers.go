// Package peers runs the tools that others measure their stacks with, each as
// two processes on loopback, and reads their output.
package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/path"
)

// Tool is a program that a peer is measured with.
type Tool struct {
	Program string
	Package string // of Debian
}

// Tools are all that the grid uses.
var Tools = []Tool{
	{"iperf3", "iperf3"},
	{"fi_pingpong", "libfabric-bin"},
	{"ucx_perftest", "ucx-utils"},
	{"ib_write_bw", "perftest"},
	{"mpirun", "openmpi-bin"},
	{"mpicc", "libopenmpi-dev"},
}

// Missing returns the tools that are not installed.
func Missing() []Tool {
	var out []Tool
	for _, t := range Tools {
		if _, err := exec.LookPath(t.Program); err != nil {
			out = append(out, t)
		}
	}
	return out
}

// Install installs the missing tools with apt-get, if this machine has it and
// this user may.
func Install(ctx context.Context, logf func(string, ...any)) error {
	missing := Missing()
	if len(missing) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return errors.New("installing needs apt-get and root")
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	args := []string{"install", "-y", "-q", "--no-install-recommends"}
	for _, t := range missing {
		args = append(args, t.Package)
	}
	logf("installing %s", strings.Join(args[4:], " "))
	if _, err := apt(ctx, args...); err == nil {
		return nil
	}
	if out, err := apt(ctx, "update", "-q"); err != nil { // the lists may be old
		return fmt.Errorf("apt-get update: %w: %s", err, lastLine(out))
	}
	if out, err := apt(ctx, args...); err != nil {
		return fmt.Errorf("apt-get install: %w: %s", err, lastLine(out))
	}
	return nil
}

func apt(ctx context.Context, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, "apt-get", args...)
	c.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	return c.CombinedOutput()
}

// Version returns what a tool says about itself, as far as it does.
func Version(ctx context.Context, program string) string {
	flags := map[string][]string{"iperf3": {"--version"}}[program]
	if flags == nil {
		if out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${Version}", packageOf(program)).Output(); err == nil {
			return string(out)
		}
		return "unknown"
	}
	out, err := exec.CommandContext(ctx, program, flags...).Output()
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimPrefix(strings.TrimSpace(first), program+" ")
}

func packageOf(program string) string {
	for _, t := range Tools {
		if t.Program == program {
			return t.Package
		}
	}
	return program
}

// command describes the two processes of a measurement. PORT in an argument is
// replaced by a free TCP port.
type command struct {
	server, client []string
	env            []string
	limit          time.Duration
}

// Pair describes the two processes of a measurement. PORT in an argument is
// replaced by a free TCP port, on which the server listens.
type Pair struct {
	Server, Client []string
	Limit          time.Duration // for all of it
}

// Measure runs the two and reads one value from what the client printed.
func Measure(ctx context.Context, p Pair, parse func([]byte) (cell.Sample, error)) cell.Sample {
	return measure(ctx, command{server: p.Server, client: p.Client, limit: p.Limit}, parse)
}

// errEnded is why a server does not listen: mostly, because another program has
// taken the port meanwhile.
var errEnded = errors.New("the server ended at once")

// run runs the two, if need be with another port.
func (c command) run(ctx context.Context) ([]byte, error) {
	for again := 0; ; again++ {
		out, err := c.once(ctx)
		if !errors.Is(err, errEnded) || again == 3 {
			return out, err
		}
	}
}

// once starts the server, waits until it listens, runs the client and returns
// what the client printed.
func (c command) once(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	prepare := func(argv []string) *exec.Cmd {
		args := append([]string(nil), argv...)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "PORT", strconv.Itoa(port))
		}
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Env = append(os.Environ(), c.env...)
		return cmd
	}
	server, client := prepare(c.server), prepare(c.client)
	var serverOut bytes.Buffer
	server.Stdout, server.Stderr = &serverOut, &serverOut
	if err := path.Start(ctx, 0, server); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() { _ = server.Wait(); close(done) }()
	defer func() { _ = server.Process.Kill(); <-done }()
	if err := waitListen(ctx, server.Process.Pid, port, done); err != nil {
		return nil, fmt.Errorf("%s: %w %s", c.server[0], err, lastLine(serverOut.Bytes()))
	}
	var stdout, stderr bytes.Buffer
	client.Stdout, client.Stderr = &stdout, &stderr
	err = path.Start(ctx, 1, client)
	if err == nil {
		err = client.Wait()
	}
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("no end after %v", c.limit)
		}
		return nil, fmt.Errorf("%s: %w %s", c.client[0], err, lastLine(append(stdout.Bytes(), stderr.Bytes()...)))
	}
	select {
	case <-done:
	case <-time.After(2 * time.Second):
	}
	return stdout.Bytes(), nil
}

func lastLine(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// waitListen waits until a TCP socket of the process's namespace listens on
// port, without connecting: some of these servers serve one connection only.
func waitListen(ctx context.Context, pid, port int, ended <-chan struct{}) error {
	for {
		for _, file := range []string{"tcp", "tcp6"} {
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, file)); err == nil && listens(b, port) {
				return nil
			}
		}
		select {
		case <-ended:
			return errEnded
		case <-ctx.Done():
			return errors.New("the server does not listen")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// listens reports whether the table of /proc/net/tcp has a listening socket.
func listens(table []byte, port int) bool {
	suffix := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) > 3 && strings.HasSuffix(f[1], suffix) && f[3] == "0A" {
			return true
		}
	}
	return false
}

// measure runs a command and reads one value from what its client printed.
func measure(ctx context.Context, c command, parse func([]byte) (cell.Sample, error)) cell.Sample {
	out, err := c.run(ctx)
	if err != nil {
		return cell.Failed(err)
	}
	s, err := parse(out)
	if err != nil {
		return cell.Failed(fmt.Errorf("%s: %w", c.client[0], err))
	}
	return s
}
