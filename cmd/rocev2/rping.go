package main

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/programs/interop/rping"
	"github.com/gosoftroce/rocev2/verbs"
)

// rpingFlags are the flags of rping.
type rpingFlags struct {
	cmFlags
	rping.Config
	isServer, isClient  bool
	addr, source        string
	verbose, persistent bool
}

func newRping(io streams) *cobra.Command {
	f := &rpingFlags{}
	f.tool = "rping"
	cmd := &cobra.Command{
		Use:   "rping -s|-c [-a address] [flags]",
		Short: "Connect, READ and WRITE back and forth (rping)",
		Long: `Connect, and send pings: the server READs each from the client, and WRITEs it
back. The peer is another rocev2 rping, or rping of rdma-core. -s is the server
and -c the client. -a is the address of the server, on both sides.

` + cmHelp + ` With -P the server serves clients
until it is interrupted.`,
		Example: `  rocev2 rping -s -a 192.0.2.1 -v                 run a server ...
  rocev2 rping -c -a 192.0.2.1 -v -V -C 10        ... and its client, on another host`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runRping(cmd, io, f) },
	}
	f.register(cmd, "", "", "")
	fs := cmd.Flags()
	fs.BoolVarP(&f.isServer, "server", "s", false, "server side")
	fs.BoolVarP(&f.isClient, "client", "c", false, "client side")
	fs.StringVarP(&f.addr, "address", "a", "", "`address` of the server: of this side's device with -s (default: any)")
	fs.StringVarP(&f.source, "source", "I", "", "client: local `address`, the same as --ib-dev")
	fs.IntVarP(&f.port, "port", "p", rping.DefaultPort, "`port` of the server")
	fs.IntVarP(&f.Count, "count", "C", 0, "client: `number` of pings (default: no end)")
	fs.VarP(sizeFlag{&f.Size}, "size", "S", "size of a ping in `bytes` (default: 64; server: at most 65536 are taken)")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "print the data of each ping")
	fs.BoolVarP(&f.Validate, "validate", "V", false, "client: compare what comes back with what was sent")
	fs.BoolVarP(&f.persistent, "persistent", "P", false, "server: serve clients without end")
	fs.BoolP("self-create-qp", "q", false, "accepted for compatibility: the program makes its queue pair in any case")
	fs.BoolP("debug", "d", false, "accepted for compatibility: --pcap and --stats show more")
	return cmd
}

func (f *rpingFlags) checkRoles(cmd *cobra.Command) error {
	switch {
	case f.isServer == f.isClient:
		return usagef("-s or -c: say which side this is")
	case f.isClient && f.addr == "":
		return usagef("-a is missing: name the server")
	case f.isClient && f.persistent:
		return usagef("-P: only a server is persistent")
	case f.isServer && f.source != "":
		return usagef("-I %s: a server is bound by -a", f.source)
	}
	f.bind, f.bindFlag = f.source, "-I"
	if f.isServer {
		f.bind, f.bindFlag = f.addr, "-a"
	} else {
		f.server = f.addr
	}
	return positive(cmd, map[string]int{"count": f.Count, "size": f.Size})
}

func runRping(cmd *cobra.Command, io streams, f *rpingFlags) error {
	if err := f.checkRoles(cmd); err != nil {
		return err
	}
	fields := func(v any) map[string]any {
		r := v.(rping.Result)
		return map[string]any{"pings": r.Pings, "bytes": r.Bytes, "seconds": r.Elapsed.Seconds()}
	}
	config := func(t *tool, what string) rping.Config {
		c := f.Config
		c.IdleTimeout, c.TrafficClass = f.idle, f.trafficClass(t)
		if f.verbose && !f.json {
			c.OnPing = func(data []byte) { fmt.Fprintf(t.out, "%s: %s\n", what, data) }
		}
		return c
	}
	return f.runCM(cmd, io, connect{
		check: func(*verbs.Device) error { return f.Config.Check() },
		run: func(ctx context.Context, t *tool, server netip.AddrPort) (map[string]any, error) {
			res, err := rping.Run(ctx, t.dev, server, config(t, "ping data"))
			return fields(res), err
		},
		serve: func(ctx context.Context, t *tool, at netip.AddrPort) error {
			c := config(t, "server ping data")
			if c.Clients = 1; f.persistent {
				c.Clients = 0
			}
			c.OnClient = onClient[rping.Result](f.clients(t, fields))
			c.OnListen = func() { f.waiting(t, at) }
			return rping.Serve(ctx, t.dev, at, c)
		},
	})
}
