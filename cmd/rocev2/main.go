// Command rocev2 is RDMA over Converged Ethernet version 2 on the command line:
// it shows what the software adapter can do (devinfo), talks to the ping-pong
// programs of rdma-core (pingpong), to the perftest programs (perf) and to
// those of librdmacm (rping, ucmatose, udaddy, mckey, cmtime, rdma_client and
// its kin), prints events (asyncwatch), and shows all operations at work
// (demo), in an ordinary process without privileges.
//
// Exit status: 0 when all went well, 1 when something failed, 2 when the
// command line was wrong; of "rocev2 run" that of the program.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gosoftroce/rocev2/cmd/build"
	"github.com/gosoftroce/rocev2/cmd/describe"
	"github.com/gosoftroce/rocev2/internal/closest"
	"github.com/gosoftroce/rocev2/programs/interop"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}

// Exit statuses.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// streams are the standard streams, or those of a test.
type streams struct {
	in       io.Reader
	out, err io.Writer

	deviceFlag string // that names the device; "" means -d
}

// statusError is an error with an exit status of its own. The error is nil
// where nothing is to be said.
type statusError struct {
	error
	status int
}

func (e statusError) Error() string {
	if e.error == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.error.Error()
}

func (e statusError) Unwrap() error { return e.error }

// usageError is a mistake on the command line.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func run(ctx context.Context, args []string, io streams) int {
	root := newRoot(io)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	var usage usageError
	var config *interop.ConfigError
	if errors.As(err, &usage) || errors.As(err, &config) {
		fmt.Fprintf(io.err, "rocev2: %v\nTry '%s --help'.\n", err, cmd.CommandPath())
		return exitUsage
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	var status statusError
	if errors.As(err, &status) && status.error == nil {
		return status.status // a program has said why
	}
	fmt.Fprintf(io.err, "rocev2: %v\n", err)
	if status.status != 0 {
		return status.status
	}
	return exitFailure
}

func newRoot(io streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "rocev2",
		Short: "RoCEv2 (RDMA over UDP) in an ordinary process",
		Long: `rocev2 speaks RDMA over Converged Ethernet v2 (RoCEv2) in an ordinary process.
It needs no RDMA hardware, no kernel module and no root. The peer is the Linux
kernel's Soft-RoCE, or another rocev2.

A device is one local address. -d names it, as an address or as a network
interface. Processes share an address where one of them owns its UDP port, such
as rocev2d; without an owner each needs an address of its own, for example
127.0.0.1 and 127.0.0.2.`,
		Example: `  rocev2 demo                                  run every operation
  rocev2 devinfo -d eth0                       show what the device on eth0 can do
  rocev2 perf write_bw -d 127.0.0.1            run the server of a bandwidth test ...
  rocev2 perf write_bw -d 127.0.0.2 127.0.0.1  ... and its client
  rocev2 pingpong -d eth0 192.0.2.7            connect to ibv_rc_pingpong -g 1 on 192.0.2.7`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          commandArgs,
		RunE:          func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	root.Version = build.Read().Text("rocev2")
	root.SetVersionTemplate("{{.Version}}")
	root.SetIn(io.in)
	root.SetOut(io.out)
	root.SetErr(io.err)
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetHelpCommand(newHelp())
	root.AddCommand(newRDMATools(io)...)
	root.AddCommand(newRegion(io))
	root.AddCommand(newDump(io), newRstream(io), newRcopy(io))
	root.AddCommand(newDevinfo(io), newPingpong(io), newPerf(io), newMckey(io), newRping(io), newUcmatose(io), newUdaddy(io), newCmtime(io), newAsyncwatch(io), newDevices(io), newStatus(io), newLinks(io), newPing(io), newTrace(io), newDoctor(io), newConformance(io), newDemo(io), newDemoPeer(io), newFaults(io), newRunProgram(io), newTop(io), newSim(io), newVersion(io), describe.New())
	return root
}

// commandArgs refuses the arguments of a command that only has others.
func commandArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	names := commandNames(cmd)
	question := closest.Question(args[0], names)
	if !cmd.HasParent() {
		return usagef("there is no command %q%s", args[0], question)
	}
	return usagef("there is no command %s %q; there are %s%s", cmd.Name(), args[0], strings.Join(names, ", "), question)
}

// commandNames returns the names of the commands of a command that help shows.
func commandNames(cmd *cobra.Command) (names []string) {
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// newHelp is the command that shows the help of others.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			if err == nil && len(rest) > 0 && of.HasSubCommands() {
				err = commandArgs(of, rest)
			}
			if err != nil {
				return err
			}
			return of.Help()
		},
	}
}

// atMostServer is the rule for the arguments of pingpong and perf.
func atMostServer(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usagef("you can name one server, not %d: %q", len(args), args)
	}
	if len(args) == 1 && args[0] == statsJSON && cmd.Flags().Changed("stats") {
		return usagef("--stats %s means a server named %q; the format is --stats=%s", args[0], args[0], args[0])
	}
	return nil
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("%s takes no arguments, but got %q", cmd.Name(), args[0])
	for _, name := range []string{"server", "address", "group", "ib-dev", "device"} { // of the originals, and ours
		if f := cmd.Flags().Lookup(name); f != nil && f.Shorthand != "" && f.Value.Type() != "bool" {
			what, _ := pflag.UnquoteUsage(f)
			return usagef("%w: an %s goes after -%s, as in \"rocev2 %s -%s %s\"", err, what, f.Shorthand, cmd.Name(), f.Shorthand, args[0])
		}
	}
	return usageError{err}
}
