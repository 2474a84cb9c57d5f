// Package pair runs a measurement between two processes. Both are this very
// program, started again as a worker; they talk to their parent in JSON over
// standard input and output, which introduces them to each other:
//
//	worker A         parent          worker B
//	hello ------------>  <------------- hello
//	      <--- peer ---  ---- peer --->
//	ready ------------>  <------------- ready
//	      <---- go ----  ----- go ---->
//	          … the measurement …
//	result (active) -->
//	      <--- stop ---  ---- stop --->
//	                     <-------- result (passive)
//
// What is measured goes between A and B directly. Fan does the same with one
// passive worker and many active ones.
package pair

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"syscall"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/path"
)

// Side is one end of a measurement, in a worker.
type Side interface {
	// Hello prepares and returns what the peer must know.
	Hello() (any, error)
	// Connect gets what the peer's Hello returned.
	Connect(peer json.RawMessage) error
	// Run measures. An active side returns when it has; a passive one, soon
	// after stop is closed.
	Run(stop <-chan struct{}) (Result, error)
	// Close ends the side.
	Close() error
}

// Result is what a side reports.
type Result struct {
	Values map[string]float64 `json:"values,omitempty"`
	Counts map[string]uint64  `json:"counts,omitempty"` // not errors
	Errors map[string]uint64  `json:"errors,omitempty"`
}

// Kinds of workers by name; packages with a Side register here.
var (
	mu    sync.Mutex
	kinds = map[string]func(config []byte) (Side, error){}
)

// Register makes a kind of worker known under a name. It is called before
// Worker runs.
func Register(name string, open func(config []byte) (Side, error)) {
	mu.Lock()
	defer mu.Unlock()
	kinds[name] = open
}

// WorkerArg is the first argument of a worker process. The second is its kind,
// the third its configuration.
const WorkerArg = "worker"

