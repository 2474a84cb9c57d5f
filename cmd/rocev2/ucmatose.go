package main

import (
	"context"
	"net/netip"
	"sync"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/programs/interop/cmatose"
)

// ucmatoseFlags are the flags of ucmatose.
type ucmatoseFlags struct {
	cmFlags
	cmatose.Config
	format, space string
	ackTimeout    uint8
}

func newUcmatose(io streams) *cobra.Command {
	f := &ucmatoseFlags{}
	f.tool = "ucmatose"
	cmd := &cobra.Command{
		Use:     "ucmatose [-s server] [flags]",
		Aliases: []string{"cmatose"},
		Short:   "Make connections and send messages over them (ucmatose)",
		Long: `Make connections, and send messages over each: first the server, then the client.
The server disconnects. The peer is another rocev2 ucmatose, or ucmatose of
rdma-core. Start both sides with the same number of connections (-c), and number
(-C) and size (-S) of messages.

` + cmHelp,
		Example: `  rocev2 ucmatose -b 192.0.2.1            run a server ...
  rocev2 ucmatose -s 192.0.2.1            ... and its client, on another host
  rocev2 ucmatose -s 192.0.2.1 -c 100 -C 1000 -S 64K`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runUcmatose(cmd, io, f) },
	}
	f.register(cmd, "b", "local `address` or interface: the same as --ib-dev", "d")
	fs := cmd.Flags()
	fs.StringVarP(&f.server, "server", "s", "", "`address` of the server; without it, this side is the server")
	registerFormat(fs, &f.format)
	fs.StringVarP(&f.space, "port_space", "P", "tcp", "port `space`: tcp or ib")
	fs.IntVarP(&f.Connections, "connections", "c", 1, "`number` of connections")
	fs.IntVarP(&f.Messages, "messages", "C", cmatose.DefaultMessages, "`number` of messages over each connection, in each direction")
	fs.VarP(sizeFlag{&f.Size}, "size", "S", "size of a message in `bytes` (default: 100)")
	fs.IntVarP(&f.tos, "tos", "t", 0, "type of `service`: the same as --tclass")
	fs.IntVarP(&f.port, "port", "p", cmatose.DefaultPort, "`port` of the server")
	fs.BoolP("migrate", "m", false, "accepted for compatibility: there are no event channels to migrate between")
	fs.Uint8VarP(&f.ackTimeout, "ack_timeout", "a", 0, "client: acknowledgement timeout of 4.096 µs × 2^`n` (default: 17)")
	return cmd
}

func (f *ucmatoseFlags) checkUcmatose(cmd *cobra.Command) error {
	if err := checkFormat(f.format, f.server, f.bind); err != nil {
		return err
	}
	switch f.space {
	case "tcp":
	case "ib":
		f.IBSpace = true
	default:
		return usagef("-P %s: the port spaces of connections are tcp and ib", f.space)
	}
	return positive(cmd, map[string]int{"connections": f.Connections, "messages": f.Messages, "size": f.Size})
}

func runUcmatose(cmd *cobra.Command, io streams, f *ucmatoseFlags) error {
	if err := f.checkUcmatose(cmd); err != nil {
		return err
	}
	f.AckTimeout = f.ackTimeout
	fields := func(v any) map[string]any {
		r := v.(cmatose.Result)
		return map[string]any{
			"connections": r.Connections, "sent": r.Sent, "received": r.Received, "unconfirmed": r.Unconfirmed,
			"bytes": r.Bytes, "seconds": r.Elapsed.Seconds(),
		}
	}
	return f.runCM(cmd, io, connect{
		check: f.Config.Check,
		run: func(ctx context.Context, t *tool, server netip.AddrPort) (map[string]any, error) {
			c := f.Config
			c.IdleTimeout, c.TrafficClass, c.OnStep = f.idle, f.trafficClass(t), f.steps(t, clientSteps)
			f.say(t.streams, "cmatose: starting client\ncmatose: connecting")
			res, err := cmatose.Run(ctx, t.dev, server, c)
			return fields(res), f.finish(t, err)
		},
		serve: func(ctx context.Context, t *tool, at netip.AddrPort) error {
			c := f.Config
			c.IdleTimeout, c.TrafficClass, c.OnStep = f.idle, f.trafficClass(t), f.steps(t, serverSteps)
			c.Clients = c.Connections
			c.OnClient = onClient[cmatose.Result](f.clients(t, fields))
			f.say(t.streams, "cmatose: starting server")
			c.OnListen = func() { f.waiting(t, at) }
			return f.finish(t, cmatose.Serve(ctx, t.dev, at, c))
		},
	})
}

// What the original says at each step.
var (
	clientSteps = map[cmatose.Step]string{
		cmatose.Receiving: "receiving data transfers", cmatose.Sending: "sending replies", cmatose.Disconnected: "data transfers complete",
	}
	serverSteps = map[cmatose.Step]string{
		cmatose.Sending: "initiating data transfers", cmatose.Receiving: "completing sends\nreceiving data transfers",
		cmatose.Disconnecting: "data transfers complete\ncmatose: disconnecting", cmatose.Disconnected: "disconnected",
	}
)

// steps returns a function that says each step once, however many connections
// there are.
func (f *ucmatoseFlags) steps(t *tool, texts map[cmatose.Step]string) func(cmatose.Step) {
	var mu sync.Mutex
	said := map[cmatose.Step]bool{}
	return func(s cmatose.Step) {
		mu.Lock()
		defer mu.Unlock()
		if text := texts[s]; text != "" && !said[s] {
			said[s] = true
			f.say(t.streams, "%s", text)
		}
	}
}

// finish says how the tool ended, as the originals do. It returns err.
func (f *cmFlags) finish(t *tool, err error) error {
	if f.json {
		return err
	}
	return f.end(t.streams, nil, err)
}
