//go:build linux

package programs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/e2e/guest"
)

// kind says what plays the two sides of a cell.
type kind int

const (
	twoOwners    kind = iota // ours, each with a daemon of its own: packets cross UDP
	oneOwner                 // ours, both with the same daemon
	kernelServes             // our client, and a server in a guest
	kernelDials              // our server, and a client in a guest
	kernels                  // two guests: what the cell does without us
	numKinds
)

func (k kind) String() string {
	return [...]string{"two-owners", "one-owner", "kernel-serves", "kernel-dials", "kernels"}[k]
}

// cell is a program with its arguments, as a distribution has it.
type cell struct {
	group string
	name  string
	kinds []kind
	needs []guest.Need // beside those of every cell
	short bool         // it is one of the quick ones of make test-programs

	server, client func(*stage) []string // nil: there is no such side
	ready          ready                 // when a client may come; nil: at once
	retry          bool                  // the client comes again until the server, which is not to be seen, listens
	endless        bool                  // the server goes on until it is told to end
	bare           bool                  // the arguments say themselves what runs under rocev2 run
	limit          time.Duration         // 0: usual
	// prepare makes what the cell needs of the machine, and returns what
	// undoes it.
	prepare func() (undo func())
	// known is why the programs fail by themselves, with every device: the
	// table has it. If they do not fail, they pass.
	known string

	// check looks at what the programs have left when they have ended well.
	// The note is for the table.
	check func(*stage) (note string, err error)
}

const usual = time.Minute

var (
	ours  = []kind{twoOwners, oneOwner}
	every = []kind{twoOwners, oneOwner, kernelServes, kernelDials, kernels}
	alone = []kind{oneOwner}
)

func (c *cell) has(k kind) bool { return slices.Contains(c.kinds, k) }

func (c *cell) String() string { return c.group + "/" + c.name }

// ready returns when a server waits for its client.
type ready func(context.Context, *stage, *guest.Process) error

// listening waits for the TCP port of the cell.
func listening(ctx context.Context, st *stage, _ *guest.Process) error {
	return st.server.node.WaitListen(ctx, st.port)
}

// says waits for words of the server.
func says(words string) ready {
	return func(ctx context.Context, _ *stage, p *guest.Process) error {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			if stdout, stderr := p.Output(); strings.Contains(stdout+stderr, words) {
				return nil
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("it does not say %q: %w", words, context.Cause(ctx))
			}
		}
	}
}

// waiting waits until the server waits for its client, as far as that is to be
// seen: servers of the connection manager have no socket of TCP. A kernel tells
// which programs listen. A program of ours waits when it has been idle for some
// time, or has not slept once for longer: rstream polls for its client.
func waiting(ctx context.Context, st *stage, p *guest.Process) error {
	if p.PID == 0 {
		_, err := guest.Run(ctx, st.server.node, "sh", "-c", "until rdma res show cm_id | grep -q LISTEN; do sleep 0.05; done")
		return err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var was, slept string
	var idle, awake int
	for idle < 10 && awake < 50 {
		now, sleeps := "", ""
		for _, pid := range append(children(p.PID), p.PID) {
			now += activity(pid, "ctxt_switches")
			sleeps += activity(pid, "\nvoluntary_ctxt_switches")
		}
		if idle++; now != was {
			was, idle = now, 0
		}
		if awake++; sleeps != slept {
			slept, awake = sleeps, 0
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("it does not wait: %w", context.Cause(ctx))
		}
	}
	return nil
}

// children are the processes that a process has started, but for the daemon: it
// may have something to do while the program waits.
func children(pid int) (list []int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	for _, f := range strings.Fields(string(b)) {
		n, err := strconv.Atoi(f)
		name, _ := os.ReadFile("/proc/" + f + "/comm") // it may have ended
		if err == nil && !strings.HasPrefix(string(name), "rocev2") {
			list = append(append(list, n), children(n)...)
		}
	}
	return list
}

// activity changes whenever a thread of a process has run, by what the kernel
// counts: switches between threads.
func activity(pid int, switches string) (s string) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid)) // the pattern is good
	for _, t := range tasks {
		b, _ := os.ReadFile(t) // it may have ended
		for line := range strings.Lines(string(b)) {
			if strings.Contains("\n"+line, switches) || strings.HasPrefix(line, "Name") {
				s += line
			}
		}
	}
	return s
}

// stage is a cell with everything decided.
type stage struct {
	kind           kind
	server, client *site
	port           int    // TCP or RDMA, for this cell alone
	dir            string // for files, writable for the programs
	details        string // for the table: what is to be said below that of the package

	// What the two have said, when they have ended.
	serverOut, clientOut guest.Result

	datagrams, segments int // of UDP and TCP that our side has sent, when they have ended
}

// cells are all of them.
func cells() []*cell {
	all := slices.Concat(deviceCells(), pingpongCells(), perftestCells(), managerCells(), socketCells(), preloadedCells(), ucxCells(), mpiCells(), netpipeCells(), fabricCells(), pyverbsCells())
	seen := map[string]bool{}
	for _, c := range all {
		if seen[c.String()] {
			panic(fmt.Sprintf("two cells are %v", c))
		}
		seen[c.String()] = true
	}
	return all
}
