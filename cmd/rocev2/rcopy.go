package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/internal/regular"
	"github.com/gosoftroce/rocev2/programs/interop/rcopy"
	"github.com/gosoftroce/rocev2/verbs"
)

// rcopyFlags are the flags of rcopy.
type rcopyFlags struct {
	cmFlags
	rcopy.Config
	maxSize  int
	count    int
	progress bool
}

func newRcopy(io streams) *cobra.Command {
	f := &rcopyFlags{}
	f.tool = "rcopy"
	cmd := &cobra.Command{
		Use:   "rcopy [source server[:destination]] [flags]",
		Short: "Copy a file to a server, over a stream of RDMA (rcopy)",
		Long: `Copy a file to a server. Without arguments, this side is the server. The peer is
another rocev2 rcopy, or rcopy of librdmacm. Without a destination the file has
the name of the source at the server.

The original server writes any file that a client names. This one writes below
--root only, where a name that begins with / begins, too: --root / is as the
original. It serves clients until it is interrupted, unless --clients says how
many. There is no authentication: anybody who reaches the port can write.

The two sides connect by the connection manager, over UDP port 4791 as all
RoCEv2 traffic: no TCP connection is needed.`,
		Example: `  rocev2 rcopy -d 192.0.2.1 --root /srv/incoming         run a server ...
  rocev2 rcopy disk.img 192.0.2.1:images/disk.img        ... and copy a file to it`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 || len(args) > 2 {
				return usagef("%d arguments: a client has a source and a server, and a server has none", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runRcopy(cmd, io, f, args) },
	}
	f.register(cmd, "b", "local `address` or interface: the same as --ib-dev", "d")
	fs := cmd.Flags()
	fs.IntVarP(&f.port, "port", "p", rcopy.DefaultPort, "`port` of the server")
	fs.StringVar(&f.Root, "root", ".", "server: `directory` that files are written below")
	fs.Var(sizeFlag{&f.maxSize}, "max-size", "server: largest file in `bytes`, also 64K or 64M (default: no limit)")
	fs.IntVar(&f.count, "clients", 0, "server: end after this `number` of clients (default: no end)")
	fs.BoolVar(&f.progress, "progress", false, "client: show progress on standard error also where that is no terminal")
	return cmd
}

func runRcopy(cmd *cobra.Command, io streams, f *rcopyFlags, args []string) error {
	var source, destination string
	if len(args) == 2 {
		var err error
		source = args[0]
		if f.server, destination, err = splitTarget(args[1]); err != nil {
			return usagef("%s: %v", args[1], err)
		}
		if destination == "" {
			destination = source
		}
	}
	if f.count < 0 {
		return usagef("--clients %d: it must not be negative", f.count)
	}
	c := f.Config
	c.IdleTimeout, c.MaxSize, c.Clients = f.idle, uint64(f.maxSize), f.count
	return f.runCM(cmd, io, connect{
		check: func(*verbs.Device) error { return nil },
		run: func(ctx context.Context, t *tool, server netip.AddrPort) (map[string]any, error) {
			return f.copy(ctx, t, server, source, destination, c)
		},
		serve: func(ctx context.Context, t *tool, at netip.AddrPort) error {
			var mu sync.Mutex
			c.OnFailed = failedClients(t)
			c.OnFile = func(from, path string, r rcopy.Result) {
				mu.Lock()
				defer mu.Unlock()
				f.say(t.streams, "%s: %d bytes from %s", path, r.Bytes, from)
				if f.json {
					_ = json.NewEncoder(t.out).Encode(map[string]any{"tool": f.tool, "role": "server", "client": from, "path": path, "bytes": r.Bytes, "seconds": r.Elapsed.Seconds()})
				}
			}
			c.OnListen = func() { f.waiting(t, at) }
			return rcopy.Serve(ctx, t.dev, at, c)
		},
	})
}

func (f *rcopyFlags) copy(ctx context.Context, t *tool, server netip.AddrPort, source, destination string, c rcopy.Config) (map[string]any, error) {
	file, err := regular.Open(source)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	p := newProgress(t.streams, f.progress)
	c.OnProgress = func(done, total uint64) { p.show("rcopy", done, total) }
	res, err := rcopy.Run(ctx, t.dev, server, file, destination, c)
	p.clear()
	if err != nil {
		return nil, err
	}
	f.say(t.streams, "%s", fmt.Sprintf("%d bytes in %.2f seconds = %.2f Gb/sec", res.Bytes, res.Elapsed.Seconds(), res.Gbps()))
	return map[string]any{"bytes": res.Bytes, "seconds": res.Elapsed.Seconds(), "gbps": res.Gbps()}, nil
}
