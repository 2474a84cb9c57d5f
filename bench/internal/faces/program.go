package faces

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
)

const module = "github.com/gosoftroce/rocev2"

// programs are those of the product that this run has built.
var programs struct {
	sync.Mutex
	dir   string
	built map[string]string
}

// ProgramsEnv names the variable of the environment with a directory that has
// the product's programs. Without it they are built when a cell needs them.
const ProgramsEnv = "ROCEBENCH_PROGRAMS"

// HasPrograms reports whether a directory has the product's programs.
func HasPrograms(dir string) bool {
	for _, name := range []string{"rocev2", "rocev2d"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || !info.Mode().IsRegular() {
			return false
		}
	}
	return true
}

// Program returns the path of a command of the product. If the environment
// names none, it is built, once a run.
func Program(ctx context.Context, name string) (string, error) {
	if dir := os.Getenv(ProgramsEnv); dir != "" {
		return filepath.Join(dir, name), nil
	}
	programs.Lock()
	defer programs.Unlock()
	if bin := programs.built[name]; bin != "" {
		return bin, nil
	}
	var err error
	if programs.dir == "" {
		if programs.dir, err = os.MkdirTemp("", "rocebench"); err != nil {
			return "", err
		}
		programs.built = map[string]string{}
	}
	bin := filepath.Join(programs.dir, name)
	c := exec.CommandContext(ctx, "go", "build", "-o", bin, module+"/cmd/"+name)
	c.Env = append(os.Environ(), "CGO_ENABLED=0") // as it is packaged
	if root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output(); err == nil {
		c.Dir = strings.TrimSpace(string(root))
	}
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w: %s", name, err, out)
	}
	programs.built[name] = bin
	return bin, nil
}

// RemovePrograms removes what Program has built.
func RemovePrograms() {
	programs.Lock()
	defer programs.Unlock()
	if programs.dir != "" {
		_ = os.RemoveAll(programs.dir) // it is in the directory for what is temporary
	}
	programs.dir, programs.built = "", nil
}

// Perf returns a function that runs "rocev2 perf TEST" between two processes,
// and takes a field of its JSON.
func Perf(a, b, test string, size int, field string) func(context.Context, cell.Window) cell.Sample {
	return func(ctx context.Context, w cell.Window) cell.Sample {
		v, err := perf(ctx, a, b, test, size, w)
		if err != nil {
			return cell.Failed(fmt.Errorf("rocev2 perf %s: %w", test, err))
		}
		s := cell.Sample{Value: v[field], Extra: map[string]float64{"gbps": v["gbps"], "mpps": v["mpps"]}}
		for from, to := range map[string]string{"lat_us_p99": cell.P99, "lat_us_p999": cell.P999} {
			if p, ok := v[from]; ok {
				s.Extra[to] = p
			}
		}
		return s
	}
}

func perf(ctx context.Context, a, b, test string, size int, w cell.Window) (map[string]float64, error) {
	bin, err := Program(ctx, "rocev2")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, w.Total()+30*time.Second)
	defer cancel()
	port, err := freePort(a)
	if err != nil {
		return nil, err
	}
	// It counts in the middle half of the time that -D says, in whole
	// seconds.
	seconds := fmt.Sprint(max(1, int(2*w.Measure/time.Second)))
	args := []string{"perf", test, "-D", seconds, "-p", port}
	if !strings.HasPrefix(test, "atomic_") { // always 8 bytes, there is no flag for it
		args = append(args, "-s", fmt.Sprint(size))
	}
	said, err := converse(exec.CommandContext(ctx, bin, append(args, "-d", a)...), exec.CommandContext(ctx, bin, append(args, "-d", b, "--json", a)...))
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(said, &fields); err != nil {
		return nil, err
	}
	v := map[string]float64{}
	for k, x := range fields {
		if n, ok := x.(float64); ok {
			v[k] = n
		}
	}
	return v, nil
}

// converse starts a server, which says on standard error that it waits, and
// then a client, whose output it returns.
func converse(server, client *exec.Cmd) ([]byte, error) {
	stderr, err := server.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := server.Start(); err != nil {
		return nil, err
	}
	first := make([]byte, 512)
	n, err := stderr.Read(first)
	if err != nil {
		return nil, fmt.Errorf("the server has ended: %w", errors.Join(err, server.Wait()))
	}
	var clientSaid bytes.Buffer
	client.Stderr = &clientSaid
	said, clientErr := client.Output()
	if clientErr != nil {
		_ = server.Process.Kill() // it may wait for a client still, or has ended
	}
	rest, readErr := io.ReadAll(stderr)
	serverErr := server.Wait()
	if clientErr != nil {
		return nil, fmt.Errorf("the client: %w: %s; the server: %s%s", clientErr, bytes.TrimSpace(clientSaid.Bytes()), first[:n], rest)
	}
	if serverErr != nil {
		return nil, fmt.Errorf("the server: %w: %s%s", serverErr, first[:n], rest)
	}
	return said, readErr
}

// freePort returns a TCP port that no socket has at the moment.
func freePort(addr string) (string, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(addr, "0"))
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// RegionRead returns a function that runs rocev2d with a region of so many
// bytes and "rocev2 region read", and takes the Gb/s that this says. The region
// is written before, so that every page of it is there.
func RegionRead(a, b string, size int64) func(context.Context, cell.Window) cell.Sample {
	return func(ctx context.Context, w cell.Window) cell.Sample {
		gbps, err := regionRead(ctx, a, b, size)
		if err != nil {
			return cell.Failed(fmt.Errorf("rocev2 region read: %w", err))
		}
		return cell.Sample{Value: gbps}
	}
}

func regionRead(ctx context.Context, a, b string, size int64) (float64, error) {
	tool, err := Program(ctx, "rocev2")
	if err != nil {
		return 0, err
	}
	c := Config{Test: Resting, Face: RDMA, Addr: a, Region: fmt.Sprintf("%s=%d;write", regionName, size)}
	if c.Bin, err = Program(ctx, "rocev2d"); err != nil {
		return 0, err
	}
	d := &daemon{base: newBase(c)}
	defer d.Close()
	if _, err := d.Hello(); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	at := net.JoinHostPort(a, regionsPort) + "/" + regionName
	fill := exec.CommandContext(ctx, tool, "region", "write", "-d", b, at)
	fill.Stdin = io.LimitReader(zeros{}, size)
	if out, err := fill.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("filling it: %w: %s", err, out)
	}
	out, err := exec.CommandContext(ctx, tool, "region", "read", "-d", b, "-o", os.DevNull, at).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	return rateOf(string(out))
}

// rateOf reads what "rocev2 region read" says: "1048576 bytes in 0.010 s, 0.84
// Gb/s".
func rateOf(said string) (gbps float64, err error) {
	var n int64
	var seconds float64
	if _, err := fmt.Sscanf(said, "%d bytes in %f s, %f Gb/s", &n, &seconds, &gbps); err != nil {
		return 0, fmt.Errorf("%q tells no rate: %w", said, err)
	}
	return gbps, nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
