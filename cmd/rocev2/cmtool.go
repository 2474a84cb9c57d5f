package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/verbs"
)

// cmFlags are the flags of a tool that connects, or listens, by the connection
// manager.
type cmFlags struct {
	toolFlags
	tool   string
	port   int
	server string // the server's address; "" for a server
	tos    int    // -t of some tools: the traffic class
}

// connect is a tool's two roles. run is the client, which returns what to print
// with --json.
type connect struct {
	check func(*verbs.Device) error
	run   func(ctx context.Context, t *tool, server netip.AddrPort) (map[string]any, error)
	serve func(ctx context.Context, t *tool, at netip.AddrPort) error
}

// runCM runs a tool in the role that the flags say.
func (f *cmFlags) runCM(cmd *cobra.Command, io streams, c connect) error {
	if err := checkPort(f.port); err != nil {
		return err
	}
	if f.tos < 0 || f.tos > 255 {
		return usagef("-t %d: a type of service is a number from 0 to 255", f.tos)
	}
	return f.run(cmd, io, f.server, func(ctx context.Context, t *tool) error {
		if err := c.check(t.dev); err != nil {
			return err
		}
		if f.server == "" {
			return c.serve(ctx, t, netip.AddrPortFrom(t.dev.Addr(), uint16(f.port)))
		}
		to, err := resolve(ctx, f.server, func(a netip.Addr) bool { return a.Is4() == t.dev.Addr().Unmap().Is4() })
		if err != nil {
			return err
		}
		v, err := c.run(ctx, t, netip.AddrPortFrom(to, uint16(f.port)))
		for key, value := range map[string]any{"tool": f.tool, "role": "client", "device": t.dev.Addr(), "server": to} {
			if v != nil {
				v[key] = value
			}
		}
		return f.object(t.streams, v, err)
	})
}

// trafficClass is that of --tclass, or of the tool's own flag.
func (f *cmFlags) trafficClass(t *tool) uint8 {
	if f.tos != 0 {
		return uint8(f.tos)
	}
	return t.in.trafficClass()
}

// waiting says that a server listens.
func (f *cmFlags) waiting(t *tool, at netip.AddrPort) {
	fmt.Fprintf(t.err, "waiting on port %d of the connection manager for clients of device %v\n", at.Port(), at.Addr())
}

// clients returns a function that tells of the clients of a server, from
// several goroutines: with --json of all, else of those that came to nothing.
func (f *cmFlags) clients(t *tool, fields func(any) map[string]any) func(net.Addr, any, error) {
	var mu sync.Mutex
	failed := refused(t.streams)
	return func(from net.Addr, res any, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed(from, err)
		}
		if !f.json {
			return
		}
		v := fields(res)
		v["tool"], v["role"], v["device"], v["client"] = f.tool, "server", t.dev.Addr(), from.String()
		if err != nil {
			v["error"] = err.Error()
		}
		_ = json.NewEncoder(t.out).Encode(v)
	}
}

// onClient makes the callback of a tool of it.
func onClient[R any](tell func(net.Addr, any, error)) func(net.Addr, R, error) {
	return func(from net.Addr, res R, err error) { tell(from, res, err) }
}

// cmHelp is what the tools say about how the two sides find each other.
const cmHelp = `The two sides connect by the connection manager, over UDP port 4791 as all RoCEv2
traffic: no TCP connection is needed. A port is one of the connection manager.
The server is done after its client, as the original; clients that say nothing
do not count. If a peer is silent for --idle-timeout, the run ends.`
