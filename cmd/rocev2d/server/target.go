package server

import (
	"context"
	"log/slog"
	"math"
	"net"
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
	Device  *verbs.Device
	Port    int
	Log     *slog.Logger
	Config  config.Targets
	Version string // of this software

	// OnReady, if called, tells that clients can come from now on.
	OnReady func()

	name    string
	records *records

	once    sync.Once
	streams *rstream.Server
}

// Begin records that a client has come. The error says that there are too many,
// and that it must be refused.
func (h *Host) Begin(peer net.Addr) (*Guest, error) {
	v, err := h.records.admit(h.name, h.Device.Addr().String(), peer, h.Config.Clients)
	if err != nil {
		return nil, err
	}
	return &Guest{v, h}, nil
}

// Refused records that a client was not taken, and why.
func (h *Host) Refused(peer net.Addr, why error) {
	h.records.visits.refuse(h.name)
	p := Problem{Device: h.Device.Addr().String(), Source: h.name, What: "client refused: " + why.Error()}
	if peer != nil {
		p.Peer = hostOf(peer)
	}
	h.records.problem(p)
}

// Record records a client that is done.
func (h *Host) Record(peer net.Addr, tool string, begin time.Time, result string, err error) {
	v, full := h.records.visits.begin(begin, h.name, h.Device.Addr().String(), peer, math.MaxInt)
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
	if err != nil && g.h.records.cutOff.Load() { // devices close meanwhile, so it may say anything
		err = errCutOff
	}
	g.Leave(time.Now(), g.h.name, result, err)
	if err == nil {
		g.h.Log.Info("client done", "peer", g.Peer, "tool", g.Target, "result", result)
	}
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
