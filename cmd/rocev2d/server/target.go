package server

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/programs/interop/rstream"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// Target is a server of one of the field's tools, or of several that share a
// port.
type Target struct {
	Name  string   // "rping"
	Tools []string // the programs that it answers: "ibv_rc_pingpong"
	Port  int      // the usual one
	Space string   // "TCP": a port of TCP; "RDMA TCP", "RDMA UDP": a port space of the connection manager

	// Serve answers clients, for ever and many at the same time, until ctx
	// ends. It returns nil then, and what is wrong where it cannot serve.
	// It is nil for a target of the connection manager.
	Serve func(ctx context.Context, h *Host) error

	// Request serves one client of the connection manager, and says in
	// words what came of it. It answers the request in any case.
	Request func(ctx context.Context, h *Host, r *cm.Request) (result string, err error)

	// Greet, if not nil, says how a request of this target is accepted; nil
	// stands for a zero cm.AcceptConfig.
	Greet cm.Greeter

	// Fits reports whether a request is as the clients of this target make
	// it, where others share the port. nil stands for all requests that do
	// not fit another one.
	Fits func(p cm.Params, private []byte) bool
}

// Host is what a target runs on: one device, and the records of its clients.
type Host struct {
	Device *verbs.Device
	Port   int
	Log    *slog.Logger
	Config config.Targets

	// OnReady, if called, tells that clients can come from now on.
	OnReady func()

	name string
	s    *Server

	once    sync.Once
	streams *rstream.Server
}

// Begin records that a client has come. The error says that there are too many,
// and that it must be refused.
func (h *Host) Begin(peer net.Addr) (*Guest, error) {
	v, err := h.s.admit(h.name, h.Device.Addr().String(), peer, h.Config.Clients)
	if err != nil {
		return nil, err
	}
	return &Guest{v, h}, nil
}

// Refused records that a client was not taken, and why.
func (h *Host) Refused(peer net.Addr, why error) {
	h.s.visits.refuse(h.name)
	p := Problem{Device: h.Device.Addr().String(), Source: h.name, What: "client refused: " + why.Error()}
	if peer != nil {
		p.Peer = hostOf(peer)
	}
	h.s.problem(p)
}

// Record records a client that is done.
func (h *Host) Record(peer net.Addr, tool string, begin time.Time, result string, err error) {
	v, full := h.s.visits.begin(begin, h.name, h.Device.Addr().String(), peer, math.MaxInt)
	if full != nil {
		return
	}
	v.Is(tool, 0)
	(&Guest{v, h}).End(result, err)
}

// Guest is a client of a target.
type Guest struct {
	*Visit
	h *Host
}

// End records what the client came to: a result in words, or an error.
func (g *Guest) End(result string, err error) {
	if err != nil && g.h.s.cut.Load() { // devices close meanwhile, so it may say anything
		err = errCutOff
	}
	g.Leave(time.Now(), g.h.name, result, err)
	if err == nil {
		g.h.Log.Info("client done", "peer", g.Peer, "tool", g.Target, "result", result)
	}
}

// hostOf returns the address without the port, by which errors of one host are
// gathered.
func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}

// targetState is a target on a device, for those who ask.
type targetState struct {
	Name   string   `json:"name"`
	Tools  []string `json:"tools"`
	Device string   `json:"device"`
	Port   int      `json:"port"`
	Space  string   `json:"space"`
	State  string   `json:"state"` // "starting", "serving", "failed", "stopped"
	Error  string   `json:"error,omitempty"`
}

// targets runs the targets of all devices.
type targets struct {
	mu   sync.Mutex
	list []*targetState
	wg   sync.WaitGroup
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

// startTargets starts all that the configuration wants, on every device. A
// target that cannot serve is told of, and the others go on.
func (s *Server) startTargets(ctx context.Context, list []Target) {
	for _, d := range s.devices {
		boards := map[string]*switchboard{}
		for i := range list {
			t := &list[i]
			port := wanted(&s.cfg.Targets, t)
			if port == 0 || t.Name == "rcopy" && s.cfg.Targets.Root == "" {
				continue
			}
			st := &targetState{Name: t.Name, Tools: t.Tools, Device: d.addr(), Port: max(port, 0), Space: t.Space, State: "starting"}
			s.targets.list = append(s.targets.list, st)
			h := s.hostOf(d, t, st)
			if t.Request == nil {
				s.targets.wg.Go(func() { s.targetEnded(ctx, d, t.Name, st, t.Serve(ctx, h)) })
				continue
			}
			key := fmt.Sprint(t.Space, port)
			b := boards[key]
			if b == nil {
				b = &switchboard{d: d, port: port, space: t.Space}
				boards[key] = b
			}
			b.targets, b.hosts, b.states = append(b.targets, t), append(b.hosts, h), append(b.states, st)
		}
		for _, b := range boards {
			s.targets.wg.Go(func() { s.runSwitchboard(ctx, b) })
		}
	}
}

func (s *Server) hostOf(d *device, t *Target, st *targetState) *Host {
	return &Host{
		Device: d.dev, Port: st.Port, Log: s.log.With("target", t.Name, "device", d.addr()), Config: s.cfg.Targets,
		OnReady: func() { s.targets.set(st, "serving", nil) }, name: t.Name, s: s,
	}
}

// targetEnded records that a target serves no more, and why.
func (s *Server) targetEnded(ctx context.Context, d *device, name string, st *targetState, err error) {
	if endedBy(ctx, err) {
		s.targets.set(st, "stopped", nil)
		return
	}
	s.targets.set(st, "failed", err)
	s.problem(Problem{
		Device: d.addr(), Source: name, What: err.Error(), Meaning: fmt.Sprintf("clients of %s are not answered", name),
		Remedy: "end what has the port, or give the target another one (targets.ports), and restart the daemon",
	})
}
