package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/programs/interop/rstream"
	"github.com/gosoftroce/rocev2/verbs"
)

// rstreamFlags are the flags of rstream.
type rstreamFlags struct {
	cmFlags
	rstream.Config
	format, size string
	tests        []string
}

func newRstream(io streams) *cobra.Command {
	f := &rstreamFlags{}
	f.tool = "rstream"
	cmd := &cobra.Command{
		Use:   "rstream [-s server] [flags]",
		Short: "Measure latency and bandwidth of streams over RDMA (rstream)",
		Long: `Measure streams over RDMA (rsockets), which programs of this library have as
net.Conn. The peer is another rocev2 rstream, or rstream of librdmacm. Without
-S, -C and -I there are two series of tests, one of latency and one of
bandwidth. With any of them there is one test. Start both sides with the same
flags: the protocol negotiates nothing.

` + cmHelp,
		Example: `  rocev2 rstream -b 192.0.2.1                    run a server ...
  rocev2 rstream -s 192.0.2.1                    ... and its client, on another host
  rocev2 rstream -s 192.0.2.1 -S 1M -C 1 -I 100 -T v`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runRstream(cmd, io, f) },
	}
	f.register(cmd, "b", "local `address` or interface: the same as --ib-dev", "d")
	fs := cmd.Flags()
	fs.StringVarP(&f.server, "server", "s", "", "`address` of the server; without it, this side is the server")
	registerFormat(fs, &f.format)
	fs.VarP(sizeFlag{&f.Buffer}, "buffer-size", "B", "size of the buffers in `bytes` (default: 512K)")
	fs.IntVarP(&f.Iterations, "iterations", "I", 0, "`number` of times that the transfers go forth and back")
	fs.IntVarP(&f.Count, "count", "C", 0, "`number` of transfers in each direction, each time")
	fs.StringVarP(&f.size, "size", "S", "", "size of a transfer in `bytes`, or all: series of all sizes")
	fs.IntVarP(&f.port, "port", "p", rstream.DefaultPort, "`port` of the server")
	fs.StringArrayVarP(&f.tests, "test", "T", nil, "test `option`: v or verify checks the data; a, b, n and r are accepted: this side always sleeps when there is nothing to do")
	return cmd
}

func (f *rstreamFlags) checkRstream(cmd *cobra.Command) error {
	if err := checkFormat(f.format, f.server, f.bind); err != nil {
		return err
	}
	for _, t := range f.tests {
		switch t {
		case "v", "verify":
			f.Verify = true
		case "a", "async", "b", "blocking", "n", "nonblocking", "r", "resolve":
		case "s", "socket", "f", "fork":
			return usagef("-T %s: this program has streams over RDMA only, no TCP sockets", t)
		default:
			return usagef("-T %s: the options are v, a, b, n and r", t)
		}
	}
	switch f.size {
	case "":
	case "all":
		f.All = true
	default:
		if err := (sizeFlag{&f.Size}).Set(f.size); err != nil {
			return usagef("-S %s: %v", f.size, err)
		}
	}
	if cmd.Flags().Changed("size") && !f.All && f.Size < 1 {
		return usagef("-S %s: it must be at least 1, or all", f.size)
	}
	return positive(cmd, map[string]int{"iterations": f.Iterations, "count": f.Count, "buffer-size": f.Buffer})
}

const (
	rstreamHeader = "name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer"
	rstreamRow    = "%-10s%-8s%-8s%-8s%-8s%8.2fs%10.2f%11.2f"
)

func runRstream(cmd *cobra.Command, io streams, f *rstreamFlags) error {
	if err := f.checkRstream(cmd); err != nil {
		return err
	}
	var mu sync.Mutex
	var rows []map[string]any
	config := func(t *tool) rstream.Config {
		c := f.Config
		c.IdleTimeout = f.idle
		f.say(t.streams, rstreamHeader)
		c.OnResult = func(_ string, r rstream.Result) {
			mu.Lock()
			defer mu.Unlock()
			rows = append(rows, map[string]any{
				"name": r.Name, "size": r.Size, "count": r.Count, "iterations": r.Iterations, "bytes": r.Bytes(),
				"seconds": r.Elapsed.Seconds(), "gbps": r.Gbps(), "usec_per_transfer": float64(r.TransferTime()) / float64(time.Microsecond),
			})
			f.say(t.streams, rstreamRow, r.Name, rstream.Short(uint64(r.Size)), count(r.Count), count(r.Iterations), rstream.Short(r.Bytes()),
				r.Elapsed.Seconds(), r.Gbps(), float64(r.Elapsed.Microseconds())/float64(r.Iterations)/float64(2*r.Count))
		}
		return c
	}
	return f.runCM(cmd, io, connect{
		check: func(*verbs.Device) error { return f.Config.Check() },
		run: func(ctx context.Context, t *tool, server netip.AddrPort) (map[string]any, error) {
			_, err := rstream.Run(ctx, t.dev, server, config(t))
			return map[string]any{"tests": rows}, err
		},
		serve: func(ctx context.Context, t *tool, at netip.AddrPort) error {
			c := config(t)
			c.Clients = 1
			c.OnListen = func() { f.waiting(t, at) }
			if err := rstream.Serve(ctx, t.dev, at, c); err != nil {
				return err
			}
			return f.object(t.streams, map[string]any{"tool": f.tool, "role": "server", "device": t.dev.Addr(), "tests": rows}, nil)
		},
	})
}

// count writes a number of transfers as rstream does: "100k".
func count(n int) string {
	switch {
	case n >= 1e6 && n%1e6 == 0:
		return fmt.Sprintf("%dm", n/1e6)
	case n >= 1e3 && n%1e3 == 0:
		return fmt.Sprintf("%dk", n/1e3)
	}
	return fmt.Sprint(n)
}

// splitTarget splits "server[:destination]"; a server that is an IPv6 address
// stands in brackets if a destination follows.
func splitTarget(s string) (server, destination string, err error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.String(), "", nil
	}
	if rest, ok := strings.CutPrefix(s, "["); ok {
		server, after, ok := strings.Cut(rest, "]")
		if destination, colon := strings.CutPrefix(after, ":"); ok && (colon || after == "") {
			return server, destination, nil
		}
		return "", "", errors.New("write [address]:destination")
	}
	server, destination, _ = strings.Cut(s, ":")
	if server == "" {
		return "", "", errors.New("there is no server")
	}
	return server, destination, nil
}

// failedClients returns a function that tells of clients that came to nothing.
func failedClients(t *tool) func(from string, why error) {
	tell := refused(t.streams)
	return func(from string, why error) { tell(textAddr(from), why) }
}

// textAddr is an address as text.
type textAddr string

// Network implements net.Addr.
func (textAddr) Network() string { return "rdma" }

// String implements net.Addr.
func (a textAddr) String() string { return string(a) }

var _ net.Addr = textAddr("")
