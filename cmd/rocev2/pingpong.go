package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/pingpong"
)

func newPingpong(io streams) *cobra.Command {
	var f peerFlags
	var c pingpong.Config
	cmd := &cobra.Command{
		Use:   "pingpong [flags] [server]",
		Short: "Send messages back and forth, against ibv_*_pingpong or another rocev2",
		Long: `Send messages back and forth. The peer is another rocev2 pingpong, or a program
of rdma-core with a GID index (-g). Without a server argument, this side is the
server. Start both sides with the same service, size, iterations and path MTU:
the protocol negotiates nothing.

-t chooses the transport service and the program:

  rc   reliable connection                              ibv_rc_pingpong
  uc   unreliable connection                            ibv_uc_pingpong
  ud   unreliable datagrams                             ibv_ud_pingpong
  srq  reliable connections with one receive queue      ibv_srq_pingpong
  xrc  extended reliable connection                     ibv_xsrq_pingpong

uc and ud do not repeat what is lost. One lost message ends the run, with an
error.

` + controlHelp,
		Example: `  rocev2 pingpong -d 127.0.0.1                  run a server on one terminal ...
  rocev2 pingpong -d 127.0.0.2 127.0.0.1        ... and its client on another
  rocev2 pingpong -t ud -d eth0 192.0.2.7       connect to ibv_ud_pingpong -g 1
  rocev2 pingpong -d eth0 -n 10000 -s 64 -e 192.0.2.7
                                                connect to ibv_rc_pingpong -g 1 -n 10000 -s 64 -e`,
		Args: atMostServer,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runPingpong(cmd, io, &f, c, serverOf(args))
		},
	}
	f.register(cmd, "gid-idx", "g")
	fs := cmd.Flags()
	fs.VarP(nameFlag[pingpong.Service]{&c.Service, pingpong.ParseService}, "type", "t", "`service`: rc, uc, ud, srq or xrc")
	fs.VarP(sizeFlag{&c.Size}, "size", "s", "size of a message in `bytes`, also 64K or 1M (default: 4096; with ud 1024)")
	fs.IntVarP(&c.QPs, "num-qp", "q", 0, "srq: `number` of queue pairs (default: 16)")
	fs.IntVarP(&f.mtu, "mtu", "m", pingpong.DefaultMTU.Bytes(), "path MTU in `bytes`")
	fs.IntVarP(&c.RxDepth, "rx-depth", "r", pingpong.DefaultRxDepth, "`number` of receives that stay posted")
	fs.IntVarP(&c.Iterations, "iters", "n", 0, "`number` of messages in each direction (default: 1000; with xrc 5)")
	fs.IntVarP(&f.sl, "sl", "l", 0, "accepted for compatibility: Ethernet has no service level here")
	fs.BoolVarP(&c.Events, "events", "e", false, "sleep on completion events instead of polling")
	fs.BoolVarP(&c.Validate, "chk", "c", false, "check the content of the buffer at the end (give it to both sides)")
	fs.BoolP("new_send", "N", false, "accepted for compatibility: there is one way to post")
	refuse(cmd, foreignPingpong)
	return cmd
}

func runPingpong(cmd *cobra.Command, io streams, f *peerFlags, c pingpong.Config, server string) (err error) {
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
	}{{"size", c.Size}, {"iters", c.Iterations}, {"rx-depth", c.RxDepth}, {"mtu", f.mtu}, {"num-qp", c.QPs}} {
		if cmd.Flags().Changed(n.flag) && n.got < 1 {
			return usagef("--%s %d: it must be at least 1", n.flag, n.got)
		}
	}
	c.IdleTimeout, c.OnRefused = f.idle, refused(io)
	ctx, cancel := f.limit(cmd.Context())
	defer cancel()
	defer func() { err = in.end(err) }()
	dev, at, err := f.open(ctx, in, server, c.Check)
	if err != nil {
		return err
	}
	c.OnAddresses = func(local, remote []pingpong.Address) {
		for _, a := range local {
			fmt.Fprintf(io.out, "  local address:  %v\n", a)
		}
		for _, a := range remote {
			fmt.Fprintf(io.out, "  remote address: %v\n", a)
		}
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
