package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/gosoftroce/rocev2/interop"
	"github.com/gosoftroce/rocev2/verbs"
)

// peerFlags are the flags of everything that talks to one peer.
type peerFlags struct {
	device   string
	port     int
	mtu      int
	timeout  time.Duration
	progress bool
	ibPort   int
	gidIndex int
	sl       int
	sport    string
	inspect  inspectFlags
}

func (f *peerFlags) register(cmd *cobra.Command, gidName, gidShort string) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&f.device, "ib-dev", "d", "", deviceUsage+" (default: the way to the server, or the first address of this host)")
	fs.IntVarP(&f.port, "port", "p", interop.DefaultPort, "TCP `port` on which the two sides meet")
	fs.IntVarP(&f.ibPort, "ib-port", "i", 1, "accepted for compatibility: a device has one port")
	fs.StringVar(&f.device, "device", "", "the same as --ib-dev")
	fs.MarkHidden("device")
	fs.IntVarP(&f.gidIndex, gidName, gidShort, 0, "accepted for compatibility: a device has one address")
	fs.StringVar(&f.sport, "sport", "", "UDP source `port` of the queue pairs, 49152 to 65535, or \"auto\" for one from their numbers (default: 4791)")
	fs.DurationVar(&f.timeout, "timeout", 0, "give up after this `time` (for example 30s; default: no limit while there is progress)")
	f.inspect.register(cmd)
	fs.BoolVar(&f.progress, "progress", false, "show progress even where standard error is no terminal")
}

func (f *peerFlags) check() error {
	if f.ibPort != 1 {
		return usagef("-i %d: a device has one port, number 1", f.ibPort)
	}
	if f.timeout < 0 {
		return usagef("--timeout %v: a time is positive", f.timeout)
	}
	return checkPort(f.port)
}

// sourcePort returns what --sport asks for.
func (f *peerFlags) sourcePort() (uint16, error) {
	switch f.sport {
	case "":
		return 0, nil
	case "auto":
		return verbs.AutoSourcePort, nil
	}
	n, err := strconv.ParseUint(f.sport, 10, 16)
	if err != nil || n < minSourcePort {
		return 0, usagef("--sport %s: a source port is a number from %d to 65535, or auto", f.sport, minSourcePort)
	}
	return uint16(n), nil
}

const minSourcePort = 49152

// meet opens the device, which the inspector closes at its end, and the control
// connection. The device comes first: a server that cannot run does not let a
// client in.
func (f *peerFlags) meet(ctx context.Context, io *inspector, server string) (*verbs.Device, net.Conn, error) {
	dev, err := openDevice(io.streams, f.device, server, io.open)
	if err != nil {
		return nil, nil, err
	}
	conn, err := f.connect(ctx, io.streams, dev, server)
	return dev, conn, err
}

func (f *peerFlags) connect(ctx context.Context, io streams, dev *verbs.Device, server string) (net.Conn, error) {
	if server != "" {
		return interop.Dial(ctx, server, f.port)
	}
	ln, err := interop.Listen(ctx, f.port)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(io.err, "waiting on TCP port %d for a client of the device %v\n", f.port, dev.Addr())
	return interop.Accept(ctx, ln)
}

// limit bounds ctx by the user's time limit.
func (f *peerFlags) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("not done within --timeout %v: %w", f.timeout, context.DeadlineExceeded))
}

func serverOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
