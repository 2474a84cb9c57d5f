package main

import (
	"context"
	"net/netip"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gosoftroce/rocev2/programs/interop/udaddy"
)

// udaddyFlags are the flags of udaddy.
type udaddyFlags struct {
	cmFlags
	udaddy.Config
	format, space, number string
}

func newUdaddy(io streams) *cobra.Command {
	f := &udaddyFlags{}
	f.tool = "udaddy"
	cmd := &cobra.Command{
		Use:   "udaddy [-s server] [flags]",
		Short: "Look for a datagram service and exchange messages with it (udaddy)",
		Long: `Ask the connection manager of the server for a queue pair, send datagrams to it,
and receive as many. The peer is another rocev2 udaddy, or udaddy of rdma-core.
Start both sides with the same number of queue pairs (-c), and number (-C) and
size (-S) of messages. Datagrams are not repeated: a lost one ends the run, with
an error.

` + cmHelp,
		Example: `  rocev2 udaddy -b 192.0.2.1            run a server ...
  rocev2 udaddy -s 192.0.2.1            ... and its client, on another host
  rocev2 udaddy -s 192.0.2.1 -c 10 -S 1000`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runUdaddy(cmd, io, f) },
	}
	f.register(cmd, "b", "local `address` or interface: the same as --ib-dev", "d")
	fs := cmd.Flags()
	fs.StringVarP(&f.server, "server", "s", "", "`address` of the server; without it, this side is the server")
	registerFormat(fs, &f.format)
	fs.StringVarP(&f.space, "port_space", "P", "udp", "port `space`: there is udp only")
	fs.StringVarP(&f.number, "port_space_number", "p", "0x0111", "port `space`, as a number")
	fs.IntVarP(&f.Connections, "connections", "c", 1, "`number` of queue pairs")
	fs.IntVarP(&f.Messages, "messages", "C", udaddy.DefaultMessages, "`number` of messages of each queue pair, in each direction")
	fs.VarP(sizeFlag{&f.Size}, "size", "S", "size of a message in `bytes` (default: 100)")
	fs.IntVarP(&f.tos, "tos", "t", 0, "type of `service`: the same as --tclass")
	fs.IntVar(&f.port, "port", udaddy.DefaultPort, "`port` of the server, which the original cannot change")
	return cmd
}

// registerFormat adds the flag for the form of addresses.
func registerFormat(fs *pflag.FlagSet, format *string) {
	fs.StringVarP(format, "address_format", "f", "", "`form` of the addresses: name, ip or ipv6 (default: what fits)")
}

// checkFormat checks addresses against what the user says that they are.
func checkFormat(format string, addresses ...string) error {
	want := map[string]func(netip.Addr) bool{
		"": nil, "name": nil, "ip": netip.Addr.Is4, "ipv6": netip.Addr.Is6,
	}
	fits, ok := want[format]
	switch {
	case format == "gid":
		return usagef("-f gid: there are no IB addresses (AF_IB) on Ethernet: the address that a GID stands for serves with ip or ipv6")
	case !ok:
		return usagef("-f %s: the forms of an address are name, ip and ipv6", format)
	}
	for _, text := range addresses {
		if a, err := netip.ParseAddr(text); fits != nil && text != "" && (err != nil || !fits(a)) {
			return usagef("-f %s: %s is of another form", format, text)
		}
	}
	return nil
}

func (f *udaddyFlags) checkUdaddy(cmd *cobra.Command) error {
	if err := checkFormat(f.format, f.server, f.bind); err != nil {
		return err
	}
	switch f.space {
	case "udp":
	case "ipoib":
		return usagef("-P ipoib: there is no IPoIB on Ethernet")
	default:
		return usagef("-P %s: the port space of datagrams is udp", f.space)
	}
	if err := checkSpace(f.number); err != nil {
		return err
	}
	return positive(cmd, map[string]int{"connections": f.Connections, "messages": f.Messages, "size": f.Size})
}

func runUdaddy(cmd *cobra.Command, io streams, f *udaddyFlags) error {
	if err := f.checkUdaddy(cmd); err != nil {
		return err
	}
	fields := func(v any) map[string]any {
		r := v.(udaddy.Result)
		return map[string]any{
			"connections": r.Connections, "sent": r.Sent, "received": r.Received, "bytes": r.Bytes, "seconds": r.Elapsed.Seconds(),
		}
	}
	return f.runCM(cmd, io, connect{
		check: f.Config.Check,
		run: func(ctx context.Context, t *tool, server netip.AddrPort) (map[string]any, error) {
			c := f.Config
			c.TrafficClass, c.OnStep = f.trafficClass(t), f.steps(t, "initiating data transfers")
			f.say(t.streams, "udaddy: starting client\nudaddy: connecting")
			res, err := udaddy.Run(ctx, t.dev, server, c)
			return fields(res), f.complete(t, err)
		},
		serve: func(ctx context.Context, t *tool, at netip.AddrPort) error {
			c := f.Config
			c.TrafficClass, c.OnStep = f.trafficClass(t), f.steps(t, "sending replies")
			c.Clients = c.Connections
			c.OnClient = onClient[udaddy.Result](f.clients(t, fields))
			f.say(t.streams, "udaddy: starting server")
			c.OnListen = func() { f.waiting(t, at) }
			return f.complete(t, udaddy.Serve(ctx, t.dev, at, c))
		},
	})
}

// steps returns a function that says each step once, however many queue pairs
// there are.
func (f *udaddyFlags) steps(t *tool, sending string) func(udaddy.Step) {
	said := map[udaddy.Step]func(){
		udaddy.Sending:   sync.OnceFunc(func() { f.say(t.streams, "%s", sending) }),
		udaddy.Receiving: sync.OnceFunc(func() { f.say(t.streams, "receiving data transfers") }),
	}
	return func(s udaddy.Step) { said[s]() }
}

// complete says how the tool ended. It returns err.
func (f *udaddyFlags) complete(t *tool, err error) error {
	if err == nil {
		f.say(t.streams, "data transfers complete")
	}
	return f.finish(t, err)
}
