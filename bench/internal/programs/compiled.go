package programs

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/faces"
	"github.com/gosoftroce/rocev2/bench/internal/peers"
)

//go:embed c/*.c
var sources embed.FS

// build compiles one of the programs of this package into a directory.
func build(ctx context.Context, dir, name string, cc ...string) (string, error) {
	text, err := sources.ReadFile("c/" + name + ".c")
	if err != nil {
		return "", err
	}
	source, bin := filepath.Join(dir, name+".c"), filepath.Join(dir, name)
	if err := os.WriteFile(source, text, 0o600); err != nil {
		return "", err
	}
	argv := append([]string{cc[0], "-O2", "-o", bin, source}, cc[1:]...)
	if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
	}
	return bin, nil
}

// inDir runs f with a directory that goes afterwards.
func inDir(f func(dir string) (cell.Sample, error)) cell.Sample {
	dir, err := os.MkdirTemp("", "rocebench")
	if err != nil {
		return cell.Failed(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is in the directory for what is temporary
	s, err := f(dir)
	if err != nil {
		return cell.Failed(err)
	}
	return s
}

// Calls returns a function that measures calls of libibverbs on an address, and
// takes one of the figures: idle_mb, idle_threads, first_us, open_us, post_ns,
// poll_ns.
func Calls(addr, figure string) func(context.Context, cell.Window) cell.Sample {
	return func(ctx context.Context, _ cell.Window) cell.Sample {
		return inDir(func(dir string) (cell.Sample, error) {
			tool, err := faces.Program(ctx, "rocev2")
			if err != nil {
				return cell.Sample{}, err
			}
			bin, err := build(ctx, dir, "calls", "cc", "-libverbs")
			if err != nil {
				return cell.Sample{}, err
			}
			defer waitDaemons(ctx, addr)
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			return figureOf(exec.CommandContext(ctx, tool, "run", "--device", addr, "--", bin), figure)
		})
	}
}

// MPI is a test of messages between two ranks of OpenMPI over UCX.
type MPI struct {
	A, B  string // the addresses of the ranks
	Test  string // "ring" or "pingpong"
	Size  int    // of a message, in bytes
	Verbs bool   // over devices of rocev2, else over TCP
	Value string // what is measured: "gbps", or "us" of a pingpong
}

// Run runs the test.
func (m MPI) Run(ctx context.Context, w cell.Window) cell.Sample {
	return inDir(func(dir string) (cell.Sample, error) {
		tool, err := faces.Program(ctx, "rocev2")
		if err != nil {
			return cell.Sample{}, err
		}
		bin, err := build(ctx, dir, "mpi", "mpicc")
		if err != nil {
			return cell.Sample{}, err
		}
		if m.Verbs {
			defer waitDaemons(ctx, m.A, m.B)
		}
		ctx, cancel := context.WithTimeout(ctx, w.Total()+60*time.Second)
		defer cancel()
		seconds := fmt.Sprint(max(2, int(2*w.Measure/time.Second)))
		argv := []string{"--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
			"--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any", "--mca", "btl", "self", "--mca", "osc", "^ucx", "--mca", "oob_tcp_if_include", "lo"}
		for i, addr := range []string{m.A, m.B} {
			if i > 0 {
				argv = append(argv, ":")
			}
			argv = append(argv, "-np", "1")
			if m.Verbs {
				argv = append(argv, tool, "run", "--device", addr, "--", "env", "UCX_TLS=rc_v,self")
			} else {
				argv = append(argv, "env", "UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo")
			}
			argv = append(argv, bin, m.Test, strconv.Itoa(m.Size), seconds)
		}
		cmd := exec.CommandContext(ctx, "mpirun", argv...)
		cmd.Env = append(os.Environ(), "TMPDIR="+dir, "UCX_WARN_UNUSED_ENV_VARS=n")
		return figureOf(cmd, m.Value)
	})
}

// Epoll returns a function that measures SENDs of 8 bytes between two programs
// that sleep in epoll_wait, in µs for half a round trip.
func Epoll(server, client string, rounds int) func(context.Context, cell.Window) cell.Sample {
	return func(ctx context.Context, w cell.Window) cell.Sample {
		return inDir(func(dir string) (cell.Sample, error) {
			tool, err := faces.Program(ctx, "rocev2")
			if err != nil {
				return cell.Sample{}, err
			}
			bin, err := build(ctx, dir, "epoll", "cc", "-libverbs")
			if err != nil {
				return cell.Sample{}, err
			}
			defer waitDaemons(ctx, server, client)
			side := func(addr string, more ...string) []string {
				return append([]string{tool, "run", "--device", addr, "--", bin, "PORT", strconv.Itoa(rounds)}, more...)
			}
			return peers.Measure(ctx, peers.Pair{Server: side(server), Client: side(client, server), Limit: w.Total() + 30*time.Second},
				func(out []byte) (cell.Sample, error) { return parseFigure(string(out), "us") }), nil
		})
	}
}

// figureOf runs a program and takes a figure of what it prints: lines of a name
// and a number.
func figureOf(cmd *exec.Cmd, name string) (cell.Sample, error) {
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return cell.Sample{}, fmt.Errorf("%s: %w", filepath.Base(cmd.Path), err)
	}
	return parseFigure(string(out), name)
}

func parseFigure(out, name string) (cell.Sample, error) {
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) != 2 || words[0] != name {
			continue
		}
		v, err := strconv.ParseFloat(words[1], 64)
		if err != nil || !(v > 0) {
			return cell.Sample{}, fmt.Errorf("%q is no figure", strings.TrimSpace(line))
		}
		return cell.Sample{Value: v}, nil
	}
	return cell.Sample{}, fmt.Errorf("%s is not in the output", name)
}
