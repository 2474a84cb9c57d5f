package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/programs/interop/cmtime"
)

// cmtimeFlags are the flags of cmtime.
type cmtimeFlags struct {
	cmFlags
	cmtime.Config
	retries, timeoutMS int
}

func newCmtime(io streams) *cobra.Command {
	f := &cmtimeFlags{}
	f.tool = "cmtime"
	cmd := &cobra.Command{
		Use:   "cmtime [-s server] [flags]",
		Short: "Make many connections at once and measure each step (cmtime)",
		Long: `Make many connections at once, end them, and print how long each step took. The
peer is another rocev2 cmtime, or cmtime of rdma-core. The server runs until it
is interrupted, or until it has had as many connections as -c says, if it is
given.

The two sides connect by the connection manager, over UDP port 4791 as all RoCEv2
traffic: no TCP connection is needed. If nothing happens for --idle-timeout, the
run ends.`,
		Example: `  rocev2 cmtime -b 192.0.2.1              run a server ...
  rocev2 cmtime -s 192.0.2.1 -c 1000      ... and its client, on another host`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runCmtime(cmd, io, f) },
	}
	f.register(cmd, "b", "local `address` or interface: the same as --ib-dev", "d")
	fs := cmd.Flags()
	fs.StringVarP(&f.server, "server", "s", "", "`address` of the server; without it, this side is the server")
	fs.IntVarP(&f.Connections, "connections", "c", cmtime.DefaultConnections, "`number` of connections (server: default no end)")
	fs.IntVarP(&f.port, "port", "p", cmtime.DefaultPort, "`port` of the server")
	fs.IntVarP(&f.retries, "retries", "r", cmtime.DefaultRetries, "`number` of retries when an address or a route is resolved")
	fs.IntVarP(&f.timeoutMS, "timeout_ms", "t", int(cmtime.DefaultTimeout.Milliseconds()), "time for the same, in `milliseconds`")
	return cmd
}

func runCmtime(cmd *cobra.Command, io streams, f *cmtimeFlags) error {
	if err := positive(cmd, map[string]int{"connections": f.Connections, "timeout_ms": f.timeoutMS}); err != nil {
		return err
	}
	if f.retries < 0 {
		return usagef("-r %d: it must be at least 0", f.retries)
	}
	if f.Retries = f.retries; f.retries == 0 {
		f.Retries = -1
	}
	f.Timeout = time.Duration(f.timeoutMS) * time.Millisecond
	f.Bind = f.bind != ""
	return f.runCM(cmd, io, connect{
		check: f.Config.Check,
		run: func(ctx context.Context, t *tool, server netip.AddrPort) (map[string]any, error) {
			c := f.Config
			c.IdleTimeout, c.TrafficClass = f.idle, f.trafficClass(t)
			c.OnStep = func(s cmtime.Step) { f.say(t.streams, "%s", doingStep[s]) }
			res, err := cmtime.Run(ctx, t.dev, server, c)
			if err != nil {
				return nil, err
			}
			f.table(t, &res)
			return cmtimeFields(&res, f.Bind), nil
		},
		serve: func(ctx context.Context, t *tool, at netip.AddrPort) error {
			c := f.Config
			c.IdleTimeout, c.TrafficClass = f.idle, f.trafficClass(t)
			if cmd.Flags().Changed("connections") {
				c.Clients = c.Connections
			}
			tell := f.clients(t, func(v any) map[string]any { return map[string]any{"seconds": v.(time.Duration).Seconds()} })
			c.OnClient = func(from net.Addr, lasted time.Duration, err error) { tell(from, lasted, err) }
			c.OnListen = func() { f.waiting(t, at) }
			return cmtime.Serve(ctx, t.dev, at, c)
		},
	})
}

// doingStep is what the original says when a step begins.
var doingStep = map[cmtime.Step]string{
	cmtime.CreateID: "creating id", cmtime.BindAddr: "binding source address", cmtime.ResolveAddr: "resolving address",
	cmtime.ResolveRoute: "resolving route", cmtime.CreateQP: "creating qp", cmtime.Connect: "connecting",
	cmtime.Disconnect: "disconnecting", cmtime.Destroy: "destroying id",
}

// table prints the times as the original does.
func (f *cmtimeFlags) table(t *tool, res *cmtime.Result) {
	f.say(t.streams, "step              total ms     max ms     min us  us / conn")
	for _, s := range cmtime.Steps {
		if s == cmtime.BindAddr && !f.Bind {
			continue
		}
		at := res.Steps[s]
		f.say(t.streams, "%-13s: %11.2f%11.2f%11.2f%11.2f", s, msec(at.Total), msec(at.Max), usec(at.Min), usec(res.PerConnection(s)))
	}
}

func msec(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// cmtimeFields is the result as --json prints it: microseconds of each step.
func cmtimeFields(res *cmtime.Result, bind bool) map[string]any {
	v := map[string]any{"connections": res.Connections}
	for _, s := range cmtime.Steps {
		if s == cmtime.BindAddr && !bind {
			continue
		}
		at := res.Steps[s]
		v[strings.ReplaceAll(fmt.Sprint(s), " ", "_")] = map[string]float64{
			"us_total": usec(at.Total), "us_max": usec(at.Max), "us_min": usec(at.Min), "us_per_connection": usec(res.PerConnection(s)),
		}
	}
	return v
}
