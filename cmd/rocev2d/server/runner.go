package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/rdma/cm"
)

// targets runs the targets of all devices.
type targets struct {
	version string // of this software
	cfg     config.Targets
	records *records
	wg      sync.WaitGroup

	mu   sync.Mutex // guards list, and the states in it
	list []*targetState
}

// start starts all that the configuration wants, on every device. A target that
// cannot serve is a problem, and the others go on.
func (t *targets) start(ctx context.Context, devices []*device, list []Target) {
	for _, d := range devices {
		boards := map[string]*switchboard{}
		for i := range list {
			target := &list[i]
			port := wanted(&t.cfg, target)
			if port == 0 || target.Name == "rcopy" && t.cfg.Root == "" {
				continue
			}
			st := &targetState{Name: target.Name, Tools: target.Tools, Device: d.addr(), Port: max(port, 0), Space: target.Space, State: "starting"}
			t.add(st)
			h := t.hostOf(d, target, st)
			if target.Request == nil {
				t.wg.Go(func() { t.ended(ctx, d, target.Name, st, target.Serve(ctx, h)) })
				continue
			}
			key := fmt.Sprint(target.Space, port)
			b := boards[key]
			if b == nil {
				b = &switchboard{d: d, port: port, space: target.Space, records: t.records, clients: t.cfg.Clients}
				boards[key] = b
			}
			b.targets, b.hosts, b.states = append(b.targets, target), append(b.hosts, h), append(b.states, st)
		}
		for _, b := range boards {
			t.wg.Go(func() { t.run(ctx, b) })
		}
	}
}

func (t *targets) hostOf(d *device, target *Target, st *targetState) *Host {
	return &Host{
		Device: d.dev, Port: st.Port, Log: t.records.log.With("target", target.Name, "device", d.addr()), Config: t.cfg, Version: t.version,
		OnReady: func() { t.set(st, "serving", nil) }, name: target.Name, records: t.records,
	}
}

// ended records that a target serves no more, and why.
func (t *targets) ended(ctx context.Context, d *device, name string, st *targetState, err error) {
	if endedBy(ctx, err) {
		t.set(st, "stopped", nil)
		return
	}
	t.set(st, "failed", err)
	t.records.problem(Problem{
		Device: d.addr(), Source: name, What: err.Error(), Meaning: fmt.Sprintf("clients of %s are not answered", name),
		Remedy: "end what has the port, or give the target another one (targets.ports), and restart the daemon",
	})
}

// run serves all the targets of a port.
func (t *targets) run(ctx context.Context, b *switchboard) {
	err := b.run(ctx, func() {
		for _, st := range b.states {
			t.set(st, "serving", nil)
		}
	})
	for i, st := range b.states {
		t.ended(ctx, b.d, b.targets[i].Name, st, err)
	}
}

func (t *targets) add(st *targetState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list = append(t.list, st)
}

func (t *targets) states() (list []targetState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.list {
		list = append(list, *s)
	}
	return list
}

func (t *targets) set(st *targetState, state string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st.State == "failed" {
		return
	}
	if st.State = state; err != nil {
		st.Error = clip(err.Error())
	}
}

// endedBy reports whether the error of a target only says that it was to end.
func endedBy(ctx context.Context, err error) bool {
	return err == nil || ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, errNetClosed) || errors.Is(err, cm.ErrClosed))
}

// wanted returns the port of a target, 0 if it is not to run.
func wanted(c *config.Targets, t *Target) int {
	switch {
	case !c.Enabled, len(c.Only) > 0 && !slices.Contains(c.Only, t.Name):
		return 0
	case t.Space == spaceGroup && len(c.Groups) == 0: // nothing to listen to
		return 0
	}
	if p, ok := c.Ports[t.Name]; ok {
		return p
	}
	return t.Port
}
