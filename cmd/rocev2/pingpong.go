package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/interop"
	"github.com/gosoftroce/rocev2/interop/pingpong"
	"github.com/gosoftroce/rocev2/verbs"
)

func newPingpong(io streams) *cobra.Command {
	var f peerFlags
	var c pingpong.Config
	cmd := &cobra.Command{
		Use:   "pingpong [flags] [server]",
		Short: "Send messages back and forth, against ibv_rc_pingpong or another rocev2",
		Long: `Send messages back and forth over a reliable connection. The peer is another
rocev2 pingpong, or ibv_rc_pingpong with a GID index (-g). Without a server
argument, this side is the server. Start both sides with the same size,
iterations and path MTU: the protocol negotiates nothing.

` + controlHelp,
		Example: `  rocev2 pingpong -d 127.0.0.1                  run a server on one terminal ...
  rocev2 pingpong -d 127.0.0.2 127.0.0.1        ... and its client on another
  rocev2 pingpong -d eth0 -n 10000 -s 64 -e 192.0.2.7
                                                connect to ibv_rc_pingpong -g 1 -n 10000 -s 64 -e`,
		Args: atMostServer,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runPingpong(cmd.Context(), io, &f, c, serverOf(args))
		},
	}
	f.register(cmd, "gid-idx", "g")
	fs := cmd.Flags()
	c.Size = pingpong.DefaultSize
	fs.VarP(sizeFlag{&c.Size}, "size", "s", "size of a message in `bytes`, also 64K or 1M")
	fs.IntVarP(&f.mtu, "mtu", "m", pingpong.DefaultMTU.Bytes(), "path MTU in `bytes`")
	fs.IntVarP(&c.RxDepth, "rx-depth", "r", pingpong.DefaultRxDepth, "`number` of receives that stay posted")
	fs.IntVarP(&c.Iterations, "iters", "n", pingpong.DefaultIterations, "`number` of messages in each direction")
	fs.IntVarP(&f.sl, "sl", "l", 0, "accepted for compatibility: Ethernet has no service level here")
	fs.BoolVarP(&c.Events, "events", "e", false, "sleep on completion events instead of polling")
	fs.BoolVarP(&c.Validate, "chk", "c", false, "check the content of the buffer at the end (give it to both sides)")
	fs.BoolP("new_send", "N", false, "accepted for compatibility: there is one way to post")
	refuse(cmd, foreignPingpong)
	return cmd
}

func runPingpong(ctx context.Context, io streams, f *peerFlags, c pingpong.Config, server string) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	in, err := f.inspect.begin(io)
	if err != nil {
		return err
	}
	io = in.streams
	c.TrafficClass = in.trafficClass()
	if c.MTU, c.SourcePort, c.Peers, err = f.forBoth(); err != nil {
		return err
	}
	for _, n := range []struct {
		flag string
		got  int
	}{{"-s", c.Size}, {"-n", c.Iterations}, {"-r", c.RxDepth}, {"-m", f.mtu}} {
		if n.got < 1 {
			return usagef("%s %d: it must be at least 1", n.flag, n.got)
		}
	}
	c.IdleTimeout, c.OnRefused = f.idle, refused(io)
	ctx, cancel := f.limit(ctx)
	defer cancel()
	defer func() { err = in.end(err) }()
	dev, at, err := f.open(ctx, in, server, func(*verbs.Device) error { return c.Check() })
	if err != nil {
		return err
	}
	c.OnAddresses = func(local, remote pingpong.Address) {
		fmt.Fprintf(io.out, "  local address:  %v\n  remote address: %v\n", local, remote)
	}
	p := newProgress(io, f.progress)
	c.OnProgress = func(done, total uint64) { p.show("pingpong", done, total) }
	var res pingpong.Result
	if server == "" {
		res, err = pingpong.Serve(ctx, dev, at.ln, c)
	} else {
		res, err = pingpong.Run(ctx, dev, at.conn, interop.Client, c)
	}
	p.clear()
	if err != nil {
		return err
	}
	return printPingpong(io, res)
}

// printPingpong prints the result as ibv_rc_pingpong does.
func printPingpong(io streams, res pingpong.Result) error {
	if res.Unconfirmed {
		fmt.Fprintln(io.err, "note: the peer ended before it acknowledged the last message")
	}
	seconds := res.Elapsed.Seconds()
	_, err := fmt.Fprintf(io.out, "%d bytes in %.2f seconds = %.2f Mbit/sec\n%d iters in %.2f seconds = %.2f usec/iter\n",
		res.Bytes, seconds, res.Gbps()*1000, res.Iterations, seconds, seconds*1e6/float64(res.Iterations))
	return err
}
