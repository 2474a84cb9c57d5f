package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/verbs"
)

// regionFlags are the flags of all commands of region.
type regionFlags struct {
	device  string
	timeout time.Duration
	tls     tlsFlags
	inspect inspectFlags
}

func newRegion(io streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "region",
		Short: "Read, write and update memory that a rocev2d exports",
		Long: `A rocev2d exports memory under names. These commands find it, and read, write
and update it by RDMA: the daemon's processor does not touch the data.

HOST is an address or a name, with :PORT if the daemon does not use port ` + strconv.Itoa(config.DefaultRegionsPort) + `.
Offsets and lengths are bytes: 4096, 0x1000, "64 KiB", 1GiB.

With --tls-cert, --tls-key and --tls-ca, or with --psk, the connection is
secured, and what cannot be secured is an error (docs/secure.md).`,
		Example: `  rocev2 region ls 192.0.2.1                             what is there
  rocev2 region read 192.0.2.1/scratch -o copy           all of it, into a file
  rocev2 region read 192.0.2.1/scratch --length 16 --hex a look at its beginning
  echo hello | rocev2 region write 192.0.2.1/scratch     standard input to its beginning
  rocev2 region add 192.0.2.1/scratch 4096 1             count`,
		Args: commandArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRegionList(io), newRegionRead(io), newRegionWrite(io), newRegionCAS(io), newRegionAdd(io))
	return cmd
}

func (f *regionFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.VarP(deviceFlag{&f.device}, "ib-dev", "d", deviceUsage)
	fs.DurationVar(&f.timeout, "timeout", 0, "give up after this `time` (default: 10s to connect, no limit for data)")
	f.tls.register(cmd)
	f.inspect.register(cmd)
}

// where is what the argument HOST[:PORT][/NAME] names.
type where struct{ addr, name string }

func parseWhere(arg string, needName bool) (w where, err error) {
	host, name, _ := strings.Cut(arg, "/")
	switch {
	case host == "":
		return w, usagef("%q names no host: write HOST[:PORT]/NAME", arg)
	case needName && name == "":
		return w, usagef("%q names no region: write HOST[:PORT]/NAME; \"rocev2 region ls %s\" shows the names", arg, host)
	case !needName && name != "":
		return w, usagef("%q: write the host alone, %s", arg, host)
	}
	w.name, w.addr = name, host
	if _, port, err := net.SplitHostPort(host); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return w, usagef("%q: a port is a number from 1 to 65535, not %q", arg, port)
		}
	} else {
		w.addr = net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(config.DefaultRegionsPort))
	}
	return w, nil
}

// connectTime bounds how long a command tries to connect.
const connectTime = 10 * time.Second

// with connects, and calls f. If w has a name, f gets its region.
func (f *regionFlags) with(ctx context.Context, s streams, w where, do func(context.Context, streams, *rdma.Conn, *rdma.RemoteRegion) error) (err error) {
	if f.timeout < 0 {
		return usagef("--timeout %v: the time must be positive", f.timeout)
	}
	host, _, _ := net.SplitHostPort(w.addr)
	config, err := f.tls.of(&f.inspect, host)
	if err != nil {
		return err
	}
	in, err := f.inspect.begin(s)
	if err != nil {
		return err
	}
	defer func() { err = in.end(err) }()
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("not done within --timeout %v", f.timeout))
		defer cancel()
	}
	d := rdma.Dialer{Depth: 128, TLS: config}
	if f.device != "" || in.wanted() {
		if d.Device, err = openDevice(in.streams, f.device, host, in.open); err != nil {
			return err
		}
	}
	wait := cmp.Or(f.timeout, connectTime)
	dial, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("no answer within %v", wait))
	c, err := d.Dial(dial, w.addr)
	if err != nil {
		switch err = because(dial, err); {
		case dial.Err() != nil:
			err = fmt.Errorf("%w: see whether a rocev2d runs there, and whether a firewall drops UDP port %d", err, verbs.UDPPort)
		case errors.Is(err, syscall.ECONNREFUSED):
			err = fmt.Errorf("no rocev2d serves regions at %s: start it there, or name its port (HOST:PORT): %w", w.addr, err)
		}
		cancel()
		return err
	}
	cancel()
	defer c.Close()
	if state, ok := c.ConnectionState(); ok {
		fmt.Fprintf(in.streams.err, "secured: %s (%s) with %s\n", tls.VersionName(state.Version), tls.CipherSuiteName(state.CipherSuite), peerOf(&state))
	}
	var r *rdma.RemoteRegion
	if w.name != "" {
		if r, err = c.Region(ctx, w.name); err != nil {
			return hintRegion(because(ctx, err), config != nil)
		}
	}
	return because(ctx, do(ctx, in.streams, c, r))
}

