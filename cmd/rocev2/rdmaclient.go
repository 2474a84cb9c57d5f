package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/programs/interop/rdmaclient"
	"github.com/gosoftroce/rocev2/verbs"
)

// rdmaFlags are the flags of rdma_client and its kin.
type rdmaFlags struct {
	cmFlags
	rdmaclient.Config
	addr string
	comm string // -c of rdma_xclient and rdma_xserver
}

// newRDMATools makes rdma_client, rdma_server, rdma_xclient and rdma_xserver.
func newRDMATools(io streams) []*cobra.Command {
	var list []*cobra.Command
	for _, name := range []string{"rdma_client", "rdma_server", "rdma_xclient", "rdma_xserver"} {
		list = append(list, newRDMATool(io, name))
	}
	return list
}

func newRDMATool(io streams, name string) *cobra.Command {
	f := &rdmaFlags{}
	f.tool = name
	server, extended := strings.HasSuffix(name, "server"), strings.Contains(name, "_x")
	peer := strings.NewReplacer("client", "server", "server", "client").Replace(name)
	what, short := "Each side sends one message of 16 bytes, the client first.", "one message each way"
	if extended {
		what, short = "The client sends one message of 16 bytes. Linux rxe has no XRC (-c x).", "one message to the server"
	}
	side, example := "client", "  rocev2 "+name+" -s 192.0.2.1"
	if server {
		side, example = "server", "  rocev2 "+name+" -d 192.0.2.1"
	}
	cmd := &cobra.Command{
		Use:     name + " [flags]",
		Short:   "Connect and send " + short + ": the " + side + " (" + name + ")",
		Long:    "Connect, and send a message: the " + side + ". The peer is " + peer + " of another rocev2, or\nof rdma-core.\n\n" + what + "\n\n" + cmHelp,
		Example: example,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runRDMATool(cmd, io, f, server) },
	}
	f.register(cmd, "", "", "d")
	fs := cmd.Flags()
	if !server {
		fs.StringVarP(&f.addr, "server", "s", "127.0.0.1", "`address` of the server")
	} else if !extended {
		fs.StringVarP(&f.addr, "server", "s", "", "local `address` to listen on: the same as --ib-dev")
	}
	fs.IntVarP(&f.port, "port", "p", rdmaclient.DefaultPort, "`port` of the server")
	if extended {
		fs.StringVarP(&f.comm, "communication", "c", "r", "`type` of communication: r, reliable connected, or x, extended reliable connected")
	}
	return cmd
}

func (f *rdmaFlags) setMode() error {
	switch {
	case !strings.Contains(f.tool, "_x"):
		return nil
	case strings.EqualFold(f.comm, "r"):
		f.Mode = rdmaclient.OneWay
	case strings.EqualFold(f.comm, "x"):
		f.Mode = rdmaclient.XRC
	default:
		return usagef("-c %s: the types of communication are r (RC) and x (XRC)", f.comm)
	}
	return nil
}

func runRDMATool(cmd *cobra.Command, io streams, f *rdmaFlags, server bool) error {
	if err := f.setMode(); err != nil {
		return err
	}
	if server {
		f.bind, f.bindFlag = f.addr, "-s"
	} else {
		f.server = f.addr
	}
	fields := func(v any) map[string]any {
		r := v.(rdmaclient.Result)
		return map[string]any{"sent": r.Sent, "received": r.Received, "unconfirmed": r.Unconfirmed, "seconds": r.Elapsed.Seconds()}
	}
	start := func(t *tool) rdmaclient.Config {
		c := f.Config
		c.IdleTimeout, c.TrafficClass = f.idle, f.trafficClass(t)
		f.say(t.streams, "%s: start", f.tool)
		return c
	}
	end := func(t *tool, err error) error {
		status := 0
		if err != nil {
			status = -1
		}
		f.say(t.streams, "%s: end %d", f.tool, status)
		return err
	}
	return f.runCM(cmd, io, connect{
		check: func(*verbs.Device) error { return f.Config.Check() },
		run: func(ctx context.Context, t *tool, server netip.AddrPort) (map[string]any, error) {
			res, err := rdmaclient.Run(ctx, t.dev, server, start(t))
			if res.Unconfirmed > 0 && res.Received == 0 && !f.json {
				fmt.Fprintln(t.err, "note: the server ended the connection before it acknowledged the message")
			}
			return fields(res), end(t, err)
		},
		serve: func(ctx context.Context, t *tool, at netip.AddrPort) error {
			c := start(t)
			c.Clients, c.OnClient = 1, onClient[rdmaclient.Result](f.clients(t, fields))
			c.OnListen = func() { f.waiting(t, at) }
			return end(t, rdmaclient.Serve(ctx, t.dev, at, c))
		},
	})
}