// message is a line in either direction.
type message struct {
	Hello  json.RawMessage `json:"hello,omitempty"`
	Peer   json.RawMessage `json:"peer,omitempty"`
	Ready  bool            `json:"ready,omitempty"`
	Go     bool            `json:"go,omitempty"`
	Stop   bool            `json:"stop,omitempty"`
	Result *Result         `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// Worker is the life of a worker process; its return value is the exit status.
func Worker(args []string) int {
	out := json.NewEncoder(os.Stdout)
	stop, err := profile(os.Getenv(ProfileEnv))
	if err != nil {
		_ = out.Encode(message{Error: err.Error()})
		return 1
	}
	defer stop()
	if err := work(args, &lines{r: bufio.NewReader(os.Stdin)}, out); err != nil {
		_ = out.Encode(message{Error: err.Error()})
		return 1
	}
	return 0
}

// ProfileEnv names the variable of the environment with the directory that
// workers write profiles to: of the processors, and at their end of the heap.
const ProfileEnv = "ROCEBENCH_PROFILE"

func profile(dir string) (stop func(), err error) {
	if dir == "" {
		return func() {}, nil
	}
	name := filepath.Join(dir, fmt.Sprint(os.Getpid()))
	cpu, err := os.Create(name + ".cpu")
	if err != nil {
		return nil, err
	}
	heap, err := os.Create(name + ".heap")
	if err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = pprof.WriteHeapProfile(heap) // a short one is seen
		cpu.Close()
		heap.Close()
	}, pprof.StartCPUProfile(cpu)
}

// lines reads messages without keeping anything of them: what a worker holds
// on to would count as memory of what it measures.
type lines struct{ r *bufio.Reader }

func (l *lines) next() (m message, err error) {
	b, err := l.r.ReadBytes('\n')
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(b, &m)
}

func work(args []string, in *lines, out *json.Encoder) error {
	if len(args) != 2 {
		return fmt.Errorf("a worker takes its kind and its configuration, not %d arguments", len(args))
	}
	mu.Lock()
	open := kinds[args[0]]
	mu.Unlock()
	if open == nil {
		return fmt.Errorf("there is no kind of worker %q", args[0])
	}
	side, err := open([]byte(args[1]))
	if err != nil {
		return err
	}
	defer side.Close()
	hello, err := side.Hello()
	if err != nil {
		return err
	}
	if err := introduce(side, hello, in, out); err != nil {
		return err
	}
	if err := out.Encode(message{Ready: true}); err != nil {
		return err
	}
	if _, err := in.next(); err != nil {
		return err
	}
	stop := make(chan struct{})
	go func() {
		if _, err := in.next(); err != nil {
			os.Exit(1) // the parent is gone
		}
		close(stop)
	}()
	r, err := side.Run(stop)
	if err != nil {
		return err
	}
	if err := out.Encode(message{Result: &r}); err != nil {
		return err
	}
	<-stop // an active side still answers what the peer repeats
	return nil
}

func introduce(side Side, hello any, in *lines, out *json.Encoder) error {
	raw, err := json.Marshal(hello)
	if err != nil {
		return err
	}
	if err := out.Encode(message{Hello: raw}); err != nil {
		return err
	}
	m, err := in.next()
	if err != nil {
		return err
	}
	return side.Connect(m.Peer)
}

// Role configures one side of a pair.
type Role struct {
	Config any  // becomes JSON
	Active bool // its Run ends by itself
}

// Run starts two workers of a kind, lets them measure, and returns the results
// of both.
func Run(ctx context.Context, kind string, a, b Role, limit time.Duration) (ra, rb Result, err error) {
	swap := func(h []json.RawMessage) ([]json.RawMessage, error) { return []json.RawMessage{h[1], h[0]}, nil }
	out, err := run(ctx, kind, []Role{a, b}, swap, limit)
	return out[0], out[1], err
}

// Share says what each worker learns of what all have said, in their order.
type Share func(hellos []json.RawMessage) (peers []json.RawMessage, err error)

// Fan starts a passive worker and many active ones, lets them measure at the
// same time, and returns the results of the first one and of the others.
func Fan(ctx context.Context, kind string, hub any, spokes []any, share Share, limit time.Duration) (Result, []Result, error) {
	roles := []Role{{Config: hub}}
	for _, c := range spokes {
		roles = append(roles, Role{Config: c, Active: true})
	}
	out, err := run(ctx, kind, roles, share, limit)
	return out[0], out[1:], err
}

// run has as many results as there are roles, whatever the error is.
func run(ctx context.Context, kind string, roles []Role, share Share, limit time.Duration) ([]Result, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	results := make([]Result, len(roles))
	var procs []*process
	for i, r := range roles {
		p, err := start(ctx, i, kind, r.Config)
		if err != nil {
			return results, err
		}
		defer p.end()
		procs = append(procs, p)
	}
	err := converse(procs, roles, share, results)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("no end after %v: %w", limit, err)
	}
	return results, err
}

// converse leads the workers through the steps.
func converse(procs []*process, roles []Role, share Share, results []Result) error {
	if err := introduceAll(procs, share); err != nil {
		return err
	}
	// The passive side begins to listen before the active one sends.
	for _, active := range [...]bool{false, true} {
		for i, p := range procs {
			if roles[i].Active == active {
				if err := p.send(message{Go: true}); err != nil {
					return err
				}
			}
		}
	}
	for _, active := range [...]bool{true, false} {
		for i, p := range procs {
			if roles[i].Active != active {
				continue
			}
			m, err := p.recv()
			if err != nil {
				return err
			}
			if m.Result == nil {
				return errors.New("a worker sent no result")
			}
			results[i] = *m.Result
		}
		if active {
			for _, p := range procs {
				if err := p.send(message{Stop: true}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// introduceAll has the workers know each other, and waits until they are ready.
func introduceAll(procs []*process, share Share) error {
	var hellos []json.RawMessage
	for _, p := range procs {
		m, err := p.recv()
		if err != nil {
			return err
		}
		hellos = append(hellos, m.Hello)
	}
	peers, err := share(hellos)
	if err != nil {
		return err
	}
	for i, p := range procs {
		if err := p.send(message{Peer: peers[i]}); err != nil {
			return err
		}
	}
	for _, p := range procs {
		if _, err := p.recv(); err != nil {
			return err
		}
	}
	return nil
}

// process is a worker as its parent sees it.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	enc    *json.Encoder
	dec    *json.Decoder
	stderr bytes.Buffer
}

// start starts a worker, at an end of the path if ctx has one.
func start(ctx context.Context, end int, kind string, config any) (*process, error) {
	c, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self, WorkerArg, kind, string(c))}
	p.cmd.Stderr = &p.stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.enc, p.dec = json.NewEncoder(p.in), json.NewDecoder(out)
	return p, path.Start(ctx, end, p.cmd)
}

func (p *process) send(m message) error {
	err := p.enc.Encode(m)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
		if _, said := p.recv(); said != nil { // it has said why before it went
			return said
		}
	}
	return err
}

func (p *process) recv() (message, error) {
	var m message
	if err := p.dec.Decode(&m); err != nil {
		p.end()
		return m, fmt.Errorf("a worker ended early: %w %s", err, lastLines(p.stderr.Bytes(), 600))
	}
	if m.Error != "" {
		return m, errors.New(m.Error)
	}
	return m, nil
}

// end lets the worker go: it ends when its input does.
func (p *process) end() {
	p.in.Close()
	timer := time.AfterFunc(5*time.Second, func() { _ = p.cmd.Process.Kill() })
	_ = p.cmd.Wait() // its status has nothing to add to what it has said
	timer.Stop()
}

func lastLines(b []byte, n int) string {
	if len(b) > n {
		b = b[len(b)-n:]
	}
	return string(bytes.TrimSpace(b))
}