// because says why a context has ended, where that is the error.
func because(ctx context.Context, err error) error {
	if why := context.Cause(ctx); err != nil && ctx.Err() != nil && why != ctx.Err() && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: %w", err, why)
	}
	return err
}

func hintRegion(err error, secured bool) error {
	switch {
	case errors.Is(err, rdma.ErrUnknownRegion) && !secured:
		return fmt.Errorf("%w; \"rocev2 region ls\" shows the names; regions for secured connections alone are there with --tls-cert, --tls-key and --tls-ca, or --psk", err)
	case errors.Is(err, rdma.ErrUnknownRegion):
		return fmt.Errorf("%w; \"rocev2 region ls\" shows the names", err)
	case errors.Is(err, rdma.ErrPermission) && secured:
		return fmt.Errorf("%w: neither the address of this side nor a name of its certificate is on the list of the region (allow)", err)
	case errors.Is(err, rdma.ErrPermission):
		return fmt.Errorf("%w: the address of this side is not on the list of the region (allow); -d chooses another one", err)
	}
	return err
}

// parseBytes reads an offset or a length.
func parseBytes(what, s string) (int64, error) {
	if n, err := strconv.ParseInt(s, 0, 64); err == nil && n >= 0 {
		return n, nil
	}
	n, err := config.ParseSize(s)
	if err != nil {
		return 0, usagef("%s %q: write a number of bytes, such as 4096, 0x1000 or 64KiB", what, s)
	}
	return int64(n), nil
}

