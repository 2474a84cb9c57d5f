package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/verbs"
)

// toolFlags are the flags that the tools of librdmacm have here beside their
// own.
type toolFlags struct {
	device  string
	bind    string // the tool's own name of the device
	timeout time.Duration
	idle    time.Duration
	json    bool
	inspect inspectFlags

	bindFlag string // how the tool names it, for errors
}

// register adds the flags. bind is the flag, of one letter, that names the
// local address in the original. short is -d, or empty where the original has
// that for something else.
func (f *toolFlags) register(cmd *cobra.Command, bind, bindUsage, short string) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.VarP(deviceFlag{&f.device}, "ib-dev", short, deviceUsage+" (default: the address that leads to the peer, or the first address of this host)")
	if bind != "" {
		f.bindFlag = "-" + bind
		fs.StringVarP(&f.bind, longOf[bind], bind, "", bindUsage)
	}
	fs.DurationVar(&f.idle, "idle-timeout", time.Minute, "give up if the peer is silent for this `time`")
	fs.DurationVar(&f.timeout, "timeout", 0, "give up after this `time` (for example 30s; default: no limit while there is progress)")
	fs.BoolVar(&f.json, "json", false, "print the result as a line of JSON")
	f.inspect.register(cmd)
}

// longOf names the flags of the originals, which have letters only.
var longOf = map[string]string{"a": "address", "b": "bind", "I": "source"}

// check checks what all tools have in common.
func (f *toolFlags) check() error {
	switch {
	case f.timeout < 0:
		return usagef("--timeout %v: the time must be positive", f.timeout)
	case f.idle <= 0:
		return usagef("--idle-timeout %v: the time must be positive", f.idle)
	case f.bind != "" && f.device != "" && f.bind != f.device:
		return usagef("%s %s and --ib-dev %s: both name the device, so give one", f.bindFlag, f.bind, f.device)
	}
	return nil
}

// local is the name of the device that the user gave, or "". An unspecified
// address stands for any, as in the originals.
func (f *toolFlags) local() string {
	if f.device != "" {
		return f.device
	}
	if a, err := netip.ParseAddr(f.bind); err == nil && a.IsUnspecified() {
		return ""
	}
	return f.bind
}

// tool is a tool that runs: its streams, its device, and the end of its time.
type tool struct {
	streams
	dev *verbs.Device
	in  *inspector
}

// run opens the device and has body use it. towards is the peer, or "" for a
// server.
func (f *toolFlags) run(cmd *cobra.Command, io streams, towards string, body func(context.Context, *tool) error) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	in, err := f.inspect.begin(io)
	if err != nil {
		return err
	}
	p := peerFlags{timeout: f.timeout}
	ctx, cancel := p.limit(cmd.Context())
	defer cancel()
	defer func() { err = in.end(err) }()
	in.streams.deviceFlag = "--ib-dev" // -d is another one in rping
	dev, err := openDevice(in.streams, f.local(), towards, in.open)
	if err != nil {
		return err
	}
	return body(ctx, &tool{streams: in.streams, dev: dev, in: in})
}

// say prints a line of the original's output, which --json leaves out.
func (f *toolFlags) say(io streams, format string, args ...any) {
	if !f.json {
		fmt.Fprintf(io.out, format+"\n", args...)
	}
}

// end prints the result: v with --json, else the last lines of the originals,
// which say whether all went well. It returns err.
func (f *toolFlags) end(io streams, v any, err error) error {
	if !f.json {
		status := 0
		if err != nil {
			status = -1
		}
		fmt.Fprintf(io.out, "test complete\nreturn status %d\n", status)
		return err
	}
	return f.object(io, v, err)
}

// object prints the result with --json, unless there is an error, which it
// returns.
func (f *toolFlags) object(io streams, v any, err error) error {
	if err != nil || !f.json {
		return err
	}
	return json.NewEncoder(io.out).Encode(v)
}

// resolve finds the address of a host. like, if valid, is of the wanted IP
// version.
func resolve(ctx context.Context, host string, want func(netip.Addr) bool) (netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap(), nil
	}
	list, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("look up %s: %w", host, err)
	}
	for _, a := range list {
		if a = a.Unmap(); want == nil || want(a) {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("look up %s: it has no address that fits", host)
}

// positive refuses numbers below 1 that were given; without its flag a number
// of 0 stands for the default.
func positive(cmd *cobra.Command, numbers map[string]int) error {
	for name, n := range numbers {
		if fl := cmd.Flags().Lookup(name); fl.Changed && n < 1 {
			return usagef("-%s %d: it must be at least 1", fl.Shorthand, n)
		}
	}
	return nil
}
