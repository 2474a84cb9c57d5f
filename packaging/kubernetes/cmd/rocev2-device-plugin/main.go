// Command rocev2-device-plugin offers the ports of a node's rocev2d to
// Kubernetes: a pod that asks for one runs unmodified verbs programs on the
// node's devices, without privileges. docs/kubernetes.md describes it.
//
// Exit status: 0 when it was told to end; 1 when something failed; 2 when the
// command line was wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gosoftroce/rocev2/cmd/build"
	"github.com/gosoftroce/rocev2/internal/closest"
	"github.com/gosoftroce/rocev2/packaging/kubernetes/internal/plugin"
)

const name = "rocev2-device-plugin"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Exit statuses.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cmd := command(stderr)
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(stderr, "%s: %s\n", name, strings.TrimSuffix(line, "\n"))
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return exitFailure
}

func command(stderr io.Writer) *cobra.Command {
	c := plugin.Default()
	cmd := &cobra.Command{
		Use:   name,
		Short: "Offer the ports of this node's rocev2d to Kubernetes",
		Long: `rocev2-device-plugin offers the ports of a node's rocev2d to Kubernetes, by the
device plugin API of the kubelet. A pod that asks for one of them
(resources.limits: {` + c.Resource + `: 1}) gets the directory of the daemon in ` + plugin.PodDirectory + `,
the preload library in ` + plugin.PodLibraries + `, both read-only, and LD_PRELOAD and
ROCEV2_PROGRAMS in its environment. Programs of libibverbs and librdmacm then see
the node's devices, without privileges.

It runs beside rocev2d in a DaemonSet. The paths are those of the node: its
container has the same files at the same paths. Ports are healthy while the
daemon serves programs. The plugin registers again when the kubelet has begun
anew, and SIGTERM ends it.`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.Check(); err != nil {
				return usageError{err}
			}
			return plugin.Run(cmd.Context(), c, slog.New(slog.NewTextHandler(stderr, nil)))
		},
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.Version = build.Read().Text(name)
	cmd.SetVersionTemplate("{{.Version}}")
	cmd.SetFlagErrorFunc(flagError)
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&c.Resource, "resource", c.Resource, "`name` of what pods ask for")
	f.IntVar(&c.Ports, "ports", c.Ports, "how `many` ports the node offers: containers that use its devices at the same time")
	f.StringVar(&c.Directory, "directory", c.Directory, "`directory` of the daemon (its --programs)")
	f.StringVar(&c.Libraries, "libraries", c.Libraries, "`directory` where the plugin has the libraries for pods, one folder for each version; not mounted noexec")
	f.StringVar(&c.Ready, "ready", c.Ready, "`URL` that answers 200 while the daemon serves (its --health, and /readyz); without it only the directory is asked")
	f.DurationVar(&c.Interval, "interval", c.Interval, "`time` between two looks at the daemon")
	f.StringVar(&c.Kubelet, "kubelet", c.Kubelet, "`directory` of the kubelet's socket and of the plugin's")
	cmd.AddCommand(prepare(c.Directory))
	return cmd
}

func prepare(directory string) *cobra.Command {
	var uid, gid int
	cmd := &cobra.Command{
		Use:   "prepare",
		Short: "Make the directory of the daemon, for its user",
		Long: `prepare makes the directory of the daemon and gives it to the user of the daemon,
before that starts. Only root may enter the directory above it, which has
nothing else: so no other user of the node comes to the daemon's sockets. It
needs root and the capability CAP_CHOWN.`,
		Args: none,
		RunE: func(*cobra.Command, []string) error {
			if most := int64(plugin.MostID); int64(uid) < 0 || int64(gid) < 0 || int64(uid) > most || int64(gid) > most {
				return usageError{fmt.Errorf("--user and --group are numbers from 0 to %d", most)}
			}
			return plugin.Prepare(directory, uid, gid)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&directory, "directory", directory, "`directory` of the daemon (its --programs)")
	f.IntVar(&uid, "user", 65532, "`number` of the user of the daemon")
	f.IntVar(&gid, "group", 65532, "`number` of the group of the daemon")
	return cmd
}

func none(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var commands []string
	for _, c := range cmd.Commands() {
		commands = append(commands, c.Name())
	}
	return usageError{fmt.Errorf("%q takes no arguments, but got %q%s", cmd.CommandPath(), args[0], closest.Question(args[0], commands))}
}

func flagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		err = fmt.Errorf("%w%s", err, closest.Flag(unknown.GetSpecifiedName(), unknown.GetSpecifiedShortnames(), names))
	}
	return usageError{fmt.Errorf("%w; \"%s --help\" lists the flags", err, cmd.CommandPath())}
}
