package sims

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"time"
)

// Run is what one run of a simulator has come to.
type Run struct {
	Seed  uint64  `json:"seed"`
	CPU   float64 `json:"cpu_s"`      // user and system time of the process
	Peak  int64   `json:"peak_bytes"` // the most memory that was resident; 0: not known here
	Flows int     `json:"flows"`
	Last  float64 `json:"last_us"` // completion of the last flow
	Mean  float64 `json:"mean_us"` // of the completions of all flows, which begin at 0; 0 for loads

	// DataHops are packets of data times the switches on their ways, as the
	// traffic says: the same for all simulators. Hops counts all packets,
	// where a simulator counts them or they follow from its rules.
	DataHops int64 `json:"data_hops,omitempty"`
	Hops     int64 `json:"hops,omitempty"`
	Events   int64 `json:"events,omitempty"` // of ours

	// Short are the slowdowns of flows up to 10 KB, Long is the mean
	// slowdown of those above 1 MB.
	Short *Slowdowns `json:"short,omitempty"`
	Long  float64    `json:"long_mean,omitempty"`
}

// Slowdowns of flows: how many times as long they took as alone.
type Slowdowns struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

// program runs a program to its end in a directory, and returns what it printed
// and what it took.
func program(ctx context.Context, limit time.Duration, dir string, env []string, name string, args ...string) ([]byte, Run, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	var out, told bytes.Buffer
	c.Dir, c.Stdout, c.Stderr = dir, &out, &told
	if env != nil {
		c.Env = append(c.Environ(), env...)
	}
	err := c.Run()
	if ctx.Err() == context.DeadlineExceeded {
		err = fmt.Errorf("not over after %v", limit)
	}
	if err != nil {
		return nil, Run{}, fmt.Errorf("%w: %s", err, lastLines(told.String()))
	}
	r := Run{CPU: (c.ProcessState.UserTime() + c.ProcessState.SystemTime()).Seconds(), Peak: peak(c.ProcessState)}
	return out.Bytes(), r, nil
}