func newRegionList(s streams) *cobra.Command {
	var f regionFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls HOST[:PORT]",
		Short: "List the regions that this side may use",
		Example: `  rocev2 region ls 192.0.2.1
  rocev2 region ls [2001:db8::1]:9000 --json`,
		Args: regionArgs("HOST[:PORT]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := parseWhere(args[0], false)
			if err != nil {
				return err
			}
			return f.with(cmd.Context(), s, w, func(ctx context.Context, s streams, c *rdma.Conn, _ *rdma.RemoteRegion) error {
				list, err := c.Regions(ctx)
				if err != nil {
					return err
				}
				return printRegions(s.out, list, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a list in JSON")
	f.register(cmd)
	return cmd
}

func accessOf(r *rdma.RemoteRegion) config.Access {
	if r.Writable() {
		return config.ReadWrite
	}
	return config.ReadOnly
}

func printRegions(w io.Writer, list []*rdma.RemoteRegion, asJSON bool) error {
	if asJSON {
		type entry struct {
			Name       string        `json:"name"`
			Size       int64         `json:"size"`
			Access     config.Access `json:"access"`
			Persistent bool          `json:"persistent"`
		}
		out := []entry{}
		for _, r := range list {
			out = append(out, entry{r.Name(), r.Size(), accessOf(r), r.Persistent()})
		}
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(out)
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no regions for this address")
		return err
	}
	width := len("NAME")
	for _, r := range list {
		width = max(width, len(r.Name()))
	}
	if _, err := fmt.Fprintf(w, "%-*s %14s  ACCESS\n", width, "NAME", "BYTES"); err != nil {
		return err
	}
	for _, r := range list {
		persistent := ""
		if r.Persistent() {
			persistent = ", persistent"
		}
		if _, err := fmt.Fprintf(w, "%-*s %14d  %s%s\n", width, r.Name(), r.Size(), accessOf(r), persistent); err != nil {
			return err
		}
	}
	return nil
}

// regionArgs is the rule for the arguments of a command: as many as names.
func regionArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usagef("%s takes %s, got %d arguments", cmd.CommandPath(), strings.Join(names, " "), len(args))
		}
		return nil
	}
}

// update is an atomic on the 8 bytes at an offset.
func update(s streams, use, short, example string, names []string, do func(context.Context, *rdma.RemoteRegion, int64, []uint64) (uint64, string, error)) *cobra.Command {
	var f regionFlags
	cmd := &cobra.Command{
		Use:     use + " HOST[:PORT]/NAME " + strings.Join(names, " "),
		Short:   short,
		Example: example,
		Long: short + `.
The 8 bytes are a number in the byte order of the machines, and OFFSET is a
multiple of 8. Standard output gets what the number was before. Numbers may be
written in hexadecimal (0x10); a negative one comes behind "--".`,
		Args: regionArgs(append([]string{"HOST[:PORT]/NAME"}, names...)...),
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := parseWhere(args[0], true)
			if err != nil {
				return err
			}
			off, err := parseBytes("OFFSET", args[1])
			if err != nil {
				return err
			}
			var values []uint64
			for i, a := range args[2:] {
				v, err := parseWord(a)
				if err != nil {
					return usagef("%s %q: write a number of 64 bits", names[i+1], a)
				}
				values = append(values, v)
			}
			return f.with(cmd.Context(), s, w, func(ctx context.Context, s streams, _ *rdma.Conn, r *rdma.RemoteRegion) error {
				was, note, err := do(ctx, r, off, values)
				if err != nil {
					return err
				}
				if _, err := fmt.Fprintln(s.out, was); err != nil || note == "" {
					return err
				}
				return errors.New(note)
			})
		},
	}
	f.register(cmd)
	return cmd
}

// parseWord reads 64 bits, which may be a negative number.
func parseWord(s string) (uint64, error) {
	if n, err := strconv.ParseInt(s, 0, 64); err == nil {
		return uint64(n), nil
	}
	return strconv.ParseUint(s, 0, 64)
}

func newRegionCAS(s streams) *cobra.Command {
	return update(s, "cas", "Set 8 bytes to NEW if they are OLD, in one step", "  rocev2 region cas 192.0.2.1/scratch 4096 0 1     take a lock that is free", []string{"OFFSET", "OLD", "NEW"},
		func(ctx context.Context, r *rdma.RemoteRegion, off int64, v []uint64) (uint64, string, error) {
			was, err := r.CompareSwap(ctx, off, v[0], v[1])
			if err == nil && was != v[0] {
				return was, fmt.Sprintf("not swapped: the number is %d, not %d", was, v[0]), nil
			}
			return was, "", err
		})
}

func newRegionAdd(s streams) *cobra.Command {
	return update(s, "add", "Add VALUE to 8 bytes, in one step", "  rocev2 region add 192.0.2.1/scratch 4096 1       count", []string{"OFFSET", "VALUE"},
		func(ctx context.Context, r *rdma.RemoteRegion, off int64, v []uint64) (uint64, string, error) {
			was, err := r.FetchAdd(ctx, off, v[0])
			return was, "", err
		})
}

// output returns where data goes: standard output, or a file.
func output(s streams, name string, hex bool) (io.Writer, func() error, error) {
	switch {
	case name != "" && name != "-":
		f, err := os.Create(name)
		if err != nil {
			return nil, nil, err
		}
		return f, f.Close, nil
	case !hex && isTerminal(s.out):
		return nil, nil, usagef("standard output is a terminal: redirect it, name a file with -o, or use --hex")
	}
	return s.out, func() error { return nil }, nil
}
